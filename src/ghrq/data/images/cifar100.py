"""CIFAR-100: 50,000 + 10,000 images of 32×32 in colour, each with a class and a superclass."""

import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ghrq.data.images import pickles
from ghrq.data.images.cifar100_names import CLASSES, SUPERCLASSES
from ghrq.data.images.image_set import Images, Split
from ghrq.data.images.sources import Origin
from ghrq.data.wheels import store
from ghrq.system.errors import UserError

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # superclass, class, then the planes of red, green and blue
_AGAIN = "it is damaged or another file: get it again"

_ARCHIVE = "cifar-100-binary.tar.gz"
_BINARY, _PYTHON = "cifar-100-binary", "cifar-100-python"
_ORIGIN = Origin(
    "CIFAR-100",
    (_BINARY, _PYTHON),
    ("https://www.cs.toronto.edu/~kriz/",),
    {_ARCHIVE: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
)
# Of the files in the archive.
_SHA256 = {
    "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}


def load_cifar100(split: Split, source: str, download: bool) -> Images:
    """The binary version (``train.bin``, ``test.bin``) or the python version (the pickles ``train`` and ``test``)."""

    def pick(folder: Path) -> Path | None:
        return next((path for path in (folder / f"{split}.bin", folder / split) if path.is_file()), None)

    fetch = (lambda: _unpack(_ORIGIN.fetch(_ARCHIVE))) if download else None
    found = _ORIGIN.locate(source, pick, f"{_BINARY}/{split}.bin and {_PYTHON}/{split}", fetch)
    return _from_binary(found) if found.suffix == ".bin" else _from_python(found)


def _unpack(archive: Path) -> None:
    try:
        with tarfile.open(archive) as content:
            for name, sha256 in _SHA256.items():
                member = content.extractfile(f"{_BINARY}/{name}")
                if member is None:
                    raise KeyError(f"{_BINARY}/{name} is not a file")
                store(member, _ORIGIN.kept / name, sha256)
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is not the archive of CIFAR-100 ({error}): remove it and try again") from error
    archive.unlink()


def _from_binary(path: Path) -> Images:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}): {_AGAIN}") from error
    if not len(content) or len(content) % _RECORD:
        raise UserError(f"{path} has {len(content)} bytes, expected a multiple of {_RECORD}: {_AGAIN}")
    records = content.reshape(-1, _RECORD)
    return _images(path, records[:, 2:], records[:, 1], records[:, 0])


def _from_python(path: Path) -> Images:
    try:
        with path.open("rb") as file:
            content = pickles.read(file, path, path.stat().st_size)
        pixels, fine, coarse = (_array(content[key]) for key in ("data", "fine_labels", "coarse_labels"))
    except UserError:
        raise
    except (OSError, TypeError, LookupError, ValueError) as error:
        raise UserError(f"{path} has no data, fine_labels and coarse_labels ({error}): {_AGAIN}") from error
    fits = pixels.shape == (len(fine), _PIXELS) and len(fine) > 0 and fine.shape == coarse.shape
    if pixels.dtype != np.uint8 or not fits:
        raise UserError(
            f"{path} has data of type {pixels.dtype} and shape {pixels.shape} for {fine.shape} and {coarse.shape} "
            f"labels, expected bytes of shape (n, {_PIXELS}) for (n,) and (n,): {_AGAIN}"
        )
    if fine.dtype.kind not in "iu" or coarse.dtype.kind not in "iu":
        raise UserError(f"{path} has labels of type {fine.dtype} and {coarse.dtype}, expected integers: {_AGAIN}")
    return _images(path, pixels, fine, coarse)


def _array(value: Any) -> npt.NDArray[Any]:
    """An array, or a flat list of integers: lists that hold a list again and again become larger than the memory."""
    if not isinstance(value, np.ndarray) and not (isinstance(value, list) and all(type(each) is int for each in value)):
        raise TypeError("expected integers in arrays or flat lists")
    return np.asarray(value)


def _images(path: Path, pixels: npt.NDArray[np.uint8], fine: npt.NDArray[Any], coarse: npt.NDArray[Any]) -> Images:
    for labels, names in ((fine, CLASSES), (coarse, SUPERCLASSES)):
        if labels.min() < 0 or labels.max() >= len(names):
            worst = labels.min() if labels.min() < 0 else labels.max()
            raise UserError(f"{path} has the label {worst} where there are {len(names)} classes: {_AGAIN}")
    return Images(
        torch.from_numpy(np.array(pixels, order="C").reshape(-1, *_SHAPE)),
        torch.from_numpy(fine.astype(np.int64)),
        CLASSES,
        torch.from_numpy(coarse.astype(np.int64)),
        SUPERCLASSES,
    )
