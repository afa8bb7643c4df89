"""From folders to outcomes: finished runs of any origin, ready for a report, with their axes and without a plan."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ghrq.recipes import shipped
from ghrq.system import files
from ghrq.system.errors import DivergedError, UserError
from ghrq.training.recipe import flatten, load_recipe
from ghrq.training.run import WITHOUT_EFFECT, Run, run_folders
from ghrq.training.study import Axis, Label, Outcome, Part, Study
from ghrq.training.task import Task, task_class

# Keys in which runs with the same settings may differ.
_NO_SETTINGS = WITHOUT_EFFECT | {"seed", "task"}


@dataclass(frozen=True)
class TaskRuns:
    """The runs of one task."""

    name: str
    """Of the task, as recipes have it."""
    task: type[Task]
    outcomes: list[Outcome]


@dataclass(frozen=True)
class Gathered:
    """All runs that were found."""

    tasks: list[TaskRuns]
    left_out: list[Path]
    """Runs in the folders of several that have no results yet."""


def gather(folders: Iterable[Path], tasks: Collection[str] = ()) -> Gathered:
    """Find finished runs: each of ``folders`` is a run, or has runs in it.

    A run that is named has to be finished; of a folder of runs, those that are not are left out. A run that diverged
    counts, without results. Tasks that are not part of ghrq are imported only if ``tasks`` names them.
    """
    found, left_out = dict[Path, Run](), list[Path]()
    for folder in folders:
        named, inner = (folder / "recipe.toml").is_file(), list(run_folders(folder))
        if not named and not inner:
            what = "there is no such folder" if not folder.exists() else "it has no recipe.toml, and no run is in it"
            raise UserError(f"{folder} is not a run ({what}): 'ghrq runs' lists the runs there are")
        for run in [Run.open(folder)] if named else map(Run.open, inner):
            if run.results is not None or _diverged(run, strict=named):
                found.setdefault(run.folder.resolve(), run)
            elif named:
                raise UserError(f"{folder} has no results.json, so it is not finished: {run.go_on}")
            else:
                left_out.append(run.folder)
    if not any(run.results is not None for run in found.values()):
        none = "no run has results" if found else "no run in it is finished"
        raise UserError(f"{', '.join(map(str, folders))}: {none}, so there is nothing to report")
    by_task: dict[str, list[Run]] = {}
    for run in found.values():
        by_task.setdefault(run.task, []).append(run)
    return Gathered([_task_runs(name, runs, tasks) for name, runs in by_task.items()], left_out)


def settings(run: Run) -> dict[str, Any]:
    """The recipe of a run as one table, without its axes; not checked, so that of another version will do."""
    path = run.folder / "recipe.toml"
    try:
        table = files.parse_toml(files.read_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): restore it") from error
    return flatten({key: value for key, value in table.items() if key != "axes"})


def changed(runs: TaskRuns) -> dict[str, dict[str, tuple[Any, Any]]]:
    """By shipped recipe, the settings in which its runs differ from it beyond the axes of the study: own and theirs."""
    parts = runs.task.study.parts if runs.task.study is not None else ()
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for outcome in runs.outcomes:
        recipe = f"{runs.name}/{outcome.axes.get('recipe', '')}"
        if recipe not in shipped():
            continue
        own, theirs = dict(_own_values(recipe)), settings(Run.open(outcome.folder))
        for axis in (axis for part in parts for axis in part.axes):
            own |= {**axis.values, **axis.grid}.get(outcome.axes.get(axis.name, ""), {})
        for key in sorted({*own, *theirs} - _NO_SETTINGS):
            if not key.startswith("axes") and str(own.get(key)) != str(theirs.get(key)):
                found.setdefault(recipe, {}).setdefault(key, (own.get(key), theirs.get(key)))
    return found


def _task_runs(name: str, runs: Sequence[Run], tasks: Collection[str]) -> TaskRuns:
    if ":" in name and name not in tasks:
        raise UserError(
            f"{runs[0].folder} is a run of the task '{name}', which is not part of ghrq, so its code is run only on "
            f"request: if you trust it, add --task {name}"
        )
    task = task_class(name, str(runs[0].folder / "recipe.toml"))
    keys = [settings(run) for run in runs]
    axes = [_axes(run, found, task.study) for run, found in zip(runs, keys, strict=True)]
    _tell_apart(runs, keys, axes)
    outcomes = [
        Outcome(labels, run.folder, results, "" if results else str(run.status.get("message", "diverged")))
        for run, labels in zip(runs, axes, strict=True)
        for results in [run.results or {}]
    ]
    return TaskRuns(name, task, outcomes)


def _axes(run: Run, keys: Mapping[str, Any], study: Study | None) -> dict[str, Label]:
    """The labels that a run carries; those it does not, from the values of its recipe."""
    carried = files.parse_toml(files.read_text(run.folder / "recipe.toml")).get("axes", {})
    names = {name.replace("/", "-"): Path(name).name for name in shipped()}
    given = str(keys.get("name", run.folder.name))
    found: dict[str, Label] = {"recipe": names.get(given, given)}
    if study is not None:
        if keys.get("data.name") in study.datasets:
            found["dataset"] = keys["data.name"]
        dataset = str(found.get("dataset", ""))
        own = [
            part for part in study.parts if any(Path(name).name == found["recipe"] for name in _recipes(part, dataset))
        ]
        for part in own or study.parts:
            for axis in part.axes:
                label = _label(axis, part, keys, dataset)
                if label is not None:
                    found.setdefault(axis.name, label)
    if isinstance(keys.get("quantizer.kind"), str):
        found.setdefault("kind", keys["quantizer.kind"])
    return found | {key: value for key, value in carried.items() if isinstance(value, str | int | float)} | _seed(keys)


def _seed(keys: Mapping[str, Any]) -> dict[str, Label]:
    seed = keys.get("seed", 0)
    return {"seed": seed if isinstance(seed, int) else 0}


def _recipes(part: Part, dataset: str) -> list[str]:
    return [part.recipe.format(budget=budget, dataset=dataset) for budget in part.budgets]


def _label(axis: Axis, part: Part, keys: Mapping[str, Any], dataset: str) -> Label | None:
    """The label of an axis whose values a recipe has, with those of the study's own recipe for the keys it leaves."""
    for recipe in _recipes(part, dataset):
        own = _own_values(recipe)
        for label, sets in {**axis.values, **axis.grid}.items():
            if all(keys.get(key) == sets.get(key, own.get(key)) for key in axis.set_keys()):
                return label
    return None


