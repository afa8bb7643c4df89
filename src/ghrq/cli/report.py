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
    gathered = gather(runs, task or ())
    if out is None and chosen == "html":
        if _DEFAULT.exists():
            raise UserError(f"there is a {_DEFAULT} already: name it with --out to replace it, or name another")
        out = _DEFAULT
        check_output(out, tuple(ENDINGS))
    text = RunsReport.of(gathered, make_progress()).write(chosen)
    if out is None:
        print(text, end="")
        return
    with telling(out):
        write(out, text)
    number = sum(len(found.outcomes) for found in gathered.tasks)
    print_facts(("runs", f"{number:,}"), *_told(gathered.left_out), ("report", str(out)))


def figure(
    number: Annotated[int, typer.Argument(min=1, max=3, metavar="NUMBER", help="Of the paper: 1, 2 or 3.")],
    out: Annotated[Path, out_option("File for the figure: .svg or .pdf.")],
    run: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="1: a run or a tokenizer. 3: runs of audio; repeatable. 2 needs none."),
    ] = None,
) -> None:
    """Draw a figure of the paper from your own runs, as vector graphics; the caption is printed.

    1: the same codes added up in two orders, as Möbius hops on the disk. 2: forward and backward routes, a drawing.
    3: rate and distortion of audio runs.

    \b
    Examples:
      ghrq figure 1 --run runs/wordnet-best --out fig1.svg
      ghrq figure 1 --run tok/ --out fig1.pdf
      ghrq figure 2 --out fig2.svg
      ghrq figure 3 --run runs/audio-cpu --out fig3.pdf
    """  # noqa: D301
    check_output(out, (".svg", ".pdf"))
    given, left_out = run or [], list[Path]()
    one, none, several = (
        "one run or tokenizer: --run runs/mine",
        "no run: leave --run out",
        "runs: --run runs/audio-cpu",
    )
    if (number, len(given)) != (1, 1) and (number == 1 or (number == 2) == bool(given)):
        raise UserError(f"figure {number} needs {(one, none, several)[number - 1]}")
    if number == 1:
        from ghrq.report.aggregation_figure import aggregation_figure
        from ghrq.report.code_source import code_source

        drawn = aggregation_figure(code_source(given[0]))
    elif number == 2:
        from ghrq.report.routes_figure import routes_figure

        drawn = routes_figure()
    else:
        from ghrq.report.results import StudyResults
        from ghrq.tasks.audio.report import figure_three
        from ghrq.training.gather import gather

        gathered = gather(given)
        left_out = gathered.left_out
        found = next((runs for runs in gathered.tasks if runs.name == "audio"), None)
        third = None if found is None else figure_three(StudyResults(found.outcomes))
        if third is None:
            raise UserError(
                f"{', '.join(map(str, given))}: none of these is a run of the task 'audio' with scores by depth"
            )
        drawn = third
    with telling(out):
        drawn.write(out)
    print_facts(*_told(left_out), ("figure", str(out)))
    print(drawn.caption)


def _told(left_out: list[Path]) -> list[tuple[str, str]]:
    return [("left out", f"{folder}: no results yet") for folder in left_out]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(report)
    app.command()(figure)
