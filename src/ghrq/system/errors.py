"""What goes wrong and is nobody's bug: a message without a traceback, with its exit code."""

import importlib
from types import ModuleType
from typing import Any


class UserError(ValueError):
    """A mistake in what was asked for. The message says what was given, what is expected, and the remedy."""

    exit_code = 2


class StoppedError(RuntimeError):
    """A run that ended early, its last good checkpoint intact. The message says why, and how to go on."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DivergedError(StoppedError):
    """Training came to a loss or to parameters that are not finite."""


def require(module: str, extra: str) -> Any:
    """Import ``module``; if its package is not installed, say which extra of ghrq brings it."""
    try:
        found: ModuleType = importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise UserError(f"this needs {package}, which is not installed: pip install 'ghrq[{extra}]'") from error
    return found
