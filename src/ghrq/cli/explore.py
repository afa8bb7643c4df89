"""The command ``explore``: codes as a page to look around in. Heavy imports are inside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq.cli.options import out_option
from ghrq.cli.tables import IDS_FILE, errors_name, found_tokenizer, load_tokenizer, match_ids, open_items
from ghrq.data.outputs import check_page
from ghrq.report.console import columns
from ghrq.system.errors import UserError
from ghrq.system.files import telling, write
from ghrq.system.progress import Progress, make_progress

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable
    from ghrq.report.explorer_page import Explored


def explore(
    tokenizer: Annotated[
        Path, typer.Argument(metavar="TOKENIZER", help="A folder that 'ghrq fit' wrote, or wordnet-nouns.")
    ],
    ids: Annotated[
        Path | None, typer.Argument(help="IDs that 'ghrq encode' wrote; by default those that 'ghrq fit' did.")
    ] = None,
    out: Annotated[Path | None, out_option("File for the page, .html.")] = None,
    label: Annotated[
        str | None, typer.Option(help="What items are called: a column of --items, or of IDS. By default their ids.")
    ] = None,
    colour: Annotated[
        str | None,
        typer.Option(
            "--colour", "--color", help="A column of labels to colour by; a path 'a > b > c' by its first levels."
        ),
    ] = None,
    items: Annotated[Path | None, typer.Option(help="A table of the items, where it has these columns.")] = None,
    column: Annotated[str | None, typer.Option(help="The vectors of --items, if not those of the fit.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="The ids of --items, if not those of the fit.")] = None,
    on_bad: Annotated[
        Literal["stop", "skip"], typer.Option(help="As for 'ghrq encode': 'skip' if it left rows of --items out.")
    ] = "stop",
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="TOKENIZER IDS", help="Another tokenizer and its IDs of the same items, side by side."),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page, on this machine only, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0 is any that is free.")] = 0,
) -> None:
    """Look around in the hierarchy of codes: a hyperbolic browser in one HTML file that opens offline.

    Every prefix of codes is a node on the Poincaré disk. Drag, scroll, click, or search for an item. Of more than
    200,000 items, a random sample is on the page.

    \b
    Examples:
      ghrq explore wordnet-nouns --colour kind --serve      # 82,115 nouns of WordNet, which come with ghrq
      ghrq explore tok/ --items items.parquet --label title --colour category --out page.html
      ghrq explore tok/ ids.parquet --label title --out page.html      # ids.parquet has a column of titles
      ghrq explore tok/ ids.parquet --compare flat/ flat-ids.parquet --serve
    """  # noqa: D301
    from ghrq.data.tables import Matched, match_items, open_codes
    from ghrq.report.explorer_page import ItemTexts, explorer_page, sample

    tokenizer = found_tokenizer(tokenizer)
    name = (items or ids or tokenizer.resolve()).stem
    if ids is None:
        ids = tokenizer / IDS_FILE
        if tokenizer.is_dir() and not ids.is_file():
            raise UserError(f"{tokenizer} has no {IDS_FILE}: name the file of IDs that 'ghrq encode' wrote")
    _check(out, serve, items, [column, id_column], [ids, *([items] if items else []), *(compare or ())[1:]])
    progress, options = make_progress(), {"--label": label, "--colour": colour}
    _check_columns(items or ids, options, items is None)
    if items is None:
        table = open_codes(ids, colour, label)
        source = Matched(table, None)
    else:
        table = open_codes(ids)
        opened = open_items(tokenizer, load_tokenizer(tokenizer), items, column, id_column, colour, on_bad, label)
        source = match_items(table, opened, progress=progress)
    explored = [_explored(tokenizer, table, progress)]
    if compare is not None:
        other = open_codes(compare[1])
        explored.append(_explored(compare[0], other, progress, match_ids(table, other, progress)))
    shown = sample(table.rows)
    texts = ItemTexts(
        source.names(shown),
        open_codes(ids).names(shown) if label is not None else None,
        table.id_name,
        None if colour is None else [named[row] for named in [source.labels()] for row in shown.tolist()],
        colour or "",
    )
    html = explorer_page(explored, shown, texts, f"Codes of {name}", progress)
    sampled = "" if len(shown) == table.rows else f", {len(shown):,} of them on the page, a random sample"
    told = [("items", f"{table.rows:,}{sampled}"), ("size", f"{len(html.encode()) / 1e6:.1f} MB")]
    if out is not None:
        with telling(out):
            write(out, html)
        told.append(("page", str(out)))
    print(columns(told), flush=True)
    if serve:
        _serve(html, port)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explore)


def _check(out: Path | None, serve: bool, items: Path | None, of_items: list[str | None], inputs: list[Path]) -> None:
    if out is None and not serve:
        raise UserError("there is nothing to do: name a file with --out page.html, or give --serve")
    if items is None and any(given is not None for given in of_items):
        raise UserError("--column and --id are of the table of the items: give it with --items")
    if out is not None:
        check_page(out, inputs)


def _check_columns(path: Path, options: dict[str, str | None], of_ids: bool) -> None:
    """Raise an error that names the option if a column is not there, or holds what is no label."""
    from ghrq.data.tables import open_source
    from ghrq.data.tables.columns import checked_name, text_array

    wanted = {option: name for option, name in options.items() if name is not None}
    schema: Any = open_source(path, ()).schema if wanted else None
    for option, name in wanted.items():
        try:
            checked_name(path, name, schema.names, option)
        except UserError as error:
            hint = "; if the table of the items has it, name that with --items" if of_ids else ""
            raise UserError(f"{error}{hint}") from error
        text_array(path, schema.empty_table().column(name).combine_chunks(), name)


def _explored(folder: Path, table: "VectorTable", progress: Progress, rows: Any = ...) -> "Explored":
    """The codes of a table as those of the tokenizer in ``folder``; ``rows`` is the order to take them in."""
    import numpy as np

    from ghrq.data.tables import batch_rows
    from ghrq.data.tables.columns import place
    from ghrq.report.explorer_page import Explored
    from ghrq.tokenizer import bulk

    model = load_tokenizer(folder)
    bulk.check_made_by(table, model)
    stages, sizes = model.quantizer_.num_stages, np.array(model.vocabulary("none").sizes)
    if table.dim > stages + 1:
        raise UserError(
            f"{table.path} has {table.dim} codes a row, {folder} {stages}: use the tokenizer that made them"
        )
    codes = np.concatenate([batch.vectors for batch in table.batches(batch_rows(table.dim))])[:, :stages]
    wrong = np.flatnonzero(((codes < 0) | (codes >= sizes[: codes.shape[1]])).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise UserError(
            f"{place(table.path, row)} has codes {codes[row].tolist()}, {folder} has 0 to {max(sizes) - 1} in a stage: "
            "use the tokenizer that made them"
        )
    with errors_name(table.path):
        return Explored(folder.resolve().name, codes[rows], model.quantizer_)


def _serve(html: str, port: int) -> None:
    from ghrq.system.serving import page_server

    with page_server(html, port) as server:
        print(f"serving on http://localhost:{server.server_address[1]}/ (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped", flush=True)
