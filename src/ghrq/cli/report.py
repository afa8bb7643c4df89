"""Commands that show finished runs: ``report`` and ``figure``. Heavy imports are inside them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ghrq.cli.options import out_option
from ghrq.cli.tables import print_facts
from ghrq.data.outputs import check_output
from ghrq.system.errors import UserError
from ghrq.system.files import telling, write

_DEFAULT = Path("report.html")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of runs as of 'reproduce'.")],
    out: Annotated[
        Path | None, out_option("File for the report: .html, .md, .tex or .json. By default report.html.")
    ] = None,
    how: Annotated[
        Literal["html", "markdown", "latex", "json"] | None,
        typer.Option("--format", help="Of the report, if not by the ending of --out. Without --out, text is printed."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A task of your own: its code is run only if named; repeatable."),
    ] = None,
) -> None:
    """Put finished runs, of any task or of several, into one page that opens offline and prints well.

    It has the tables with the paper's figures, ours and the spread over seeds, training curves, codes in use, radii
    against the boundary, errors by depth, settings and versions. Runs that differ in nothing but the seed share a row.

    \b
    Examples:
      ghrq report runs/mine runs/other --out report.html
      ghrq report runs/wordnet-cpu runs/image-mnist-cpu --out both.html
      ghrq report runs/mine --format markdown
      ghrq report runs/mine --out tables.tex
    """  # noqa: D301
    from ghrq.report.runs import ENDINGS, RunsReport
    from ghrq.system.progress import make_progress
    from ghrq.training.gather import gather

    by_name = None if out is None else ENDINGS.get(out.suffix.lower())
    if out is not None:
        check_output(out, None if how is not None and by_name is None else tuple(ENDINGS))
    chosen = how or by_name or "html"
    if by_name is not None and by_name != chosen:
        raise UserError(f"--format {chosen} does not fit {out}, which is {by_name}: leave --format out")
    if out is None and chosen == "html":
        if _DEFAULT.exists():
            raise UserError(f"there is a {_DEFAULT} already: name it with --out to replace it, or name another")
        out = _DEFAULT
        check_output(out, tuple(ENDINGS))
    gathered = gather(runs, task or ())
    text = RunsReport.of(gathered, make_progress()).write(chosen)
    if out is None:
        print(text, end="")
        return
    with telling(out):
        write(out, text)
    number = sum(len(found.outcomes) for found in gathered.tasks)
    left_out = [("left out", f"{folder}: no results yet") for folder in gathered.left_out]
    print_facts(("runs", f"{number:,}"), *left_out, ("report", str(out)))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(report)
