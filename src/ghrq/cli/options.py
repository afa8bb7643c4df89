"""Options that several commands have."""

from pathlib import Path
from typing import Any

import typer


def out_option(help: str) -> Any:
    """The option ``--out``, which must not be empty: an unset variable of the shell is not the folder one is in."""
    return typer.Option(metavar="PATH", parser=_named, help=help)


def _named(text: str) -> Path:
    if not text:
        raise typer.BadParameter("it is empty: name a file or a folder")
    return Path(text)
