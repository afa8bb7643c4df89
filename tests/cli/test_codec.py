"""``ghrq codec``: any sound there and back at its own rate and length; mistakes and damage are one line."""

import numpy as np
import pytest
import soundfile

from ghrq.models.audio_files import decode_file, encode_file
from ghrq.models.bitstream import reading
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from small_codec import small_codec, speech_like


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    codec = small_codec()
    codec.tables.fit([codec.encode(speech_like(20_000, seed)).numpy() for seed in range(3)])
    folder = tmp_path_factory.mktemp("model") / "small"
    codec.save_pretrained(folder)
    return folder


@pytest.fixture
def codec(ghrq, model):
    """``code, out, err = codec("encode", …)`` with the small model."""
    return lambda command, *rest: ghrq("codec", command, *rest, "--model", model)


def sound(path, samples, rate=8000, channels=1, subtype="PCM_16", seed=0):
    x = np.stack([speech_like(samples + 1, seed + i).numpy()[:samples] for i in range(channels)], axis=1)
    soundfile.write(path, x, rate, subtype)
    return x


def one_line(err):
    return err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("samples", "rate", "channels"),
    [
        (0, 8000, 1),
        (1, 8000, 1),
        (1, 44_100, 2),
        (20_017, 8000, 1),
        (30_001, 44_100, 2),
        (96_001, 96_000, 1),
        (9_000, 11_025, 3),
    ],
)
def test_there_and_back(codec, ghrq, samples, rate, channels):
    sound("a.wav", samples, rate, channels)
    code, out, err = codec("encode", "a.wav", "a.ghrq")
    assert (code, err) == (0, "")
    assert f"{rate:,} Hz" in out
    code, out, err = codec("decode", "a.ghrq", "b.wav")
    assert (code, err) == (0, "")
    back, found = soundfile.read("b.wav", always_2d=True)
    assert (back.shape, found) == ((samples, channels), rate)
    code, out, err = ghrq("codec", "info", "a.ghrq")
    assert code == 0
    assert "undamaged" in out


def test_what_is_decoded_is_what_the_model_gives(codec, model):
    import torch

    from ghrq.models import AudioCodec

    x = sound("a.wav", 25_003)
    x = soundfile.read("a.wav", dtype="float32")[0]
    codec("encode", "a.wav", "a.ghrq", "--beam", "4", "--stages", "3")
    codec("decode", "a.ghrq", "b.wav")
    loaded = AudioCodec.from_pretrained(model)
    expected = loaded.decode(loaded.encode(torch.from_numpy(x), stages=3), length=len(x)).clamp(-1, 1).numpy()
    np.testing.assert_allclose(soundfile.read("b.wav")[0], expected, atol=2 / 2**15)


@pytest.mark.parametrize("rate", [8000, 44_100, 11_025])
def test_a_part_is_that_of_the_whole(codec, rate):
    sound("a.wav", 8 * rate + 11, rate, 2)
    codec("encode", "a.wav", "a.ghrq")
    codec("decode", "a.ghrq", "b.wav")
    whole = soundfile.read("b.wav")[0]
    for start, stop in ((0, 1), (2.5, 4.25), (7, 99)):
        assert codec("decode", "a.ghrq", "c.wav", "--from", start, "--to", stop, "--force")[0] == 0
        part, expected = soundfile.read("c.wav")[0], whole[round(start * rate) : round(stop * rate)]
        np.testing.assert_allclose(part, expected, atol=3 / 2**15)
    for wrong in (("--from", 9), ("--from", 3, "--to", 2), ("--from", -1), ("--from", 1, "--to", 1.00001)):
        code, _, err = codec("decode", "a.ghrq", "d.wav", *wrong)
        assert code == 2
        assert "--from" in err


def test_a_folder_is_not_taken_for_the_model_that_ships(codec, ghrq, tmp_path):
    from ghrq.models import AudioCodec

    shipped = AudioCodec.from_pretrained("speech-16k").fingerprint
    sound("a.wav", 900)
    small_codec().save_pretrained(tmp_path / "speech-16k")
    assert ghrq("codec", "encode", "a.wav", "a.ghrq")[0] == 0
    assert ghrq("codec", "encode", "a.wav", "b.ghrq", "--model", "speech-16k")[0] == 0
    with reading(tmp_path / "a.ghrq") as a, reading(tmp_path / "b.ghrq") as b:
        assert shipped.startswith(a.header.fingerprint.hex())
        assert small_codec().fingerprint.startswith(b.header.fingerprint.hex()), "which was named"


def test_python_does_not_replace_its_input(tmp_path):
    sound(tmp_path / "a.wav", 900)
    (tmp_path / "link.wav").symlink_to("a.wav")
    before, small = (tmp_path / "a.wav").read_bytes(), small_codec()
    for out in ("a.wav", "link.wav"):
        with pytest.raises(UserError, match="would overwrite the input"):
            encode_file(small, tmp_path / "a.wav", tmp_path / out, Progress())
    assert (tmp_path / "a.wav").read_bytes() == before
    encode_file(small, tmp_path / "a.wav", tmp_path / "b.wav", Progress())
    with pytest.raises(UserError, match="would overwrite the input"):
        decode_file(small, tmp_path / "b.wav", tmp_path / "b.wav", Progress())


