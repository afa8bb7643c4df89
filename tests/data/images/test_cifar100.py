"""CIFAR-100 in both versions, downloaded, damaged, and the real one where it is there."""

import dataclasses
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ghrq.data.images import cifar100, load
from ghrq.system.errors import UserError

COUNTS = {"train": 5, "test": 3}


def random(seed, *shape, below=256):
    return np.random.RandomState(seed).randint(below, size=shape).astype(np.uint8)


def records(split):
    """CIFAR-100's records: superclass, class, pixels."""
    count = COUNTS[split]
    fine = random(3, count, 1, below=100)
    return np.concatenate((fine // 5, fine, random(4, count, 3072)), axis=1)


def check_colour(images, split):
    wanted = records(split)
    np.testing.assert_array_equal(images.pixels, wanted[:, 2:].reshape(-1, 3, 32, 32))
    assert images.pixels.is_contiguous()
    np.testing.assert_array_equal(images.labels, wanted[:, 1])
    np.testing.assert_array_equal(images.coarse, wanted[:, 0])
    assert images.labels.dtype == images.coarse.dtype == torch.int64
    assert (len(images.label_names), len(images.coarse_names)) == (100, 20)


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for split in COUNTS:
        records(split).tofile(folder / f"{split}.bin")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_binary_version(split, tmp_path, monkeypatch):
    write_binary(tmp_path / "cifar-100-binary")
    check_colour(load("cifar100", split=split, source=str(tmp_path / "cifar-100-binary")), split)
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path))
    check_colour(load("cifar100", split=split), split)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.filterwarnings("error")
def test_the_python_version(split, tmp_path):
    rows = records(split)
    content = {"data": rows[:, 2:], "fine_labels": rows[:, 1].tolist(), "coarse_labels": rows[:, 0].tolist()}
    (tmp_path / "cifar-100-python").mkdir()
    (tmp_path / "cifar-100-python" / split).write_bytes(pickle.dumps({**content, "filenames": ["a.png"]}, 2))
    check_colour(load("cifar100", split=split, source=str(tmp_path)), split)


def archive_of(folder, target):
    with tarfile.open(target, "w:gz") as archive:
        for name in ("train.bin", "test.bin"):
            content = (folder / name).read_bytes()
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.sha256(target.read_bytes()).hexdigest()


