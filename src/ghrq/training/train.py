"""From a recipe to its results: train every stage of a task, then evaluate."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from ghrq.system import files, memory, processes
from ghrq.system.errors import DivergedError, UserError, require
from ghrq.system.progress import Progress, make_progress
from ghrq.training.jobs import complete_in_processes
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
    """Train and evaluate a recipe; returns the content of results.json.

    The run is in ``folder``, by default a new one in ``runs/``; with ``resume`` it goes on with a run of the same
    recipe there, if there is one. ``progress`` is by default :func:`ghrq.system.progress.make_progress`.
    """
    return complete_run(open_run(recipe, folder, resume=resume), progress)


def open_run(recipe: Recipe, folder: str | Path | None = None, *, resume: bool = False) -> Run:
    """Check the recipe, then make or find its run folder, the same on all processes. Arguments as for :func:`train`.

    The task checks what a new run needs, which may take a while: data, and models to start from.
    """
    require("accelerate", "train")
    check_installed(recipe.training.trackers)
    if not (resume and folder is not None and (Path(folder) / "recipe.toml").is_file()):
        task_class(recipe.task).check(recipe)
    path = processes.from_main(free_folder(RUNS, recipe.name) if folder is None else Path(folder))
    run = Run(path)
    if processes.is_main():
        run = Run.open_or_create(path, recipe) if resume else Run.create(path, recipe)
    processes.from_main(None)  # the others wait until the folder exists
    run.recipe = recipe
    return run


def complete_run(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Train what is left of a run and evaluate it; returns the content of results.json."""
    progress = make_progress() if progress is None else progress
    results = processes.from_main(run.results)
    if results is not None:
        progress.note(f"{run.folder} is finished")
        return results
    with run.working():
        run.check_unedited()
        _note_other_versions(run, progress)
        progress.note(f"training {run.recipe.name} in {run.folder}")
        return _evaluate(_run_stages(run, progress, training=True), run, progress)


def run_study(planned: Sequence[PlannedRun], folder: Path, progress: Progress, jobs: int = 1) -> list[Outcome]:
    """Train and evaluate the runs of a study, each in the folder of its name in ``folder``; finished ones are kept.

    ``folder`` holds such runs already, or nothing at all. ``jobs`` run at a time, each with its share of the cores.
    """
    # A draft is there if an earlier call was killed while it made its first run folder.
    begun = any(folder.glob("*/recipe.toml")) or any(folder.glob(".*.tmp"))
    if processes.is_main() and not begun:
        check_free(folder)
    runs = _open_runs(planned, folder, progress)
    diverged = complete_in_processes(runs, jobs, progress) if jobs > 1 else _complete_in_turn(runs, progress)
    return [
        Outcome(run.axes, path, Run(path).results or {}, diverged.get(run.name, ""))
        for run in planned
        for path in [folder / run.name]
    ]


def _open_runs(planned: Sequence[PlannedRun], folder: Path, progress: Progress) -> Iterator[Run]:
    for count, plan in enumerate(planned, start=1):
        progress.note(f"{count} of {len(planned)}: {plan.name}")
        run = open_run(plan.recipe, folder / plan.name, resume=True)
        run.go_on = "the same reproduce command again"
        yield run


def _complete_in_turn(runs: Iterable[Run], progress: Progress) -> dict[str, str]:
    """One run after the other in this process; returns the messages of diverged runs by the folder's name."""
    diverged = {}
    for run in runs:
        try:
            complete_run(run, progress)
        except DivergedError as error:
            progress.note(str(error))
            diverged[run.folder.name] = str(error)
    return diverged


def evaluate(run: Run, progress: Progress | None = None) -> dict[str, Any]:
    """Evaluate a trained run again, and replace its results.json."""
    progress = make_progress() if progress is None else progress
    with run.working(training=False):
        return _evaluate(_run_stages(run, progress, training=False), run, progress)


def _run_stages(run: Run, progress: Progress, training: bool) -> Task:
    """Build the task, and train or load the model of each of its stages."""
    recipe = run.recipe
    memory.keep_freed()
    seed_everything(recipe.seed, "task")
    task = task_class(recipe.task)(recipe, run)
    stages = iter(task.stages())
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
            if not hasattr(model, "save_pretrained"):
                raise UserError(f"the model '{name}' of {run.recipe.task} has no save_pretrained, see ghrq.models")
            (run.folder / "models").mkdir(exist_ok=True)
            with files.draft(run.folder / "models" / name) as draft:  # those of an earlier evaluation are replaced
                cast(Any, model).save_pretrained(draft)
        found, axes = task.evaluate(progress), run.recipe.axes
        if not isinstance(found, dict):
            raise UserError(f"evaluate of {run.recipe.task} must return a dictionary, got {type(found).__name__}")
        run.write_results(found | ({"axes": axes} if axes else {}))
        results = run.results
    return processes.from_main(results)


def _note_other_versions(run: Run, progress: Progress) -> None:
    before = run.environment.get("versions", {})
    now = environment(run.recipe)["versions"]
    other = [f"{name} {before[name]}, now {now.get(name)}" for name in before if before[name] != now.get(name)]
    if other:
        progress.note(f"begun with {'; '.join(other)}: numbers may differ from those of an uninterrupted run")
