"""Audio files in blocks: lengths, formats, and what is refused with one line."""

import numpy as np
import pytest
import soundfile

from ghrq.data.audio.files import AudioFile, check_writable, flac_holds, writing
from ghrq.system.errors import UserError


def tone(frames, channels=1, seed=0):
    return (0.3 * np.random.default_rng(seed).standard_normal((frames, channels))).clip(-1, 1).astype(np.float32)


def read(path):
    with AudioFile(path) as audio:
        return audio.read()


@pytest.mark.parametrize("form", ["wav", "flac"])
@pytest.mark.parametrize(("frames", "channels"), [(0, 1), (1, 1), (70_001, 2), (1000, 6)])
def test_what_is_written_is_read_again(tmp_path, form, frames, channels):
    path, x = tmp_path / f"a.{form}", tone(frames, channels)
    if form == "flac" and not frames:
        with pytest.raises(UserError, match=r"at least one sample.*name a \.wav"), writing(path, 22_050, 1, 0):
            pass
        return
    with writing(path, 22_050, channels, frames) as write:
        for start in range(0, frames, 999):
            assert write(x[start : start + 999]) == 0
    with AudioFile(path) as audio:
        assert (audio.rate, audio.channels, audio.frames) == (22_050, channels, frames)
        blocks = list(audio.blocks())
    found = np.concatenate([np.zeros((0, channels)), *blocks])
    assert found.shape == x.shape
    np.testing.assert_allclose(found, x, atol=1.01 / 2**15)
    assert all(len(block) <= 2**17 // channels for block in blocks)


@pytest.mark.parametrize("form", ["aiff", "au", "caf", "ogg", "mp3", "w64"])
def test_other_formats_are_read(tmp_path, form):
    path = tmp_path / f"a.{form}"
    soundfile.write(path, tone(16_000), 16_000)
    assert len(read(path)) == 16_000


def test_samples_above_full_scale_are_cut_and_counted(tmp_path):
    with writing(tmp_path / "a.wav", 16_000, 1, 3) as write:
        assert write(np.array([[0.5], [1.5], [-2.0]], np.float32)) == 2
    np.testing.assert_allclose(read(tmp_path / "a.wav")[:, 0], [0.5, 1.0, -1.0], atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 32_767.0])
def test_a_sample_that_is_no_sound_is_named(tmp_path, value):
    x = tone(200_000, 2)
    x[150_000, 1] = value
    soundfile.write(tmp_path / "a.wav", x, 16_000, "FLOAT")
    with pytest.raises(UserError, match=r"sample 150,000 \(9\.375 s\) of channel 2 is .*scale or repair"):
        read(tmp_path / "a.wav")


def test_floats_above_full_scale_are_kept(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.full((10, 1), 1.7, np.float32), 16_000, "FLOAT")
    assert np.allclose(read(tmp_path / "a.wav"), 1.7)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"RIFF", bytes(100), b"RIFF\xff\xff\xff\xffWAVEfmt "])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.wav cannot be read as audio.*convert it"):
        read(path)


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "opus", "aiff", "au", "w64", "caf", "rf64"])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_cut_file_is_refused(tmp_path, form, kept):
    path, kinds = tmp_path / f"a.{form}", {"rf64": "RF64", "opus": "OGG"}
    soundfile.write(path, tone(50_000), 16_000, format=kinds.get(form), subtype="OPUS" if form == "opus" else None)
    assert len(read(path)) == 50_000
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(UserError, match=r"cut off|cannot be read"):
        read(path)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_file_that_ends_with_a_whole_page_is_cut_too(tmp_path, subtype):
    path = tmp_path / "a.ogg"
    soundfile.write(path, tone(50_000), 16_000, format="OGG", subtype=subtype)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"OggS")])
    with pytest.raises(UserError, match=r"cut off .its end is missing.: copy it again"):
        read(path)


def test_a_wav_of_unknown_length_is_read(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(1000), 16_000)
    content = bytearray(path.read_bytes())
    content[40:44] = b"\xff" * 4  # as ffmpeg writes to a pipe
    path.write_bytes(content)
    assert len(read(path)) == 1000


@pytest.mark.parametrize("rate", [44_101, 65_537, 65_540, 88_201, 655_350, 655_360, 768_000])
def test_a_flac_of_any_rate_is_written_or_refused(tmp_path, rate):
    path = tmp_path / "a.flac"
    if flac_holds(rate):
        with writing(path, rate, 1, 10) as write:
            write(tone(10))
        with AudioFile(path) as audio:
            assert (audio.rate, audio.frames) == (rate, 10)
        return

    def write_and_read():
        soundfile.write(tmp_path / "b.flac", tone(10), rate)
        read(tmp_path / "b.flac")

    with pytest.raises((soundfile.LibsndfileError, UserError)):
        write_and_read()
    with (
        pytest.raises(UserError, match=rf"cannot have the rate {rate:,} Hz .* name a \.wav"),
        writing(path, rate, 1, 10),
    ):
        pass


def test_other_extensions_are_not_written(tmp_path):
    for name in ("a.mp3", "a", "a.ogg"):
        with pytest.raises(UserError, match=rf"{name} cannot be written: expected .*\.wav, \.flac"):
            check_writable(tmp_path / name, 8000, 1, 1)
    check_writable(tmp_path / "a.FLAC", 8000, 1, 1)


def test_odd_rates_and_folders_are_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(10), 7)
    with pytest.raises(UserError, match="rate of 7 Hz"):
        AudioFile(tmp_path / "a.wav")
    with pytest.raises(UserError, match="is a folder"):
        AudioFile(tmp_path)
    with pytest.raises(UserError, match="no file"):
        AudioFile(tmp_path / "b.wav")


def test_flac_has_8_channels_and_an_error_leaves_no_file(tmp_path):
    with pytest.raises(UserError, match="at most 8 channels"), writing(tmp_path / "a.flac", 16_000, 9, 1):
        pass
    with pytest.raises(IndexError), writing(tmp_path / "a.wav", 16_000, 1, 1) as write:
        write([tone(100)][write(tone(100)) + 1])
    assert not list(tmp_path.iterdir())