def test_a_recipe_of_another_task_and_a_wide_beam_are_refused(ghrq, tmp_path):
    code, _, err = ghrq("codec", "train", tmp_path, "--recipe", "wordnet/demo", "--out", "run")
    assert (code, err) == (
        2,
        "error: wordnet/demo is a recipe of the task 'wordnet': name one of audio (ghrq recipes)\n",
    )
    code, _, err = ghrq("codec", "encode", "a.wav", "a.ghrq", "--beam", 1025)
    assert code == 2
    assert "1024" in err


def test_fewer_stages_by_trimming_or_decoding(codec, ghrq):
    sound("a.wav", 9000)
    codec("encode", "a.wav", "a.ghrq")
    assert ghrq("codec", "trim", "a.ghrq", "t.ghrq", "--stages", 2)[0] == 0
    codec("decode", "t.ghrq", "t.wav")
    codec("decode", "a.ghrq", "d.wav", "--stages", 2)
    assert np.array_equal(soundfile.read("t.wav")[0], soundfile.read("d.wav")[0])
    for command in (("encode", "a.wav", "x.ghrq"), ("decode", "a.ghrq", "x.wav")):
        code, _, err = codec(*command, "--stages", 9)
        assert code == 2
        assert "--stages 9: expected 1 to 4" in err
    _, _, err = ghrq("codec", "trim", "a.ghrq", "x.ghrq", "--stages", 9)
    assert "--stages 9: expected 1 to 4, the stages of a.ghrq" in err


def test_silence_and_clipping(codec, tmp_path):
    soundfile.write("a.wav", np.zeros(9000), 8000)
    assert codec("encode", "a.wav", "a.ghrq")[0] == 0
    soundfile.write("loud.wav", np.sign(speech_like(9000).numpy()), 8000)
    assert codec("encode", "loud.wav", "loud.ghrq")[0] == 0
    assert codec("decode", "loud.ghrq", "loud-back.flac")[0] == 0


def test_bad_sounds_are_refused_and_leave_nothing(codec, tmp_path):
    x = np.zeros(9000, np.float32)
    x[8999] = np.nan
    soundfile.write("nan.wav", x, 8000, "FLOAT")
    (tmp_path / "text.wav").write_text("hello")
    before = sorted(tmp_path.iterdir())
    for name, told in (
        ("nan.wav", "is nan"),
        ("text.wav", "cannot be read as audio"),
        ("none.wav", "no file"),
        (".", "folder"),
    ):
        code, _, err = codec("encode", name, "out.ghrq")
        assert code == 2
        assert one_line(err)
        assert told in err
    assert sorted(tmp_path.iterdir()) == before


def test_outputs_are_replaced_with_force_only(codec, ghrq, tmp_path):
    sound("a.wav", 900)
    assert codec("encode", "a.wav", "a.ghrq")[0] == 0
    before = (tmp_path / "a.ghrq").read_bytes()
    sound("a.wav", 1900)
    code, _, err = codec("encode", "a.wav", "a.ghrq")
    assert code == 2
    assert "a.ghrq is there already: name another file, or replace it with --force" in err
    assert (tmp_path / "a.ghrq").read_bytes() == before
    assert codec("encode", "a.wav", "a.ghrq", "--force")[0] == 0
    for wrong in ("a.wav", "b.mp3", "no/a.ghrq"):
        assert codec("encode", "a.wav", wrong, "--force")[0] == 2
    code, _, err = ghrq("codec", "trim", "a.ghrq", "a.ghrq", "--stages", 1, "--force")
    assert code == 2
    assert "a.ghrq would overwrite the input a.ghrq: give the output another name" in err


def test_a_file_of_another_model_and_damaged_files(codec, ghrq, tmp_path):
    sound("a.wav", 9000)
    codec("encode", "a.wav", "a.ghrq")
    other = small_codec()
    other.network.encoder.merge.bias.data += 1.0
    other.save_pretrained(tmp_path / "other")
    code, _, err = ghrq("codec", "decode", "a.ghrq", "b.wav", "--model", tmp_path / "other")
    assert code == 2
    assert "was encoded by another model" in err
    content = (tmp_path / "a.ghrq").read_bytes()
    for place in (10, 45, 60, len(content) - 1):
        wrong = bytearray(content)
        wrong[place] ^= 4
        (tmp_path / "d.ghrq").write_bytes(wrong)
        for command in (("info", "d.ghrq"), ("trim", "d.ghrq", "e.ghrq", "--stages", 1)):
            code, _, err = ghrq("codec", *command)
            assert code == 2
            assert one_line(err)
        code, _, err = codec("decode", "d.ghrq", "b.wav")
        assert code == 2
        assert one_line(err)
    with reading(tmp_path / "a.ghrq") as reader:
        forged = reader.header._replace(codes=1).pack()
    (tmp_path / "d.ghrq").write_bytes(forged + content[len(forged) :])
    assert "kbit/s" in ghrq("codec", "info", "d.ghrq")[1], "one code a stage has no plain size to compare with"
    assert codec("decode", "d.ghrq", "b.wav")[0] == 2
    assert not (tmp_path / "b.wav").exists()
    assert not (tmp_path / "e.ghrq").exists()


def test_listen_and_help(codec, ghrq, tmp_path):
    sound("a.wav", 9000)
    code, out, _ = codec("listen", "a.wav", "--out", "page.html")
    assert code == 0
    assert "page.html" in out
    assert b"Blind test" in (tmp_path / "page.html").read_bytes()
    for command in ("encode", "decode", "info", "trim", "train", "listen"):
        assert f"ghrq codec {command}" in ghrq("codec", command, "--help")[1]
    code, _, err = ghrq("codec", "train", "nowhere", "--out", "run")
    assert code == 2
    assert "no folder nowhere" in err
