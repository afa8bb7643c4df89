"""Experiments: ``train``, ``eval``, ``reproduce``, ``runs``, ``recipes``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ghrq.cli.options import out_option
from ghrq.report.console import columns
from ghrq.system import processes
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.training.run import Run


_SET = typer.Option("--set", metavar="KEY=VALUE", help="Change a key; repeatable. 'ghrq recipes NAME' shows all keys.")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(train)
    app.command("eval")(evaluate)
    app.command(cls=_ReproduceCommand)(reproduce)
    app.command()(runs)
    app.command()(recipes)


def train(
    recipe: Annotated[str | None, typer.Argument(help="A TOML file, or a shipped recipe (see 'ghrq recipes').")] = None,
    override: Annotated[list[str] | None, _SET] = None,
    out: Annotated[Path | None, out_option("Folder of the run; by default a new one in runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue this run.")] = None,
) -> None:
    """Train a recipe and evaluate the result.

    \b
    Examples:
      ghrq train wordnet/demo
      ghrq train my.toml --set quantizer.kind=naive --set seed=1 --out runs/naive
      ghrq train image/mnist-cpu --set data.name=folder --set data.source=holiday --set data.size=64
      ghrq train --resume runs/naive
      torchrun --nproc-per-node 4 -m ghrq train wordnet/paper
    """  # noqa: D301
    from ghrq.training.recipe import load_recipe
    from ghrq.training.run import Run

    if (recipe is None) == (resume is None):
        raise UserError("expected a recipe or --resume RUN, one of the two: ghrq train wordnet/demo")
    if resume is not None:
        if override or out is not None:
            raise UserError("--resume goes on with the recipe and the folder of the run: leave out --set and --out")
        begun = Run.open(resume)
        begun.import_task()
        chosen, out = begun.recipe, resume
    else:
        chosen = load_recipe(recipe or "", override or [])
    from ghrq.training.train import complete_run, open_run

    run = open_run(chosen, out, resume=resume is not None)
    _print_results(run, complete_run(run))


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.")],
    task: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="The run's task, if it is your own: its code is run only if named."),
    ] = None,
) -> None:
    """Evaluate a trained run again and replace its results.json.

    \b
    Examples:
      ghrq eval runs/wordnet-demo
      ghrq eval runs/mine --task mytask:MyTask
    """  # noqa: D301
    from ghrq.training.run import Run
    from ghrq.training.train import evaluate as evaluate_run

    found = Run.open(run)
    if task is not None:
        if task != found.task:
            raise UserError(f"--task {task}: {run} is a run of the task '{found.task}'")
        found.import_task()
    _print_results(found, evaluate_run(found))


class _ReproduceCommand(TyperCommand):
    """Its help ends with the shipped tasks and what their studies offer."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from ghrq.training.task import task_class, task_names

        studies = {name: study for name in task_names() if (study := task_class(name).study) is not None}
        with formatter.section("Tasks"):
            formatter.write_dl([(name, study.summary()) for name, study in studies.items()])


def reproduce(
    task: Annotated[str, typer.Argument(help="One of the tasks below, or your own as module:Class.")],
    budget: Annotated[str, typer.Option(help="demo (minutes), cpu (an hour or two) or paper (a GPU).")] = "cpu",
    seeds: Annotated[int, typer.Option(min=1, help="How often each run is repeated, with another seed.")] = 1,
    grid: Annotated[
        bool, typer.Option("--grid", help="Every value of every axis, not only the main ones: see below.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="One of the task's data sets: see below.")] = None,
    override: Annotated[list[str] | None, _SET] = None,
    out: Annotated[Path | None, out_option("Folder of the runs; by default runs/TASK[-DATASET]-BUDGET.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at a time, sharing the cores; by default one a core, at most 4; 1 on a GPU."),
    ] = None,
) -> None:
    """Train all runs behind a task's tables in the paper, and write the tables. Run the same command again to continue.

    \b
    Examples:
      ghrq reproduce wordnet --budget demo
      ghrq reproduce wordnet --budget cpu --seeds 3 --grid
      ghrq reproduce image --dataset digits --budget demo
      ghrq reproduce image --dataset cifar100 --set quantizer.radius=0.75 --out runs/far-out
    """  # noqa: D301
    from ghrq.report.study import console_tables, write_report
    from ghrq.system.progress import make_progress
    from ghrq.training.jobs import how_many
    from ghrq.training.task import task_class
    from ghrq.training.train import run_study

    found = task_class(task)
    if found.study is None:
        raise UserError(f"the task {task} has no study: give its class an attribute 'study' (ghrq.training.study)")
    chosen = found.study.dataset(dataset)
    folder = out or Path("runs") / "-".join(part for part in (task.rpartition(":")[2].lower(), chosen, budget) if part)
    planned = found.study.plan(budget, seeds, grid, chosen, override or [])
    outcomes = run_study(planned, folder, make_progress(), how_many(jobs, len(planned)))
    if processes.is_main():
        print(console_tables(found, outcomes))
        print(f"report: {write_report(found, outcomes, folder)}")


def runs(root: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs")) -> None:
    """List runs with their state, their newest checkpoint and their results.

    \b
    Example:
      ghrq runs
    """  # noqa: D301
    from ghrq.training.run_list import runs as find_runs

    if not root.is_dir():
        raise UserError(f"there is no folder {root}: name the one that holds your runs")
    rows = [("run", "task", "state", "stage", "step", "results")]
    for found in find_runs(root):
        numbers = [f"{name} {value:.4g}" for name, value in found.headline.items()]
        headline = "  ".join([*found.damaged.values(), *numbers])
        rows.append((str(found.folder), found.task, found.state, found.stage, f"{found.step:,}", headline))
    print(columns(rows) if len(rows) > 1 else f"no runs in {root}")


def recipes(
    recipe: Annotated[str | None, typer.Argument(help="Show this one, with all its keys: a name, or a file.")] = None,
) -> None:
    """List the recipes that ship with ghrq, or show one with all keys that --set can change.

    Where minutes are given, they are those of one run, training and evaluation, on an idle core; a busy core takes as
    many times longer as it has other work. 'ghrq reproduce' trains several runs.

    \b
    Examples:
      ghrq recipes
      ghrq recipes wordnet/demo
    """  # noqa: D301
    if recipe is not None:
        from ghrq.training.recipe import load_recipe

        print(load_recipe(recipe).described(), end="")
        return
    from ghrq.recipes import shipped, summary

    print(columns([(name, summary(path)) for name, path in shipped().items()]))


def _print_results(run: "Run", results: dict[str, Any]) -> None:
    if processes.is_main():
        numbers = [(name, f"{value:.6g}") for name, value in results.items() if isinstance(value, int | float)]
        print(columns(numbers))
        print(f"results: {run.folder / 'results.json'}")