@pytest.mark.slow
def test_cifar100_downloaded(tmp_path, monkeypatch, serve):
    write_binary(tmp_path / "original")
    archive = tmp_path / "web" / "cifar-100-binary.tar.gz"
    sha256 = archive_of(tmp_path / "original", archive)
    origin = dataclasses.replace(cifar100._ORIGIN, addresses=(serve,), sha256={archive.name: sha256})
    monkeypatch.setattr(cifar100, "_ORIGIN", origin)
    with pytest.raises(UserError, match=r"(train|test)\.bin is damaged .*SHA-256"):
        load("cifar100", split="test", download=True)  # not the images that the archive should have
    members = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "original").iterdir()}
    monkeypatch.setattr(cifar100, "_SHA256", members)
    check_colour(load("cifar100", split="test", download=True), "test")
    kept = tmp_path / "cache" / "ghrq" / "cifar-100-binary"
    assert sorted(path.name for path in kept.iterdir()) == ["test.bin", "train.bin"]
    archive.unlink()
    check_colour(load("cifar100", split="train", download=True), "train")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda rows: rows.tobytes()[:-1], r"15369 bytes, expected a multiple of 3074"),
        (lambda rows: b"", "0 bytes"),
        (lambda rows: np.concatenate((rows, np.full_like(rows[:1], 20))).tobytes(), "label 20 where there are 20"),
        (lambda rows: np.concatenate((rows, np.full_like(rows[:1], 100))).tobytes(), "label 100 where there are 100"),
    ],
)
def test_a_damaged_binary_version(change, complaint, tmp_path):
    (tmp_path / "train.bin").write_bytes(change(records("train")))
    with pytest.raises(UserError, match=rf"train\.bin has .*{complaint}.*get it again"):
        load("cifar100", split="train", source=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"cos\nsystem\n(S'touch ran'\ntR.", "asks for (os|posix).system"),
        (pickle.dumps({"data": np.zeros((2, 3072), dtype="u1")}, 2), "no data, fine_labels and coarse_labels"),
        (pickle.dumps([1, 2]), "no data, fine_labels"),
        (
            pickle.dumps({"data": np.zeros((2, 3071), dtype="u1"), "fine_labels": [1, 2], "coarse_labels": [1, 2]}, 2),
            r"shape \(2, 3071\)",
        ),
        (
            pickle.dumps({"data": np.zeros((2, 3072), dtype="u1"), "fine_labels": [1], "coarse_labels": [1, 2]}, 2),
            r"for \(1,\) and \(2,\)",
        ),
        (
            pickle.dumps(
                {"data": np.zeros((2, 3072), dtype="u1"), "fine_labels": [1, "a"], "coarse_labels": [1, 2]}, 2
            ),
            "expected integers",
        ),
        (
            pickle.dumps({"data": np.zeros((2, 3072), dtype="u1"), "fine_labels": [1, -1], "coarse_labels": [1, 2]}, 2),
            "label -1",
        ),
        (
            pickle.dumps({"data": np.zeros((0, 3072), dtype="u1"), "fine_labels": [], "coarse_labels": []}, 3),
            r"shape \(0, 3072\)",
        ),
    ],
)
def test_a_damaged_python_version(content, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test").write_bytes(content)
    with pytest.raises(UserError, match=rf"test .*{complaint}"):
        load("cifar100", split="test", source=str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_rows_are_taken_from_everything(tmp_path):
    write_binary(tmp_path)
    images = load("cifar100", split="train", source=str(tmp_path))
    some = images.take(torch.tensor([3, 0]))
    assert len(some) == 2
    for part in ("pixels", "labels", "coarse"):
        assert torch.equal(getattr(some, part), getattr(images, part)[[3, 0]])
    assert (some.label_names, some.coarse_names) == (images.label_names, images.coarse_names)
    masked = images.take(images.labels == images.labels[2])
    assert torch.equal(masked.labels, images.labels[images.labels == images.labels[2]])
    assert load("digits", split="test").take(torch.arange(3)).coarse is None


def test_the_superclass_of_each_class_comes_from_the_images(tmp_path):
    write_binary(tmp_path)
    images = load("cifar100", split="train", source=str(tmp_path))
    table = images.coarse_of_labels()
    seen = torch.zeros(100, dtype=torch.bool)
    seen[images.labels] = True
    assert torch.equal(table, torch.where(seen, torch.arange(100) // 5, -1))
    wrong = dataclasses.replace(images, labels=torch.zeros(5, dtype=torch.int64), coarse=torch.tensor([1, 1, 1, 2, 1]))
    with pytest.raises(ValueError, match="'apple' are in more than one"):
        wrong.coarse_of_labels()
    with pytest.raises(ValueError, match="no superclasses"):
        load("digits", split="test").coarse_of_labels()


def test_the_real_cifar100(real):
    source = real("cifar-100-binary", "test.bin")
    for split, count in (("train", 500), ("test", 100)):
        images = load("cifar100", split=split, source=source)
        assert torch.bincount(images.labels).tolist() == [count] * 100
        table = images.coarse_of_labels()
        assert torch.bincount(table).tolist() == [5] * 20
        classes = dict(zip(images.label_names, (images.coarse_names[place] for place in table), strict=True))
        assert classes["maple_tree"] == "trees"
        assert classes["rocket"] == "vehicles_2"
        assert classes["ray"] == "fish"
    folder = Path(source, "cifar-100-binary")
    for names, file in ((images.label_names, "fine_label_names.txt"), (images.coarse_names, "coarse_label_names.txt")):
        if (folder / file).is_file():
            assert names == tuple((folder / file).read_text().split())
