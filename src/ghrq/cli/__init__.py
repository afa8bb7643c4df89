"""The commands: thin, each a few calls into the library. torch is imported only by those that need it."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ghrq import __version__
from ghrq.cli import image, items
from ghrq.cli.options import out_option
from ghrq.report.console import columns
from ghrq.system import processes
from ghrq.system.errors import StoppedError, UserError
from ghrq.system.signals import exit_code, termination_raises

if TYPE_CHECKING:
    from ghrq.training.run import Run

app = typer.Typer(
    help="Hyperbolic residual quantization: train, evaluate and reproduce experiments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Budget = Literal["demo", "cpu", "paper"]

_debug = bool(os.environ.get("GHRQ_DEBUG"))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ghrq {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from (also GHRQ_DEBUG=1).")] = False,
) -> None:
    global _debug
    _debug = _debug or debug


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A TOML file, or a shipped recipe (see 'ghrq recipes').")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key of the recipe; repeatable. A run's recipe.toml has all keys.",
        ),
    ] = None,
    out: Annotated[Path | None, out_option("Folder of the run; by default a new one in runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with this run.")] = None,
) -> None:
    """Train a recipe and evaluate what it gives.

    \b
    Examples:
      ghrq train wordnet/demo
      ghrq train my.toml --set quantizer.kind=naive --set seed=1 --out runs/naive
      ghrq train image/mnist-cpu --set data.name=folder --set data.source=holiday --set data.size=64
      ghrq train --resume runs/naive
      torchrun --nproc-per-node 4 -m ghrq train wordnet/paper
    """  # noqa: D301
    from ghrq.training.recipe import load_recipe

    if (recipe is None) == (resume is None):
        raise UserError("expected a recipe or --resume RUN, one of the two: ghrq train wordnet/demo")
    if resume is not None:
        if override or out is not None:
            raise UserError("--resume goes on with the recipe and the folder of the run: leave out --set and --out")
        recipe, out = str(resume / "recipe.toml"), resume
        if not Path(recipe).is_file():
            raise UserError(f"{resume} is not a run: it has no recipe.toml. 'ghrq runs' lists the runs there are")
    chosen = load_recipe(recipe or "", override or [])
    from ghrq.training.train import begin, finish

    run = begin(chosen, out, resume=resume is not None)
    _print_results(run, finish(run))


@app.command("eval")
def evaluate(run: Annotated[Path, typer.Argument(help="The folder of a trained run.")]) -> None:
    """Evaluate a trained run again and write its results.json anew.

    \b
    Example:
      ghrq eval runs/wordnet-demo
    """  # noqa: D301
    from ghrq.training.run import Run
    from ghrq.training.train import evaluate as evaluate_run

    found = Run.open(run)
    _print_results(found, evaluate_run(found))


@app.command()
def reproduce(
    task: Annotated[str, typer.Argument(help="The experiment: wordnet or image.")],
    budget: Annotated[Budget, typer.Option(help="demo (minutes), cpu (an hour or two) or paper (a GPU).")] = "cpu",
    seeds: Annotated[int, typer.Option(min=1, help="How often each run is repeated, with another seed.")] = 1,
    grid: Annotated[
        bool,
        typer.Option(
            "--grid", help="wordnet: all sizes of the paper, not only the main one; image: the ablations, too."
        ),
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="For image: mnist (the default), cifar100 or digits.")] = None,
    out: Annotated[Path | None, out_option("Folder of the runs; by default runs/TASK[-DATASET]-BUDGET.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs at a time, sharing the cores; by default about one a core, at most 4, or 1 on a GPU."
        ),
    ] = None,
) -> None:
    """Train all that a task's tables in the paper need, and write them. The same command again goes on.

    \b
    Examples:
      ghrq reproduce wordnet --budget demo
      ghrq reproduce wordnet --budget cpu --seeds 3 --grid
      ghrq reproduce image --dataset digits --budget demo
      ghrq reproduce image --dataset cifar100
    """  # noqa: D301
    from ghrq.report.study import write_report
    from ghrq.system.progress import make_progress
    from ghrq.training.jobs import how_many
    from ghrq.training.task import task_class
    from ghrq.training.train import run_study

    found = task_class(task)
    if found.study is None:
        raise UserError(f"the task {task} has no study to reproduce")
    chosen = found.study.dataset(dataset)
    folder = out or Path("runs") / "-".join(part for part in (task.rpartition(":")[2].lower(), chosen, budget) if part)
    planned = found.study.plan(budget, seeds, grid, chosen)
    outcomes = run_study(planned, folder, make_progress(), how_many(jobs, len(planned)))
    if processes.is_main():
        print(f"report: {write_report(found, outcomes, folder)}")


@app.command()
def runs(root: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs")) -> None:
    """List runs: their state, how far they came, and what came out.

    \b
    Example:
      ghrq runs
    """  # noqa: D301
    from ghrq.training.run import runs as find_runs

    if not root.is_dir():
        raise UserError(f"there is no folder {root}: name the one that holds your runs")
    rows = [("run", "task", "state", "stage", "step", "results")]
    for found in find_runs(root):
        told = [f"{name} {value:.4g}" for name, value in found.headline.items()]
        headline = "  ".join([*(f"{name} cannot be read" for name in found.damaged), *told])
        rows.append((str(found.folder), found.task, found.state, found.stage, f"{found.step:,}", headline))
    print(columns(rows) if len(rows) > 1 else f"no runs in {root}")


@app.command()
def recipes() -> None:
    """List the recipes that ship with ghrq.

    \b
    Example:
      ghrq recipes
    """  # noqa: D301
    from ghrq.recipes import shipped, summary

    print(columns([(name, summary(path)) for name, path in shipped().items()]))


items.register(app)
app.add_typer(image.app, name="image")


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one message and exit code 2, without a traceback."""
    try:
        with termination_raises():
            app(args=arguments, prog_name="ghrq")
    except SystemExit as end:
        cause: BaseException | None = end
        while cause is not None and not isinstance(cause, KeyboardInterrupt):  # typer makes an exit of it, silently
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            _complain("stopped")
        _leave(end.code if cause is None else exit_code(cause))
    except (UserError, StoppedError) as error:
        if _debug:
            raise
        _complain(str(error))
        _leave(error.exit_code)
    except (ValueError, OSError) as error:
        # The library's own checks: most likely a value in the recipe. The run's status.json has the traceback. Or the
        # system's, of which nobody nearer to it has told: as of a standard output on a full disk.
        if _debug:
            raise
        _complain(f"{error}\n('ghrq --debug' shows where this came from)")
        _leave(2 if isinstance(error, ValueError) else 1)


def _complain(message: str) -> None:
    with suppress(OSError):  # the terminal may be gone: the exit code still tells
        print(f"error: {message}" if processes.is_main() else f"process {processes.rank()}: {message}", file=sys.stderr)


def _leave(code: Any) -> None:
    """End with ``code``; where processes worked together at once, as gloo's threads abort Python's own way out."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if code in (0, None) and not isinstance(error, BrokenPipeError):  # whoever closed a pipe knows it
            _complain(f"cannot write to the standard output ({error.strerror})")
        code = code or 1
        # What is left in the buffer has to go somewhere: Python would try again, and complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if processes.world_size() > 1:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)


def _print_results(run: "Run", results: dict[str, Any]) -> None:
    if processes.is_main():
        numbers = [(name, f"{value:.6g}") for name, value in results.items() if isinstance(value, int | float)]
        print(columns(numbers))
        print(f"results: {run.folder / 'results.json'}")
