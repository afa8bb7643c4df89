"""Errors that the user can act on: the command line prints their message without a traceback."""

import difflib
import importlib
import shlex
import sysconfig
import traceback
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any


class UserError(ValueError):
    """A mistake in the input. The message says what was given, what is expected, and the remedy."""

    exit_code = 2


class EmptyTableError(UserError):
    """A table without rows."""


class StoppedError(RuntimeError):
    """A run that ended early, its last good checkpoint intact. The message says why, and how to go on."""

    exit_code = 1

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class DivergedError(StoppedError):
    """The loss or the parameters are not finite any more."""

    exit_code = 3


def require(module: str, extra: str) -> Any:
    """Import ``module``; if its package is not installed, the error names the extra of ghrq that installs it."""
    try:
        found: ModuleType = importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise UserError(f"this needs {package}, which is not installed: pip install 'ghrq[{extra}]'") from error
    return found


def did_you_mean(given: str, known: Collection[str], otherwise: str, cutoff: float = 0.6) -> str:
    """A hint for an unknown name: the most similar of the known ones, or ``otherwise``."""
    near = difflib.get_close_matches(given, known, n=1, cutoff=cutoff)
    return f"did you mean '{near[0]}'?" if near else otherwise


def counted(count: int, thing: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def shell(*words: str | Path) -> str:
    """A command to copy into a shell: words are quoted, and a path that begins with a dash is no option."""
    return shlex.join(f"./{word}" if isinstance(word, Path) and str(word)[0] == "-" else str(word) for word in words)


def user_frame(error: BaseException) -> str:
    """Where in the user's own files ``error`` arose, as in ``toy.py line 12: ``; empty if nowhere."""
    others = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    own = [f"{Path(frame.filename).name} line {frame.lineno}: " for frame in frames if frame.filename.endswith(".py")]
    return own[-1] if own else ""