@cache
def _own_values(recipe: str) -> dict[str, Any]:
    """The values of a study's recipe; empty if there is none, as of some data sets."""
    with suppress(UserError):
        return load_recipe(recipe).flat()
    return {}


def _tell_apart(runs: Sequence[Run], keys: Sequence[Mapping[str, Any]], axes: Sequence[dict[str, Label]]) -> None:
    """Give runs with equal labels and different settings these settings as labels; equal runs are an error."""
    groups: dict[Any, list[int]] = {}
    for place, labels in enumerate(axes):
        groups.setdefault(tuple(sorted((k, str(v)) for k, v in labels.items() if k != "seed")), []).append(place)
    differing: dict[str, None] = {}
    for places in groups.values():
        every = dict.fromkeys(key for place in places for key in keys[place] if key not in _NO_SETTINGS)
        differing |= {key: None for key in every if len({str(keys[place].get(key)) for place in places}) > 1}
    for labels, found in zip(axes, keys, strict=True):
        for key in differing:
            value = found.get(key, "none")
            labels[key] = value if isinstance(value, str | int | float) else str(value)
    seen: dict[Any, Path] = {}
    for run, labels in zip(runs, axes, strict=True):
        first = seen.setdefault(tuple(sorted((k, str(v)) for k, v in labels.items())), run.folder)
        if first != run.folder:
            raise UserError(
                f"{first} and {run.folder} have the same recipe and the same seed, so they are no two measurements: "
                "name one of them"
            )


def _diverged(run: Run, strict: bool) -> bool:
    """Whether its training diverged; if not ``strict``, a run whose status is damaged did not."""
    try:
        return f"{DivergedError.__name__}: " in str(run.status.get("traceback", ""))
    except UserError:
        if strict:
            raise
        return False
