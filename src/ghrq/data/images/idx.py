"""The IDX format of MNIST: two zero bytes, the type, the number of dimensions, each as a big-endian int32, the data."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from ghrq.system.errors import UserError

_BYTES = 0x08  # the type uint8, the only one that images and labels have
_AGAIN = "it is damaged or another file: get it again"


def read(path: Path, dimensions: int) -> Tensor:
    """A file of bytes, plain or gzip, as a uint8 tensor of ``dimensions`` dimensions."""
    try:
        content = path.read_bytes()
        # By its first bytes, not by its name: browsers unpack a file but keep the .gz.
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}): {_AGAIN}") from error
    start = 4 + 4 * dimensions
    magic = bytes((0, 0, _BYTES, dimensions))
    if not content.startswith(magic):
        raise UserError(f"{path} begins with {content[:4].hex()!r}, an IDX file of it with {magic.hex()!r}: {_AGAIN}")
    if len(content) < start:
        raise UserError(f"{path} ends within its header, after {len(content)} bytes: {_AGAIN}")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if math.prod(shape) == 0:
        raise UserError(f"{path} has the shape {shape}, with nothing in it: {_AGAIN}")
    if len(content) != start + math.prod(shape):
        given = len(content) - start
        raise UserError(f"{path} has {given} bytes of data, its shape {shape} needs {math.prod(shape)}: {_AGAIN}")
    # A bytearray, because torch needs writable memory.
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).view(shape)
