"""What the commands for tables of embeddings and files of IDs share: arguments, opening, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq.report.console import columns
from ghrq.system.errors import UserError
from ghrq.system.files import restore
from ghrq.system.progress import Progress, make_progress

if TYPE_CHECKING:
    from ghrq.data.tables import OnBad, VectorTable
    from ghrq.tokenizer import Tokenizer

TABLE_FILE = "table.json"
"""In the folder of a tokenizer: the columns it was fitted on."""
IDS_FILE = "ids.parquet"
"""In the folder of a tokenizer: the IDs of the items it was fitted on."""

Items = Annotated[Path, typer.Argument(help="Embeddings: .parquet (or a folder of parts), .npy, .csv, .jsonl (.gz).")]
TokenizerFolder = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="A folder that 'ghrq fit' wrote.")]
Ids = Annotated[Path, typer.Argument(help="IDs that 'ghrq encode' wrote.")]
Column = Annotated[
    str | None,
    typer.Option(help="The vectors: a column of lists, or columns of numbers as a,b,c or a pattern 'emb_*'."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="The column of the ids, text or whole numbers; '' numbers the rows.")
]
BadRows = Annotated[
    Literal["stop", "skip"],
    typer.Option(
        help="A row without an id or with missing or infinite numbers: 'stop', or 'skip' it; 'fit' and 'encode' list "
        "such rows in a file."
    ),
]


def found_tokenizer(name: Path) -> Path:
    """The folder ``name``, or that of the tokenizer of this name that comes with ghrq."""
    from ghrq.data.shipped import FOLDER

    restore(name)
    shipped = FOLDER / name.name
    return shipped if not name.exists() and len(name.parts) == 1 and shipped.is_dir() else name


def load_tokenizer(folder: Path) -> "Tokenizer":
    """The tokenizer in ``folder``, as 'ghrq fit' wrote it, or the one of this name that comes with ghrq."""
    from ghrq.tokenizer import Tokenizer

    folder = found_tokenizer(folder)
    if not folder.is_dir():
        if folder.exists():
            raise UserError(
                f"{folder} is a file, not a tokenizer: name the folder of the tokenizer first, then the table"
            )
        raise UserError(f"there is no tokenizer {folder}: 'ghrq fit' makes one")
    with errors_name(folder):
        return Tokenizer.load(folder)


def open_items(
    folder: Path,
    tokenizer: "Tokenizer",
    items: Path,
    column: str | None,
    id_column: str | None,
    labels: str | None = None,
    on_bad: "OnBad" = "stop",
    title: str | None = None,
) -> "VectorTable":
    """The table with the given columns, or else those of the fit."""
    from ghrq.data.tables import open_table
    from ghrq.tokenizer import table_file

    fitted = table_file.Columns() if items.suffix == ".npy" else table_file.read(folder / TABLE_FILE, tokenizer)
    chosen = fitted.id if id_column is None else id_column or None
    progress = make_progress()
    return open_table(
        items, column or fitted.column, chosen, labels, on_bad=on_bad, progress=progress, title_column=title
    )


def mention_ids(table: "VectorTable", id_column: str | None, progress: Progress) -> None:
    """Say that row numbers became the ids although there is a column that looks like ids; ``--id ''`` asks for it."""
    likely = table.likely_ids() if id_column is None and not table.has_ids else None
    if likely is not None:
        progress.note(f"note: the ids are row numbers, column {likely!r} is not used: --id {quote(likely)} uses it")


def unchecked(codes: "VectorTable") -> list[tuple[str, str]]:
    """What to say of codes that do not say which tokenizer made them."""
    unknown = "tokenizer" not in codes.manifest
    text = f"whether this tokenizer made {codes.path}: only Parquet files of 'ghrq encode' say which one did"
    return [("not checked", text)] if unknown else []


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Turn a ValueError of the library into one line that names ``path``."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        text = " ".join(str(error).split())
        raise UserError(text if str(path) in text else f"{path}: {text}") from error


def print_facts(*rows: tuple[str, str]) -> None:
    """Names and values, in two columns."""
    print(columns(rows))


def match_ids(codes: "VectorTable", other: "VectorTable", progress: Progress) -> Any:
    """The rows of ``other``, the IDs of another tokenizer, in the order of ``codes``; ``...`` are all as they are."""
    from ghrq.data.tables import match_items

    order = match_items(codes, other, "encode the same table with both tokenizers", progress).order
    return ... if order is None else order
