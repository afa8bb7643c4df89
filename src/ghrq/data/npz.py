"""Arrays of an ``.npz`` file that is not trusted: what it claims is looked at before memory is taken."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ghrq.system.memory import check_room
from ghrq.system.unpacking import check_unpacked


class ArrayHeader(NamedTuple):
    """What a file says of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of the array in memory."""
        size = self.dtype.itemsize
        for side in self.shape:
            size *= side  # of Python, which does not overflow
        return size


def read_headers(path: Path) -> dict[str, ArrayHeader]:
    """Name, shape and type of the arrays. One that is too large for its file or the memory is an error.

    That is a :class:`UserError`; everything else that is wrong raises whatever numpy and zipfile raise.
    """
    found = {}
    with zipfile.ZipFile(path) as content:
        for member in content.infolist():
            with content.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"{member.filename} has version {version} of the array format")
                old = version == (1, 0)
                read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                header = ArrayHeader(shape, dtype)
                if min(shape, default=0) < 0 or header.nbytes != member.file_size - file.tell():
                    raise ValueError(f"{member.filename} has not as many bytes as an array of shape {shape}")
            name = member.filename.removesuffix(".npy")
            check_unpacked(path, path.stat().st_size, header.nbytes)
            check_room(header.nbytes, f"{path}: the array {name!r}", "use a machine with more memory")
            found[name] = header
    return found
