"""The command for search on codes. Heavy imports are inside it."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ghrq.cli.options import Force
from ghrq.cli.tables import (
    BadRows,
    Column,
    IdColumn,
    Ids,
    TokenizerFolder,
    errors_name,
    load_tokenizer,
    open_items,
    print_facts,
    unchecked,
)
from ghrq.data.outputs import check_output
from ghrq.report.console import columns
from ghrq.system.errors import UserError
from ghrq.system.progress import make_progress

if TYPE_CHECKING:
    from ghrq.search import CodeIndex

# Rows that are printed where no file is asked for.
_SHOWN = 100


def search(
    tokenizer: TokenizerFolder,
    ids: Ids,
    queries: Annotated[
        Path | None, typer.Argument(help="Vectors to search for: .parquet (or a folder of parts), .npy, .csv, .jsonl.")
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(metavar="ITEM", help="Search for items like this one; can be repeated."),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Items for each query.")] = 10,
    probes: Annotated[
        int | None,
        typer.Option(min=1, help="Lists of items to look at, by default a sixteenth of them: more are more precise."),
    ] = None,
    rerank: Annotated[
        Path | None, typer.Option(metavar="ITEMS", help="A table of the items: rank the best by its vectors.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File for what is found: .parquet, .csv or .jsonl; else it is printed."),
    ] = None,
    column: Column = None,
    id_column: IdColumn = None,
    on_bad: BadRows = "stop",
    force: Force = False,
) -> None:
    """Find the nearest items of vectors, or of an item, from the IDs alone. Columns are those of the fit if not given.

    Distances are squared Euclidean ones, from the query to the decoded ID; with --rerank, to the item's own vector.

    \b
    Examples:
      ghrq search tok/ ids.parquet queries.parquet --k 10 --out found.parquet
      ghrq search tok/ ids.parquet --like B000052YPF
      ghrq search tok/ ids.parquet queries.npy --probes 32 --rerank items.parquet --out found.csv
    """  # noqa: D301
    from ghrq.data.tables import match_items, open_codes
    from ghrq.search import CodeIndex, results
    from ghrq.tokenizer import bulk

    if (queries is None) == (not like):
        raise UserError("nothing to search for, or two things: name a table of vectors, or --like ITEM")
    if out is not None:
        given = [path for path in (ids, queries, rerank) if path is not None]
        check_output(out, results.FORMATS, given, replace=force)
    model, codes, progress = load_tokenizer(tokenizer), open_codes(ids), make_progress()
    with errors_name(ids), ExitStack() as stack:
        index = CodeIndex(model, ids)
        vectors = None
        if rerank is not None:
            table = open_items(tokenizer, model, rerank, column, id_column, on_bad=on_bad)
            order = match_items(codes, table, progress=progress).order
            vectors = stack.enter_context(bulk.all_vectors(table, (out or Path()).parent, progress, order))
        if like:
            found = results.as_table(*_like(index, like, k, probes, vectors, ids))
        else:
            assert queries is not None
            asked = open_items(tokenizer, model, queries, column, id_column, on_bad=on_bad)
            bulk.check_width(asked, model)
            names, points = _all(asked, progress)
            found = results.as_table(names, index.search(points, k, probes, rerank=vectors))
    if out is not None:
        results.write(out, found)
        rows = f"{len(found):,}"
        print_facts(
            ("items", f"{len(index):,}"), ("found", f"{rows} rows"), *unchecked(codes), ("written to", str(out))
        )
        return
    shown = found.slice(0, _SHOWN).to_pylist()
    print(columns([tuple(found.column_names), *(_told(row) for row in shown)]))
    if len(found) > _SHOWN:
        print(f"and {len(found) - _SHOWN:,} rows more: --out found.parquet writes all")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(search)


def _like(index: "CodeIndex", items: list[str], k: int, probes: int | None, vectors: Any, ids: Path) -> Any:
    """The ids of the items, in the type that the index has, and what is like them."""
    import pyarrow as pa

    try:
        names = pa.array(items).cast(index.lists.names.type)
    except pa.ArrowInvalid as error:
        raise UserError(f"--like {items[0]}: the ids are whole numbers such as {index.lists.names[0]}") from error
    try:
        return names, index.like(names, k, probes, rerank=vectors)
    except UserError as error:
        raise UserError(f"{ids}: --like: {error}") from error


def _all(table: Any, progress: Any) -> Any:
    """Ids and vectors of all rows of a table of queries."""
    import numpy as np
    import pyarrow as pa

    with progress.patient_bar("reading", table.rows, "rows") as bar:
        parts = []
        for batch in table.batches(2**16):
            parts.append(batch)
            bar.advance(len(batch.vectors))
    names, vectors = zip(*parts, strict=True)
    return pa.concat_arrays(names), np.concatenate(vectors)


def _told(row: dict[str, Any]) -> tuple[str, ...]:
    return str(row["query"]), str(row["rank"]), str(row["item"]), f"{row['distance']:.4g}"
