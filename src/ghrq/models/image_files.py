"""Image files to files of codes (``.npz``) and back, for images of any size."""

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghrq.data.images import folder
from ghrq.data.npz import read_headers
from ghrq.models.image_tokenizer import ImageTokenizer, as_bytes, as_floats
from ghrq.nets.convolutional import STRIDE, grid_of
from ghrq.system import files
from ghrq.system.errors import UserError, require
from ghrq.system.inputs import InputFile
from ghrq.system.memory import check_room
from ghrq.system.progress import Progress

# Grid positions encoded or decoded at a time: a large image is processed in strips, because the networks need about a
# hundred times its size in memory. Each strip has a margin of so many grid rows above and below, the networks' whole
# receptive field.
_STRIP, _MARGIN = 2**16, 2


# Most bytes of the name of a tokenizer in a file of codes.
_NAME_BYTES = 1024


class ImageCodes(NamedTuple):
    """The content of a file of codes."""

    codes: Tensor
    """``(h, w, num_stages)`` int64."""
    size: tuple[int, int]
    """Height and width of the image."""


class Encoded(NamedTuple):
    """The codes of an image, and what they lose of it."""

    content: ImageCodes
    error: float
    """The mean squared error of the image of the codes, pixels from 0 to 1."""


def encode_file(tokenizer: ImageTokenizer, image: Path, out: Path, progress: Progress) -> Encoded:
    """Write the codes of an image of any size to an ``.npz`` file, and turn them back to measure the error."""
    pixels = folder.read_image(image, None, tokenizer.encoder.channels)
    parts = []
    for strip in _strips(grid_of(*pixels.shape[1:]), progress):
        seen = pixels[:, STRIDE * strip.low : STRIDE * strip.high]
        parts.append(tokenizer.encode(seen.unsqueeze(0))[0, strip.start - strip.low : strip.stop - strip.low])
    found = ImageCodes(torch.cat(parts), (pixels.shape[1], pixels.shape[2]))
    error, row = 0.0, 0
    for decoded in _decoded(tokenizer, found, None, progress):
        given = as_floats(pixels[:, row : row + decoded.shape[1]])
        error += float((decoded - given).double().square().sum())
        row += decoded.shape[1]
    written = io.BytesIO()
    np.savez_compressed(
        written,
        codes=found.codes.to(torch.int32).numpy(),
        size=np.array(found.size),
        tokenizer=np.array(fingerprint(tokenizer)),
    )
    with files.telling(out):
        files.write(out, written.getvalue())
    return Encoded(found, error / pixels.numel())


def decode_file(
    tokenizer: ImageTokenizer, path: Path, out: Path, progress: Progress, depth: int | None = None
) -> ImageCodes:
    """Write the image of the first ``depth`` codes (by default all) of a file, in the format of ``out``'s suffix."""
    stages = tokenizer.quantizer.num_stages
    found = _read(path, tokenizer)
    if depth is not None and not 1 <= depth <= stages:
        raise UserError(f"--depth {depth}: expected 1 to {stages}, the codes of a position")
    pixels = torch.cat([as_bytes(strip) for strip in _decoded(tokenizer, found, depth, progress)], dim=1)
    values = pixels.permute(1, 2, 0).squeeze(-1).numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()
    image, written = require("PIL.Image", "image").fromarray(np.ascontiguousarray(values)), io.BytesIO()
    try:
        image.save(written, format=require("PIL.Image", "image").registered_extensions()[out.suffix.lower()])
    except (KeyError, OSError, ValueError) as error:
        raise UserError(f"cannot write {out} ({error}): give --out a name that ends in .png") from error
    with files.telling(out):
        files.write(out, written.getvalue())
    return found


def _decoded(tokenizer: ImageTokenizer, found: ImageCodes, depth: int | None, progress: Progress) -> Iterator[Tensor]:
    """The image of the first ``depth`` codes, floats from 0 to 1, in strips ``(channels, rows, width)``."""
    height, width = found.size
    for strip in _strips(grid_of(height, width), progress):
        rows = min(height, STRIDE * strip.high) - STRIDE * strip.low
        seen = tokenizer.decode(found.codes[None, strip.low : strip.high, :, :depth], (rows, width))[0]
        yield seen[:, STRIDE * (strip.start - strip.low) : STRIDE * (strip.stop - strip.low)]


class _Strip(NamedTuple):
    """Rows of a grid from ``start`` to ``stop``, with margins from ``low`` to ``high``."""

    start: int
    stop: int
    low: int
    high: int


def _strips(grid: tuple[int, int], progress: Progress) -> Iterator[_Strip]:
    """The rows of a grid in strips, with a progress bar if it takes long."""
    height, width = grid
    rows = max(1, _STRIP // width)
    with progress.patient_bar("strips", -(-height // rows)) as bar:
        for start in range(0, height, rows):
            stop = min(start + rows, height)
            yield _Strip(start, stop, max(0, start - _MARGIN), min(height, stop + _MARGIN))
            bar.advance()


def _read(path: Path, tokenizer: ImageTokenizer) -> ImageCodes:
    """Read and check a file that :func:`encode_file` wrote with the same tokenizer. Headers are checked before data."""
    rq, remedy = tokenizer.quantizer, "encode the image again"
    with InputFile(path).reading("a file of codes", remedy):
        if not zipfile.is_zipfile(path):
            raise ValueError("damaged, or cut off" if path.suffix == ".npz" else "no .npz")
        claimed = read_headers(path)
        missing = {"codes", "size", "tokenizer"} - set(claimed)
        if missing:
            raise ValueError(f"it has no {min(missing)}")
        if claimed["codes"].dtype.kind not in "iu" or claimed["size"].dtype.kind not in "iu":
            raise ValueError("codes and size are not whole numbers")
        if claimed["size"].shape != (2,):
            raise ValueError(f"size is not height and width, but of shape {claimed['size'].shape}")
        if claimed["tokenizer"].dtype.kind != "U" or claimed["tokenizer"].nbytes > _NAME_BYTES:
            raise ValueError("it does not name its tokenizer")
        with np.load(path, allow_pickle=False) as content:
            height, width = (int(side) for side in content["size"])
            if str(content["tokenizer"]) != fingerprint(tokenizer):
                raise UserError(
                    f"{path} was encoded by another tokenizer, or before this one was trained on: encode it again"
                )
            shape = (*grid_of(height, width), rq.num_stages)
            if min(height, width) < 1 or claimed["codes"].shape != shape:
                raise UserError(
                    f"{path} is damaged: an image of {width} × {height} has codes of shape {shape}, "
                    f"these have {claimed['codes'].shape}: encode it again"
                )
            # The codes as they are and as int64; some copies of the decoded image.
            needed = claimed["codes"].nbytes + 8 * math.prod(shape) + 3 * tokenizer.encoder.channels * height * width
            check_room(needed, f"{path}: its image of {width} × {height}", "decode it on a machine with more memory")
            codes = content["codes"]
    outside = (codes < 0) | (codes >= np.array(rq.sizes))
    if outside.any():
        wrong, most = codes[outside][0], rq.sizes[int(outside.nonzero()[-1][0])] - 1
        raise UserError(f"{path} is damaged: the code {wrong} is not from 0 to {most}: encode it again")
    return ImageCodes(torch.from_numpy(codes.astype(np.int64)), (height, width))


def fingerprint(tokenizer: ImageTokenizer) -> str:
    """A checksum of the codebooks: codes belong to one set of codebooks."""
    return hashlib.sha256(tokenizer.quantizer.codebooks.detach().cpu().numpy()).hexdigest()[:16]
