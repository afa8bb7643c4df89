"""The IDX format of MNIST: two zero bytes, the type, the number of dimensions, each as a big-endian int32, the data."""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from ghrq.system.errors import UserError
from ghrq.system.unpacking import LimitedReader, check_unpacked

_BYTES = 0x08  # the type uint8, the only one that images and labels have
_AGAIN = "it is damaged or another file: get it again"


def read(path: Path, dimensions: int) -> Tensor:
    """A file of bytes, plain or gzip, as a uint8 tensor of ``dimensions`` dimensions."""
    try:
        with path.open("rb") as file, gzip.open(file) as unpacked:
            packed = os.fstat(file.fileno()).st_size
            # By its first bytes, not by its name: browsers unpack a file but keep the .gz.
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return _read(LimitedReader(unpacked if is_gzip else file, path, packed), path, packed, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}): {_AGAIN}") from error


def _read(file: LimitedReader, path: Path, packed: int, dimensions: int) -> Tensor:
    start = 4 + 4 * dimensions
    header, magic = file.read(start), bytes((0, 0, _BYTES, dimensions))
    if not header.startswith(magic):
        raise UserError(f"{path} begins with {header[:4].hex()!r}, an IDX file of it with {magic.hex()!r}: {_AGAIN}")
    if len(header) < start:
        raise UserError(f"{path} ends within its header, after {len(header)} bytes: {_AGAIN}")
    shape = struct.unpack_from(f">{dimensions}I", header, 4)
    size = math.prod(shape)
    if size == 0:
        raise UserError(f"{path} has the shape {shape}, with nothing in it: {_AGAIN}")
    check_unpacked(path, packed, size)
    content = bytearray(file.read(size + 1))  # torch needs writable memory
    if len(content) != size:
        least = "at least " if len(content) > size else ""
        raise UserError(f"{path} has {least}{len(content)} bytes of data, its shape {shape} needs {size}: {_AGAIN}")
    return torch.frombuffer(content, dtype=torch.uint8).view(shape)
