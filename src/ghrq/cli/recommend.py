"""The command ``ghrq recommend``: the next items of one history, or of a table of users."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ghrq.cli.options import Force, out_option
from ghrq.report.console import columns
from ghrq.system.errors import UserError, counted

if TYPE_CHECKING:
    from ghrq.models.recommender import Recommender


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(recommend)


def recommend(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a recommender, or of a run.")],
    history: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Keys of the items that one user had, the oldest first, as a line of CSV: a key with a comma is "
            "written '\"Tea, green\",B'.",
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option("--all", metavar="TABLE", help="A row for each user with a list of keys: .parquet or .jsonl."),
    ] = None,
    out: Annotated[Path | None, out_option("With --all: the .parquet file to write.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items to recommend.")] = 10,
    by: Annotated[
        Literal["codes", "items", "reranked", "hybrid", "memory"] | None,
        typer.Option(
            help="Rank by generated codes, by whole items, by both (hybrid), or by both and what followed what in "
            "training (memory). By default the last of these that the model has."
        ),
    ] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Recommend items of the history too.")] = False,
    allowed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keys of the items that may be recommended, one a line.")
    ] = None,
    beam: Annotated[int, typer.Option(min=0, help="Width of the search over codes; 0 scores all items.")] = 50,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Ignore items that the model does not know, and users without any.")
    ] = False,
    user_column: Annotated[str, typer.Option("--user", help="With --all: the column of the users.")] = "user_id",
    history_column: Annotated[str, typer.Option("--items", help="With --all: the column of the lists.")] = "history",
    force: Force = False,
) -> None:
    """Recommend the next items of a history, or of every user of a table.

    With --all, the same command after a kill goes on where it was; finished parts are in the folder OUT.parts.

    \b
    Examples:
      ghrq recommend runs/recommendation-demo/demo-ghrq-s0 --history B004756YJA,B004ZT0SSG
      ghrq recommend runs/recommendation-demo/demo-ghrq-s0 --all users.parquet --out top.parquet -k 20
    """  # noqa: D301
    from ghrq.cli.models import load_model
    from ghrq.models.recommender import Recommender

    if (history is None) == (users is None):
        raise UserError("expected --history A,B,C or --all TABLE, one of the two")
    if (users is None) != (out is None):
        raise UserError("--all needs --out, the file to write" if out is None else "--out goes with --all only")
    recommender = load_model(model, Recommender, "recommendation", "recommender")
    among = None
    if allowed is not None:
        among = _known(recommender, _lines(allowed), skip_unknown, f"keys in {allowed}")
    wanted, k = k, min(k, len(recommender if among is None else set(among)))
    if users is not None and out is not None:
        from ghrq.data.outputs import check_output
        from ghrq.models.recommender_files import recommend_table
        from ghrq.system.progress import make_progress

        check_output(out, formats=(".parquet",), inputs=[users], replace=force)
        _note_fewer(k, wanted)
        served = recommend_table(
            recommender,
            users,
            out,
            k,
            user=user_column,
            history=history_column,
            by=by,
            exclude_seen=not seen,
            allowed=None if among is None else recommender.mask_of(among),
            beam=beam,
            skip_unknown=skip_unknown,
            replace=force,
            progress=make_progress(),
        )
        found = [("users", f"{served.users:,}"), ("items each", f"{k:,}")]
        if skip_unknown:
            found += [("users left out", f"{served.skipped:,}"), ("unknown items", f"{served.unknown:,}")]
        if served.shorter:
            found.append(("shorter lists", f"{counted(served.shorter, 'user')}, for whom no more are left"))
        print(columns([*found, ("written to", str(out))]))
        return
    keys = _known(recommender, _keys(history or ""), skip_unknown, "items of --history")
    items = recommender.recommend([keys], k, by=by, exclude_seen=not seen, allowed=among, beam=beam, fewer=True)[0]
    if not items:
        raise UserError("--history has all items that may be recommended: give --seen, or allow more")
    _note_fewer(len(items), wanted)
    print(columns([(f"{place}", f"{item.score:.2f}", item.key, item.title) for place, item in enumerate(items, 1)]))


def _keys(history: str) -> list[str]:
    """The keys of a history, which is a line of CSV."""
    import csv

    try:
        cells = next(csv.reader([history], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise UserError(
            f"--history {history!r} is no line of CSV ({error}): put a key with a comma or a quote into quotes, and "
            'double the quotes in it: "Tea, green","24"" screen"'
        ) from error
    return [key.strip() for key in cells if key.strip()]


def _known(model: "Recommender", keys: list[str], skip_unknown: bool, what: str) -> list[str]:
    """The keys that the model knows, at least one; others are errors, or told of and left out."""
    from ghrq.system.progress import make_progress

    if not keys:
        raise UserError(f"there are no {what}: give at least one key")
    numbers = model.numbers(keys, skip_unknown, what).tolist()
    known = [key for key, number in zip(keys, numbers, strict=True) if number >= 0]
    unknown = [repr(key) for key, number in zip(keys, numbers, strict=True) if number < 0]
    if not known:
        raise UserError(
            f"the model knows none of the {what}, {unknown[0]} is the first; its keys are like "
            f"{model.config.keys[0]!r}: correct them, or name another model"
        )
    if unknown:
        shown = ", ".join(unknown[:5]) + (" …" if len(unknown) > 5 else "")
        make_progress().note(f"skipped {len(unknown):,} of the {what}, which the model does not know: {shown}")
    return known


def _note_fewer(found: int, wanted: int) -> None:
    from ghrq.system.progress import make_progress

    if found < wanted:
        make_progress().note(f"note: {counted(found, 'item')} instead of {wanted:,}: no more may be recommended")


def _lines(path: Path) -> list[str]:
    from ghrq.system.inputs import InputFile

    with InputFile(path).reading("text in UTF-8", "write a text file with one key a line"):
        # Spreadsheets begin a text with a byte order mark.
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
