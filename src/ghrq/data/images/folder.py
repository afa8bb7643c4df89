"""A folder of pictures of any format and size, read by Pillow."""

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

TEST_SHARE = 0.1
_SEED = "ghrq"
# Formats whose grey has at most 16 bits, also where Pillow holds it in 32.
_SIXTEEN_BITS = {"PNG", "PPM"}
# Broken pictures that an error names.
_NAMED = 20
_GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N", "F"}


def load_folder(split: Split, source: str, size: int) -> Images:
    """The pictures of a folder and its subfolders as squares of ``size``, grey if all of them are, else in colour.

    If there are subfolders, those directly in it are the classes, by name; else all pictures are of one class. A tenth,
    at least one, is the test split. Which ones follows from their paths within the folder, so it is the same on every
    machine, and a new picture moves few others from one split to the other.
    """
    if not source:
        raise UserError("the data set 'folder' needs a source: name a folder with pictures, --set data.source=FOLDER")
    root = Path(source).expanduser()
    if not root.is_dir():
        found = f"{str(root)!r} is a file" if root.exists() else f"there is no folder {str(root)!r}"
        raise UserError(f"{found}: name a folder with pictures as source (data.source of a recipe)")
    names = _pictures(root)
    classes = _classes(root, names)
    channels = 1 if all(_is_grey(root / name) for name in names) else 3
    chosen = _split(names, split)
    pixels = torch.empty((len(chosen), channels, size, size), dtype=torch.uint8)
    with make_progress().patient_bar(f"reading {root.name}", len(chosen), unit="pictures") as bar:
        for row, name in enumerate(chosen):
            try:
                pixels[row] = read_picture(root / name, size, channels)
            except UserError as error:
                raise (_all_broken(root, names, size) or error) from None
            bar.advance()
    place = {label: row for row, label in enumerate(classes)}
    labels = [place[name.split("/")[0]] if "/" in name else 0 for name in chosen]
    return Images(pixels, torch.tensor(labels), classes)


def read_picture(path: str | Path, size: int | None, channels: int) -> Tensor:
    """One picture as uint8 ``(channels, size, size)``, its middle square resized; 1 channel is grey, 3 are colour.

    Without a ``size`` it stays as it is: ``(channels, height, width)``.
    """
    image_module, operations = require("PIL.Image", "image"), require("PIL.ImageOps", "image")
    if (size is not None and size < 1) or channels not in (1, 3):
        raise UserError(f"pictures of size {size} with {channels} channels: expected a size of 1 or more, and 1 or 3")
    try:
        with _opened(path) as file:
            picture = _opaque(operations.exif_transpose(file), file.format).convert("L" if channels == 1 else "RGB")
            if size is not None:
                picture = operations.fit(picture, (size, size), method=image_module.Resampling.LANCZOS)
    except Exception as error:  # every format of Pillow fails in its own way on a damaged file
        raise _broken(path, error) from error
    values: npt.NDArray[np.uint8] = np.array(picture, dtype=np.uint8).reshape(picture.height, picture.width, channels)
    return torch.from_numpy(values).permute(2, 0, 1).contiguous()


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """A picture, without Pillow's warning of large ones; it refuses those twice as large as it warns of."""
    image_module = require("PIL.Image", "image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
        with image_module.open(path) as file:
            yield file


def _opaque(picture: Any, kind: str | None) -> Any:
    """Grey of 16 bits as 8 bits, which Pillow would clip; what shines through on white, not on the colour behind it.

    ``kind`` is the file's format.
    """
    image_module = require("PIL.Image", "image")
    if picture.mode == "F":
        raise ValueError(
            "its pixels are floating point numbers, so what is white is unknown; save it with 8 or 16 bits"
        )
    if picture.mode.startswith("I"):
        if picture.mode == "I" and kind not in _SIXTEEN_BITS:
            raise ValueError("its pixels have 32 bits, so what is white is unknown; save it with 8 or 16 bits")
        return image_module.fromarray((np.asarray(picture).astype(np.int64) >> 8).astype(np.uint8))
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        return image_module.alpha_composite(image_module.new("RGBA", layer.size, "white"), layer)
    return picture


def _is_grey(path: Path) -> bool:
    try:
        with _opened(path) as file:
            if file.mode != "P":
                return file.mode in _GREY
            palette = np.array(file.getpalette("RGB")).reshape(-1, 3)
            return bool((palette == palette[:, :1]).all())
    except Exception:  # every format of Pillow fails in its own way: reading it says how, and which others do
        return True


def _broken(path: str | Path, error: Exception) -> UserError:
    if not Path(path).is_file():
        if Path(path).is_dir():
            return UserError(f"{path} is a folder: name the pictures in it, such as {path}/*")
        return UserError(f"there is no picture {path}: name a file")
    if isinstance(error, require("PIL.Image", "image").DecompressionBombError):
        return UserError(f"{path} has too many pixels ({error}): scale it down")
    reason = " ".join(str(error).replace(f" {str(path)!r}", "").split()) or type(error).__name__
    return UserError(f"{path} cannot be read as a picture ({reason}): repair it or take it out")


def _all_broken(root: Path, names: list[str], size: int) -> UserError | None:
    """The first error in full, and the names of all other such pictures: so that they can be mended all at once."""
    broken: dict[str, UserError] = {}
    with make_progress().patient_bar(f"looking for broken pictures in {root.name}", len(names)) as bar:
        for name in names:
            try:
                read_picture(root / name, size, 3)
            except UserError as error:
                broken[name] = error
            bar.advance()
    if not broken:  # it has been mended in the meantime
        return None
    first, *others = broken
    if not others:
        return broken[first]
    shown = ", ".join(others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
    return UserError(f"{broken[first]}; {len(others)} more cannot be read, either: {shown}")


def _pictures(root: Path) -> list[str]:
    """Paths below ``root``, with slashes, of the files that Pillow knows by their extension, hidden ones left out."""
    image_module = require("PIL.Image", "image")
    known = {extension for extension, kind in image_module.registered_extensions().items() if kind in image_module.OPEN}
    files = (path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in known and path.is_file())
    names = sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts))
    if len(names) < 2:
        raise UserError(f"too few pictures ({len(names)}) in {root}, training and testing need two: name another")
    return names


def _classes(root: Path, names: list[str]) -> tuple[str, ...]:
    inside = {name.split("/")[0] for name in names if "/" in name}
    beside = [name for name in names if "/" not in name]
    if inside and beside:
        raise UserError(
            f"{root / beside[0]} lies beside subfolders with pictures, which are classes: move it into one of them"
        )
    return tuple(sorted(inside)) or (root.resolve().name,)


def _split(names: list[str], split: Split) -> list[str]:
    """The names of a split, in their order: those with the smallest hashes are for testing."""
    by_hash = sorted(names, key=lambda name: hashlib.sha256(f"{_SEED}/{name}".encode()).digest())
    count = max(1, round(TEST_SHARE * len(names)))
    return sorted(by_hash[:count] if split == "test" else by_hash[count:])
