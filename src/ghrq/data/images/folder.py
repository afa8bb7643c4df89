"""A folder of images of any format and size, read by Pillow."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.images.image_set import Images, Split
from ghrq.system.errors import UserError, require
from ghrq.system.progress import make_progress
from ghrq.system.unpacking import check_unpacked

TEST_SHARE = 0.1
_SEED = "ghrq"
# Formats whose grey has at most 16 bits, even where Pillow uses 32.
_SIXTEEN_BITS = {"PNG", "PPM"}
# How many unreadable images an error names.
_NAMED = 20
_GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F"}


def load_folder(split: Split, source: str, size: int) -> Images:
    """The images of a folder and its subfolders as squares of ``size``, grey if all of them are, else in colour.

    The direct subfolders, if any, are the classes; else all images have one class. A tenth, at least one, is the test
    split. The split depends only on the paths within the folder, so it is the same on every machine, and a new image
    moves few others to the other split.
    """
    if not source:
        raise UserError("the data set 'folder' needs a source: name a folder with images, --set data.source=FOLDER")
    root = Path(source).expanduser()
    if not root.is_dir():
        found = f"{str(root)!r} is a file" if root.exists() else f"there is no folder {str(root)!r}"
        raise UserError(f"{found}: name a folder with images as source (data.source of a recipe)")
    names = _image_names(root)
    classes = _classes(root, names)
    channels = 1 if all(_is_grey(root / name) for name in names) else 3
    chosen = _split(names, split)
    pixels = torch.empty((len(chosen), channels, size, size), dtype=torch.uint8)
    with make_progress().patient_bar(f"reading {root.name}", len(chosen), unit="images") as bar:
        for row, name in enumerate(chosen):
            try:
                pixels[row] = read_image(root / name, size, channels)
            except UserError as error:
                raise (_all_unreadable(root, names, size) or error) from None
            bar.advance()
    place = {label: row for row, label in enumerate(classes)}
    labels = [place[name.split("/")[0]] if "/" in name else 0 for name in chosen]
    return Images(pixels, torch.tensor(labels), classes)


def read_image(path: str | Path, size: int | None, channels: int) -> Tensor:
    """One image as uint8 ``(channels, size, size)``, its central square resized; 1 channel is grey, 3 are colour.

    Without a ``size`` it is not resized: ``(channels, height, width)``.
    """
    image_module, operations = require("PIL.Image", "image"), require("PIL.ImageOps", "image")
    if (size is not None and size < 1) or channels not in (1, 3):
        raise UserError(f"images of size {size} with {channels} channels: expected a size of 1 or more, and 1 or 3")
    try:
        with _opened(path) as file:
            # Pillow takes 4 bytes a pixel.
            check_unpacked(Path(path), Path(path).stat().st_size, 4 * file.width * file.height)
            kind, mode = file.format, "L" if channels == 1 else "RGB"
            operations.exif_transpose(file, in_place=True)
            image = _eight_bit(file, kind)
            image = image if image.mode == mode else image.convert(mode)  # without a copy: images may be large
            if size is not None:
                image = operations.fit(image, (size, size), method=image_module.Resampling.LANCZOS)
            values: npt.NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
    except UserError:
        raise
    except Exception as error:  # each of Pillow's formats raises its own exceptions for a damaged file
        raise _unreadable(path, error) from error
    planes = values.reshape(*values.shape[:2], channels).transpose(2, 0, 1)
    return torch.from_numpy(np.array(planes, order="C"))


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """An open image, without Pillow's warning of large ones; it raises an error at twice that size."""
    image_module = require("PIL.Image", "image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
        with image_module.open(path) as file:
            yield file


def _eight_bit(image: Any, kind: str | None) -> Any:
    """Scale 16-bit grey to 8 bits, which Pillow would clip, and put transparent images on white.

    ``kind`` is the file's format.
    """
    image_module = require("PIL.Image", "image")
    if image.mode == "F":
        raise ValueError(
            "its pixels are floating point numbers, so the value of white is unknown; save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        if image.mode == "I" and kind not in _SIXTEEN_BITS:
            raise ValueError("its pixels have 32 bits, so the value of white is unknown; save it with 8 or 16 bits")
        return image_module.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return image_module.alpha_composite(image_module.new("RGBA", layer.size, "white"), layer)
    return image


def _is_grey(path: Path) -> bool:
    try:
        with _opened(path) as file:
            if file.mode != "P":
                return file.mode in _GREY
            palette = np.array(file.getpalette("RGB")).reshape(-1, 3)
            return bool((palette == palette[:, :1]).all())
    except Exception:  # reading it later raises the error, and names all others
        return True


def _unreadable(path: str | Path, error: Exception) -> UserError:
    if not Path(path).is_file():
        if Path(path).is_dir():
            return UserError(f"{path} is a folder: name the images in it, such as {path}/*")
        return UserError(f"there is no image {path}: name a file")
    if isinstance(error, require("PIL.Image", "image").DecompressionBombError):
        return UserError(f"{path} has too many pixels ({error}): scale it down")
    reason = " ".join(str(error).replace(f" {str(path)!r}", "").split()) or type(error).__name__
    return UserError(f"{path} cannot be read as an image ({reason}): repair or remove it")


def _all_unreadable(root: Path, names: list[str], size: int) -> UserError | None:
    """The first error in full, with the names of all other unreadable images, so that all can be repaired at once."""
    unreadable: dict[str, UserError] = {}
    with make_progress().patient_bar(f"checking all images in {root.name}", len(names)) as bar:
        for name in names:
            try:
                read_image(root / name, size, 3)
            except UserError as error:
                unreadable[name] = error
            bar.advance()
    if not unreadable:  # it was repaired in the meantime
        return None
    first, *others = unreadable
    if not others:
        return unreadable[first]
    shown = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
    return UserError(f"{unreadable[first]}; {len(others)} more cannot be read: {shown}")


def _image_names(root: Path) -> list[str]:
    """Paths below ``root``, with slashes, of the files with an extension that Pillow reads, without hidden ones."""
    image_module = require("PIL.Image", "image")
    known = {extension for extension, kind in image_module.registered_extensions().items() if kind in image_module.OPEN}
    files = (path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in known and path.is_file())
    names = sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts))
    if len(names) < 2:
        raise UserError(f"too few images ({len(names)}) in {root}, training and testing need two: name another folder")
    return names


def _classes(root: Path, names: list[str]) -> tuple[str, ...]:
    inside = {name.split("/")[0] for name in names if "/" in name}
    beside = [name for name in names if "/" not in name]
    if inside and beside:
        raise UserError(
            f"{root / beside[0]} is beside subfolders with images, which are classes: move it into one of them"
        )
    return tuple(sorted(inside)) or (root.resolve().name,)


def _split(names: list[str], split: Split) -> list[str]:
    """The names of a split, sorted: those with the smallest hashes are for testing."""
    by_hash = sorted(names, key=lambda name: hashlib.sha256(f"{_SEED}/{name}".encode()).digest())
    count = max(1, round(TEST_SHARE * len(names)))
    return sorted(by_hash[:count] if split == "test" else by_hash[count:])
