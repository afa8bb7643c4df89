"""Options that several commands share."""

from pathlib import Path
from typing import Any

import typer


def out_option(help: str) -> Any:
    """The option ``--out``. An empty value, such as from an unset shell variable, is an error."""
    return typer.Option(metavar="PATH", parser=_non_empty, help=help)


def _non_empty(text: str) -> Path:
    if not text:
        raise typer.BadParameter("it is empty: name a file or a folder")
    return Path(text)
