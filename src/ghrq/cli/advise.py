"""``ghrq advise``: which levels and sizes for a table of embeddings. Heavy imports are inside."""

from typing import Annotated

import typer

from ghrq.cli.items import Kind
from ghrq.cli.tables import BadRows, Column, IdColumn, Items, errors_name
from ghrq.report.console import columns
from ghrq.system.errors import UserError, shell
from ghrq.system.progress import make_progress


def advise(
    items: Items,
    max_ids: Annotated[
        int | None,
        typer.Option(min=1, help="The most items that the IDs have to be enough for; by default the rows."),
    ] = None,
    column: Column = None,
    id_column: IdColumn = None,
    kind: Annotated[Kind, typer.Option(help="The quantizer.")] = "ghrq",
    balance: Annotated[bool, typer.Option(help="Try balanced codebooks, as 'ghrq fit --balance' makes them.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample and the fits.")] = 0,
    on_bad: BadRows = "stop",
) -> None:
    """Recommend levels and sizes for the IDs of a table, and say why. Tries a few on a sample; takes minutes.

    \b
    Examples:
      ghrq advise items.parquet
      ghrq advise items.parquet --column embedding --max-ids 10000000
    """  # noqa: D301
    from ghrq.data.tables import open_table
    from ghrq.tokenizer import bulk
    from ghrq.tokenizer.advice import advise as found_by
    from ghrq.tokenizer.advice import told

    progress = make_progress()
    table = open_table(items, column, id_column or None, on_bad=on_bad, progress=progress)
    if table.rows < 16:
        raise UserError(f"{items} has {table.rows} rows, too few to judge IDs by: give at least 16")
    vectors = bulk.sample(table, 2, seed, progress)
    wanted = max(table.rows, max_ids or 0)
    if max_ids is not None and max_ids < table.rows:
        progress.note(
            f"note: --max-ids {max_ids:,} is less than the {table.rows:,} rows of {items}, which count instead"
        )
    with errors_name(items):
        advice = found_by(vectors, wanted, kind=kind, balance=balance, seed=seed, progress=progress)
    best = advice.best
    heading = ("levels and sizes", "bits", "IDs", "tokens", "error", "distinct", "collisions", f"at {wanted:,}", "")
    rows = [
        (
            told(each.sizes),
            f"{each.bits:.0f}",
            f"{each.ids:,}",
            f"{each.tokens:,}",
            f"{each.error:.3f}",
            f"{each.distinct:,}",
            f"{each.collisions:.1%}",
            f"{each.expected:.1%}",
            "<- this" if each is best else "",
        )
        for each in advice.candidates
    ]
    print(columns([heading, *rows], numbers=True))
    print(f"\nrecommended: {told(best.sizes)}, {best.ids:,} IDs.")
    for sentence in advice.reasons():
        print(f"  {sentence}")
    sizes = str(best.sizes[0]) if len(set(best.sizes)) == 1 else ",".join(map(str, best.sizes))
    given = ("--stages", str(len(best.sizes)), "--codes", sizes, *(("--balance",) if balance else ()))
    id_name = id_column or (table.likely_ids() if id_column is None else None)  # '' asks for row numbers
    names = [*(("--column", column) if column else ()), *(("--id", id_name) if id_name else ())]
    other = [*(("--kind", kind) if kind != "ghrq" else ()), *(("--on-bad", on_bad) if on_bad != "stop" else ())]
    print(f"\nnext: {shell('ghrq', 'fit', items, *names, *given, *other, '--out', 'tok/')}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(advise)
