"""Input files, which are not trusted: looked at before they are opened, and again while they are read."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ghrq.system.errors import UserError

_DAMAGED = "it is damaged or cut off: write or copy it again"

# What an input may be that is no regular file.
_OTHERS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class InputFile:
    """A regular file as it was at first sight. Anything else is an error: a pipe would block when it is opened.

    It can be pickled for processes that see the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = self._look()

    def check_unchanged(self) -> None:
        """Raise an error if the file was replaced or written to since the first sight."""
        if self._look() != self._seen:
            raise UserError(
                f"{self.path} was changed while it was read: run the command again when nothing writes to the file"
            )

    @contextmanager
    def reading(self, kind: str, remedy: str = _DAMAGED) -> Iterator[None]:
        """Around code that reads the file as ``kind``: any error of the reader becomes one line that names the file.

        The file is checked for changes before and afterwards.
        """
        self.check_unchanged()
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # numpy, zipfile and Arrow raise almost anything for a damaged file
            self.check_unchanged()
            raise UserError(f"{self.path} cannot be read as {kind} ({one_line(error)}): {remedy}") from error
        self.check_unchanged()

    def _look(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self.path)
        except FileNotFoundError as error:
            raise UserError(f"there is no file {self.path}: check the name") from error
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            raise UserError(
                f"cannot read {self.path} ({one_line(error)}): check the name and its permissions"
            ) from error
        for is_kind, called in _OTHERS:
            if is_kind(found.st_mode):
                raise UserError(f"{self.path} is {called}, expected a file: write the data to a file first")
        return found.st_ino, found.st_size, found.st_mtime_ns


def one_line(error: BaseException) -> str:
    """The message of an error in one line, or its type if it has none."""
    reason: Any = getattr(error, "strerror", None) or error
    return re.sub(r"\s+", " ", str(reason)).strip().rstrip(".") or type(error).__name__
