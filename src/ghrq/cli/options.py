"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

Force = Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")]


def out_option(help: str) -> Any:
    """The option ``--out``. An empty value, such as from an unset shell variable, is an error."""
    return typer.Option(metavar="PATH", parser=_non_empty, help=help)


def sizes_option(help: str) -> Any:
    """An option for the number of codes of a stage: one for all, ``256``, or one for each, ``64,256,1024``."""
    return typer.Option(metavar="CODES", parser=_sizes, help=help)


def _sizes(text: str) -> int | list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < (1 if len(sizes) == 1 else 2):
        raise typer.BadParameter(
            f"expected a number of codes such as 256, or one for each stage, 64,256,1024: {text!r}"
        )
    return sizes[0] if len(sizes) == 1 else sizes


def _non_empty(text: str) -> Path:
    if not text:
        raise typer.BadParameter("it is empty: name a file or a folder")
    return Path(text)
