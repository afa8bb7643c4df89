"""From a recipe to its results: every stage of a task, then its evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from ghrq.system import memory, processes
from ghrq.system.errors import DivergedError, require
from ghrq.system.progress import Progress, make_progress
from ghrq.training.jobs import side_by_side
from ghrq.training.loop import fit, load
from ghrq.training.randomness import seed_everything
from ghrq.training.recipe import Recipe
from ghrq.training.run import Run, check_free, environment, free_folder
from ghrq.training.study import Outcome, PlannedRun
from ghrq.training.task import Task, task_class
from ghrq.training.trackers import check_installed

RUNS = Path("runs")


def train(
    recipe: Recipe, folder: str | Path | None = None, *, resume: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Train and evaluate a recipe; returns what results.json holds.

    Args:
        recipe: from :func:`ghrq.training.recipe.load_recipe`.
        folder: of the run, by default a new one in ``runs/``.
        resume: go on with a run of the same recipe in ``folder``, if there is one.
        progress: by default what suits the standard error.

    """
    return finish(begin(recipe, folder, resume=resume), progress)


def begin(recipe: Recipe, folder: str | Path | None = None, *, resume: bool = False) -> Run:
    """The folder of a run, new or found, the same on all processes; arguments as for :func:`train`."""
    require("accelerate", "train")
    check_installed(recipe.training.trackers)
    task_class(recipe.task).check(recipe)
    path = processes.from_main(free_folder(RUNS, recipe.name) if folder is None else Path(folder))
    run = Run(path)
    if processes.is_main():
        run = Run.open_or_create(path, recipe) if resume else Run.create(path, recipe)
    processes.from_main(None)  # the others wait until it is there
    run.recipe = recipe
    return run


def finish(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Do what is left of a run; returns what results.json holds."""
    progress = make_progress() if progress is None else progress
    results = processes.from_main(run.results)
    if results is not None:
        progress.note(f"{run.folder} is finished")
        return results
    with run.working():
        _note_other_versions(run, progress)
        progress.note(f"training {run.recipe.name} in {run.folder}")
        return _evaluate(_finished(run, progress, training=True), run, progress)


def run_study(planned: Sequence[PlannedRun], folder: Path, progress: Progress, jobs: int = 1) -> list[Outcome]:
    """Train and evaluate the runs of a study, each in the folder of its name in ``folder``; finished ones are kept.

    ``folder`` holds such runs already, or nothing at all. ``jobs`` run at a time, each with its share of the cores.
    """
    begun = any(folder.glob("*/recipe.toml")) or any(folder.glob(".*.tmp"))  # the latter if killed at the very start
    if processes.is_main() and not begun:
        check_free(folder)
    cells = {
        run.name: _Cell(f"{count} of {len(planned)}: {run.name}", run, folder / run.name)
        for count, run in enumerate(planned, start=1)
    }
    if jobs > 1:
        return list(side_by_side(_train_cell, cells, jobs, progress).values())
    return [_train_cell(cell, progress) for cell in cells.values()]


class _Cell(NamedTuple):
    """A run among many."""

    title: str
    planned: PlannedRun
    folder: Path


def _train_cell(cell: _Cell, progress: Progress) -> Outcome:
    progress.note(cell.title)
    try:
        run = begin(cell.planned.recipe, cell.folder, resume=True)
        run.go_on = "the same reproduce command again"
        return Outcome(cell.planned.axes, cell.folder, finish(run, progress))
    except DivergedError as error:
        progress.note(str(error))
        return Outcome(cell.planned.axes, cell.folder, error=str(error))


def evaluate(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Evaluate a trained run again, and write its results.json anew."""
    progress = make_progress() if progress is None else progress
    with run.working(training=False):
        return _evaluate(_finished(run, progress, training=False), run, progress)


def _finished(run: Run, progress: Progress, training: bool) -> Task:
    """The task with all of its models trained, or loaded."""
    recipe = run.recipe
    memory.keep_freed()
    seed_everything(recipe.seed, "task")
    task = task_class(recipe.task)(recipe, run)
    stages = task.stages()
    names: set[str] = set()
    while True:
        # By number, not by name: the name is known only when the stage is built.
        seed_everything(recipe.seed, f"stage {len(names)}")
        stage = next(stages, None)
        if stage is None:
            return task
        if stage.name in names:
            raise ValueError(f"two stages of {recipe.task} have the name '{stage.name}'")
        names.add(stage.name)
        if training:
            fit(stage, run, recipe.training, progress)
        else:
            load(stage, run, progress)


def _evaluate(task: Task, run: Run, progress: Progress) -> dict[str, Any]:
    seed_everything(run.recipe.seed, "evaluate")
    results = None
    if processes.is_main():
        for name, model in task.models().items():
            cast(Any, model).save_pretrained(run.folder / "models" / name)
        axes = run.recipe.axes
        run.write_results(task.evaluate(progress) | ({"axes": axes} if axes else {}))
        results = run.results
    return processes.from_main(results)


def _note_other_versions(run: Run, progress: Progress) -> None:
    before = run.environment.get("versions", {})
    now = environment(run.recipe)["versions"]
    other = [f"{name} {before[name]}, now {now[name]}" for name in before if before[name] != now.get(name)]
    if other:
        progress.note(f"begun with {'; '.join(other)}: numbers may differ from an uninterrupted run's")
