"""Folders of recordings and their splits, and pieces of them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from ghrq.data.audio.crops import Crops
from ghrq.data.audio.speech import Recording, Speech, check_recordings, load_speech, read
from ghrq.system.errors import UserError


def write(path: Path, samples: np.ndarray | None = None, rate: int = 8000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.linspace(-0.5, 0.5, 400) if samples is None else samples, rate, "FLOAT")
    return path


def names(speech: Speech) -> list[list[str]]:
    return [[recording.path.parent.as_posix().rpartition("root/")[2] for recording in part] for part in speech]


def test_a_file_names_the_speakers(tmp_path):
    root = tmp_path / "root"
    for subset, speaker in (("dev-clean", "84"), ("dev-clean", "85"), ("test-clean", "86"), ("test-clean", "87")):
        write(root / subset / speaker / "1" / "a.wav")
    (root / "speakers.json").write_text(json.dumps({"train": ["84"], "validation": ["86"], "test": ["85"]}))
    assert names(load_speech(str(root))) == [["dev-clean/84/1"], ["test-clean/86/1"], ["dev-clean/85/1"]]
    (root / "speakers.json").write_text(json.dumps({"train": ["84"], "validation": ["84"], "test": ["85"]}))
    with pytest.raises(UserError, match="84 in train and validation"):
        load_speech(str(root))
    (root / "speakers.json").write_text(json.dumps({"train": ["84"]}))
    with pytest.raises(UserError, match="all splits"):
        load_speech(str(root))


def test_subsets_and_folders_of_splits(tmp_path):
    root = tmp_path / "root"
    for name in ("train-clean-100/1/2", "dev-clean/3/4", "test-clean/5/6"):
        write(root / name / "a.wav")
    assert names(load_speech(str(root))) == [["train-clean-100/1/2"], ["dev-clean/3/4"], ["test-clean/5/6"]]
    other = tmp_path / "other" / "root"
    for name in ("train/x", "validation/x", "test/x"):
        write(other / name / "a.wav")
    assert names(load_speech(str(other))) == [["train/x"], ["validation/x"], ["test/x"]]


def test_other_folders_are_split_by_speaker(tmp_path):
    root = tmp_path / "root"
    for speaker in range(20):
        for number in range(2):
            write(root / f"s{speaker}" / f"{number}.wav")
    speech = load_speech(str(root))
    parts = [set(part) for part in names(speech)]
    assert [len(part) for part in parts] == [16, 2, 2]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]  # noqa: PT018
    write(root / "one-more" / "0.wav")
    again = [set(part) for part in names(load_speech(str(root)))]
    moved = sum(len(before - after) for before, after in zip(parts, again, strict=True))
    assert moved <= 2, "a new speaker moves few others"


def test_missing_recordings_are_told(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no folder"):
        load_speech(str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="no audio files"):
        load_speech(str(tmp_path))
    monkeypatch.delenv("GHRQ_DATA", raising=False)
    with pytest.raises(UserError, match="GHRQ_DATA"):
        load_speech()
    write(tmp_path / "a.wav")
    with pytest.raises(UserError, match="1 speakers"):
        load_speech(str(tmp_path))


def test_empty_recordings_are_left_out(tmp_path, capfd):
    for split in ("train", "validation", "test"):
        write(tmp_path / split / "a.wav")
    write(tmp_path / "train" / "b.wav", np.zeros(0))
    speech = load_speech(str(tmp_path))
    assert [[recording.path.name for recording in part] for part in speech] == [["a.wav"]] * 3
    assert f"note: 1 empty recording left out: {tmp_path / 'train' / 'b.wav'}\n" in capfd.readouterr().err
    write(tmp_path / "test" / "a.wav", np.zeros(0))
    with pytest.raises(UserError, match=r"only empty recordings for test, such as .*test/a\.wav: replace"):
        load_speech(str(tmp_path))


@pytest.mark.parametrize("fault", ["a NaN", "a cut FLAC"])
def test_a_recording_that_cannot_be_used_is_named_before_training(tmp_path, fault):
    for split in ("train", "validation", "test"):
        write(tmp_path / split / "a.wav")
    if fault == "a NaN":
        wrong = write(tmp_path / "test" / "b.wav", np.array([0.1, np.nan, 0.1]))
    else:
        wrong = tmp_path / "test" / "b.flac"
        soundfile.write(wrong, np.random.default_rng(0).standard_normal(50_000).clip(-1, 1), 8000)
        wrong.write_bytes(wrong.read_bytes()[:50_000])
    speech = load_speech(str(tmp_path))
    with pytest.raises(UserError, match=rf"^{wrong}.*; replace or remove this recording before training$"):
        check_recordings(speech)
    wrong.unlink()
    check_recordings(load_speech(str(tmp_path)))


def test_an_empty_recording_has_no_samples(tmp_path):
    path = write(tmp_path / "a.wav", np.zeros((0, 2)))
    assert read(Recording(path, 8000, 0), 16_000).shape == (0,)


def test_reading_mixes_channels_and_resamples(tmp_path):
    time = np.arange(8000) / 8000
    tone = 0.3 * np.sin(2 * np.pi * 440 * time)
    path = write(tmp_path / "a.wav", np.stack([2 * tone, np.zeros(8000)], 1))
    recording = Recording(path, 8000, 8000)
    assert torch.allclose(read(recording, 8000), torch.from_numpy(tone).float(), atol=1e-6)
    assert len(read(recording, 8000, 0.25)) == 2000
    found = read(recording, 16_000)
    assert len(found) == 16_000
    expected = torch.from_numpy(0.3 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)).float()
    assert (found - expected)[500:-500].abs().max() < 1e-3


def test_crops_depend_on_seed_and_step_only(tmp_path):
    recordings = []
    for i, length in enumerate((4000, 500, 12_000)):
        path = write(tmp_path / f"{i}.wav", np.arange(length) / 20_000 + 0.0)
        recordings.append(Recording(path, 8000, length))
    crops = Crops(recordings, 8000, 1000)
    stream = crops.batches(4, seed=3)
    batches = [next(stream) for _ in range(3)]
    assert torch.equal(next(crops.batches(4, 3, step=2)), batches[2])
    assert not torch.equal(batches[0], batches[1])
    for row in torch.cat(batches):
        steps = row[1:].diff()
        filled = row != 0.0  # the shortest file is filled with zeros
        inner = filled[1:-1] & filled[2:]
        assert torch.allclose(steps[inner], torch.tensor(1 / 20_000), atol=1e-6), "one piece of one file"
    fixed = crops.fixed(2)
    assert fixed.shape == (2, 1000)
    assert torch.equal(fixed, crops.fixed(2))
    assert crops.fixed(10).shape == (3, 1000)


def test_crops_are_at_the_wanted_rate(tmp_path):
    path = write(tmp_path / "a.wav", 0.3 * np.sin(2 * np.pi * 300 * np.arange(8000) / 8000))
    piece = Crops([Recording(path, 8000, 8000)], 16_000, 4000).fixed(1)[0]
    peak = torch.fft.rfft(piece).abs().argmax()
    assert int(peak) == 300 * 4000 // 16_000


def test_a_file_that_is_gone_is_told(tmp_path):
    with pytest.raises(UserError, match=r"a\.wav cannot be read any more"):
        Crops([Recording(tmp_path / "a.wav", 8000, 8000)], 8000, 100).fixed(1)


def test_the_real_speech():
    if not (Path(os.environ.get("GHRQ_DATA", "/nothing")) / "speech/LibriSpeech").is_dir():
        pytest.skip("needs LibriSpeech in GHRQ_DATA")
    speech = load_speech()
    speakers = [{recording.path.parts[-3] for recording in part} for part in speech]
    assert [len(part) for part in speakers] == [24, 4, 8]
    assert not speakers[0] & speakers[2]
    assert 45 < sum(recording.seconds for recording in speech.train) / 60 < 53
