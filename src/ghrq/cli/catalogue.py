"""Commands for files of IDs: extend, drift, remap, export. Heavy imports are inside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq.cli.options import Force, out_option
from ghrq.cli.tables import (
    IDS_FILE,
    BadRows,
    Column,
    IdColumn,
    Ids,
    TokenizerFolder,
    errors_name,
    load_tokenizer,
    open_items,
    print_facts,
)
from ghrq.data.outputs import check_output, check_page
from ghrq.report.console import columns
from ghrq.system.errors import EmptyTableError, UserError, counted, shell
from ghrq.system.progress import make_progress

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable

To = Literal["llm", "offsets", "cornac", "grid", "minionerec", "csv", "jsonl", "duckdb"]

_NewItems = Annotated[Path, typer.Argument(help="New embeddings: .parquet (or a folder of parts), .csv, .jsonl (.gz).")]


def extend(
    tokenizer: TokenizerFolder,
    ids: Ids,
    out: Annotated[Path, out_option("File for the larger catalogue, .parquet; it may be that of the IDs.")],
    new: Annotated[
        Path | None, typer.Argument(help="New embeddings: .parquet (or a folder of parts), .csv, .jsonl (.gz).")
    ] = None,
    retire: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Items to retire: a column of ids in .parquet, .csv or .jsonl, or a .txt."),
    ] = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Give IDs of items retired earlier again; who lost its ID is forgotten.")
    ] = False,
    column: Column = None,
    id_column: IdColumn = None,
    on_bad: BadRows = "stop",
) -> None:
    """Give new items IDs, while no published ID moves. Columns are those of the fit if not given.

    Items that are published keep their IDs, and retired ones come back to theirs. The same command twice changes
    nothing. A command that is stopped leaves the old file or the new one, and one at a time changes it.

    \b
    Examples:
      ghrq extend tok/ ids.parquet new.parquet --out ids.parquet
      ghrq extend tok/ ids.parquet new.parquet --retire gone.txt --out ids2.parquet
      ghrq extend tok/ ids.parquet --retire gone.csv --out ids.parquet
    """  # noqa: D301
    from ghrq.data.tables import open_codes, read_ids_column
    from ghrq.tokenizer import extend as growing

    given = [path for path in (new, retire) if path is not None]
    if not given:
        raise UserError(f"nothing to do for {ids}: name a table of new items, or --retire PATH")
    check_output(out, (".parquet",), given)
    model, progress, table = load_tokenizer(tokenizer), make_progress(), None
    if new is not None:
        try:
            table = open_items(tokenizer, model, new, column, id_column, on_bad=on_bad)
        except EmptyTableError:  # a day without new items must not stop a daily job
            progress.note(f"note: {new} has no rows: nothing is new")
    gone = None
    if retire is not None:
        gone = read_ids_column(retire, id_column or (open_codes(ids) if table is None else table).id_name)
    with errors_name(ids):
        done = growing.extend(model, ids, table, out, retire=gone, reuse=reuse, progress=progress)
    facts = [("items", f"{done.items:,}"), ("new", f"{done.new:,}")]
    optional = {
        "published already": done.known,
        "came back": done.back,
        "retired now": done.leaving,
        "retired in all": done.retired,
    }
    facts += [(label, f"{count:,}") for label, count in optional.items() if count]
    if table is not None and table.skipped:
        at, _, why = table.skipped[0]
        facts.append(("skipped", f"{counted(len(table.skipped), 'row')}, the first is row {at} (from 0): {why}"))
    if done.changed:
        told = f"{len(done.changed):,} items have another vector than when they were published, such as "
        facts.append(("changed", f"{told}{done.changed[0]}: they keep their IDs"))
    if not done.checked:
        facts.append(("not checked", f"whether this tokenizer made {ids}, as it has no manifest; {out} has one"))
    print_facts(*facts, ("ids", str(out) if done.written else f"{out}, nothing to change"))


def drift(
    tokenizer: TokenizerFolder,
    new: _NewItems,
    ids: Annotated[
        Path | None, typer.Option(help=f"The published IDs; by default {IDS_FILE} in the tokenizer's folder.")
    ] = None,
    old: Annotated[
        Path | None,
        typer.Option(help="Embeddings of published items, to measure their error; by default that of the fit counts."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="PATH", help="Also write a page with plots, .html.")] = None,
    column: Column = None,
    id_column: IdColumn = None,
    on_bad: BadRows = "stop",
) -> None:
    """Say whether it is time to fit again: error, usage and collisions of new items beside the published ones.

    \b
    Examples:
      ghrq drift tok/ new.parquet
      ghrq drift tok/ new.parquet --ids ids.parquet --out drift.html
    """  # noqa: D301
    from ghrq.report.ids_drift import judge_drift, summary, write_drift
    from ghrq.tokenizer.drift import measure_drift

    if out is not None:
        check_page(out, [new])
    model, published = load_tokenizer(tokenizer), tokenizer / IDS_FILE if ids is None else ids
    if ids is None and not published.exists():
        raise UserError(f"{tokenizer} has no {IDS_FILE}: name the published IDs with --ids")
    options: dict[str, Any] = {"column": column, "id_column": id_column, "on_bad": on_bad}
    table = open_items(tokenizer, model, new, **options)
    earlier = None if old is None else open_items(tokenizer, model, old, **options)
    with errors_name(new):
        measured = measure_drift(model, published, table, earlier, make_progress())
    verdict = judge_drift(measured)
    print(columns(summary(measured), numbers=True))
    print(f"verdict: {verdict.verdict}. {verdict.advice}")
    if out is not None:
        print(f"page: {write_drift(measured, out)}")


def remap(
    old: Annotated[Path, typer.Argument(help="IDs before the new fit.")],
    new: Annotated[Path, typer.Argument(help="IDs after it.")],
    out: Annotated[Path, out_option("File for the table, .parquet.")],
    force: Force = False,
) -> None:
    """Write the table from old to new IDs: one row for each item that has both. Retired items keep their old one.

    \b
    Example:
      ghrq remap old/ids.parquet new/ids.parquet --out map.parquet
    """  # noqa: D301
    from ghrq.data.tables import open_codes
    from ghrq.ids import remap as remapping

    check_output(out, (".parquet",), [old, new], replace=force)
    before, after = open_codes(old), open_codes(new)
    found = remapping.remap(before, after)
    remapping.write_remapping(out, found, after.id_name)
    print_facts(
        ("items in both", f"{len(found.ids):,}"),
        ("with the same ID", f"{found.same:,}"),
        *([("of these, retired before", f"{found.retired:,}")] if found.retired else []),
        ("only old", f"{found.only_old:,}"),
        ("only new", f"{found.only_new:,}"),
        ("tokenizers", _tokenizers(before, after)),
        ("table", str(out)),
    )


def export(
    ids: Ids,
    to: Annotated[To, typer.Option(help="The form, see above.")],
    out: Annotated[Path, out_option("File to write; its name ends as said above.")],
    force: Force = False,
) -> None:
    """Write IDs in a form that other programs read. Retired items are left out.

    \b
    llm         .jsonl       <a_12><b_200>… and the list of such tokens, to add to a language model's tokenizer
    offsets     .parquet     one range of integers for each level, and the offsets
    cornac      .json        codes of each item, for Cornac's LETTER and DiffGRM
    grid        .pt          a tensor, for GRID's semantic_id_path
    minionerec  .index.json  tokens of each item, for MiniOneRec's sid_index_path
    csv, jsonl  .csv .jsonl  as 'ghrq encode' writes them
    duckdb      .duckdb      a table for SQL

    \b
    Examples:
      ghrq export ids.parquet --to llm --out items.jsonl
      ghrq export ids.parquet --to minionerec --out Beauty.index.json
    """  # noqa: D301
    from ghrq.data.tables import open_codes
    from ghrq.ids import export as exporting

    ending = exporting.SUFFIXES[to]
    if not out.name.lower().endswith(ending):
        right = shell("--out", out.with_name(f"{out.name.split('.')[0]}{ending}"))
        raise UserError(f"--to {to} writes a file that ends in {ending}, got {out}: give {right}")
    for file in exporting.outputs(to, out):
        check_output(file, (file.suffix.lower(),), [ids], replace=force)
    table = open_codes(ids)
    facts = exporting.export(table, to, out, make_progress())
    print_facts(("items", f"{table.rows:,}"), *facts, *_unverified(table), ("written to", str(out)))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (extend, drift, remap, export):
        app.command()(command)


def _unverified(table: "VectorTable") -> list[tuple[str, str]]:
    """Say that a file may have been edited, if it has no manifest."""
    return [("not checked", f"whether {table.path} is complete: it has no manifest")] if not table.manifest else []


def _tokenizers(before: "VectorTable", after: "VectorTable") -> str:
    made = [table.manifest.get("tokenizer") for table in (before, after)]
    if None in made:
        return "not checked: only Parquet files of ghrq say which one made them"
    return "the same for both files: IDs of one tokenizer do not move" if made[0] == made[1] else "two different ones"
