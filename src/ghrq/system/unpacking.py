"""Packed files that are not trusted: a small one may claim, or really unpack to, more than the memory holds.

One rule for all of them: up to 256 MiB are unpacked freely, more only up to 50 times the size of the packed file.
Photos, digits and codes have less than half of that; what has more is nearly all zeros.
"""

from pathlib import Path
from typing import IO, Any

from ghrq.system.errors import UserError

FREELY, TIMES = 2**28, 50


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Raise an error if a file of ``packed`` bytes would become ``unpacked`` bytes, and these are too many."""
    most = max(FREELY, TIMES * packed)
    if unpacked > most:
        raise UserError(
            f"{path} would unpack to {unpacked / 2**20:,.0f} MiB or more, {unpacked // max(packed, 1):,} times its "
            f"size, and {most / 2**20:,.0f} MiB is the limit: it is damaged or made to fill the memory; make it smaller"
        )


class LimitedReader:
    """An open file, of ``packed`` bytes on the disk, that is read no further than :func:`check_unpacked` allows.

    What it claims to hold is not believed: no more memory is taken than there are bytes.
    """

    def __init__(self, file: IO[bytes] | Any, path: Path, packed: int) -> None:
        self._file, self._path, self._packed = file, path, packed
        self._left, self._read = max(FREELY, TIMES * packed), 0

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes."""
        return self._count(self._file.read(min(size, self._left + 1)))

    def readline(self) -> bytes:
        """Up to the next end of a line."""
        return self._count(self._file.readline(self._left + 1))

    def _count(self, content: bytes) -> bytes:
        self._left, self._read = self._left - len(content), self._read + len(content)
        check_unpacked(self._path, self._packed, self._read)
        return content
