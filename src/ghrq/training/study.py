"""A study: the axes in which runs differ, and the runs that follow from them.

A task declares which recipes its tables need and along which axes they vary::

    Study([Part("wordnet/{budget}", [key_axis("kind", "quantizer.kind", ["ghrq", "naive"], grid=["hra-only"])])])

Every run carries its axes as data, in its recipe and in its results. Nothing reads them off a folder's name.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ghrq.system.errors import UserError, did_you_mean
from ghrq.training.recipe import Recipe, load_recipe

Budget = Literal["demo", "cpu", "paper"]
Label = str | int | float

BUDGETS: tuple[Budget, ...] = get_args(Budget)


@dataclass(frozen=True)
class Axis:
    """One property in which runs differ: its values by label, each as the recipe keys that it sets."""

    name: str
    values: Mapping[Label, Mapping[str, Any]]
    grid: Mapping[Label, Mapping[str, Any]] = field(default_factory=dict)
    """Further values, which run only with ``--grid``."""

    def set_keys(self) -> set[str]:
        """All recipe keys that its values set."""
        return {key for keys in (*self.values.values(), *self.grid.values()) for key in keys}


def key_axis(name: str, key: str, values: Sequence[Label], grid: Sequence[Label] = ()) -> Axis:
    """An axis whose labels are the values of one recipe key."""
    return Axis(name, {value: {key: value} for value in values}, {value: {key: value} for value in grid})


@dataclass(frozen=True)
class Part:
    """One recipe of a study, run for every combination of its axes."""

    recipe: str
    """A shipped recipe or a file. ``{budget}`` and ``{dataset}`` in it are filled in."""
    axes: Sequence[Axis] = ()
    budgets: Sequence[Budget] = BUDGETS

    def __post_init__(self) -> None:
        names: set[str] = {"recipe", "dataset", "seed"}
        owners: dict[str, str] = {}
        for axis in self.axes:
            if axis.name in names:
                raise ValueError(f"an axis of {self.recipe} has the name '{axis.name}', which is taken")
            names.add(axis.name)
            for key in axis.set_keys():
                if owners.setdefault(key, axis.name) != axis.name:
                    raise ValueError(f"the axes '{owners[key]}' and '{axis.name}' of {self.recipe} both set '{key}'")

    def check(self, overrides: Sequence[str]) -> None:
        """Refuse ``overrides`` of keys that the study sets itself."""
        owners = {key: f"the axis '{axis.name}'" for axis in self.axes for key in axis.set_keys()}
        owners |= {"seed": "the option --seeds", "name": "the study", "axes": "the study"}
        for override in overrides:
            key = override.partition("=")[0].strip()
            if key in owners:
                raise UserError(f"--set {override}: in a study {owners[key]} sets '{key}': use ghrq train instead")


@dataclass(frozen=True)
class PlannedRun:
    """A run that a study asks for."""

    name: str
    """Of its folder."""
    axes: Mapping[str, Label]
    """Its label on every axis, ``recipe``, ``dataset`` (if there are several) and ``seed`` included."""
    recipe: Recipe


@dataclass(frozen=True)
class Outcome:
    """The results of a run, or the message of a run that diverged."""

    axes: Mapping[str, Label]
    folder: Path
    results: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Study:
    """All runs behind the tables of a task."""

    parts: Sequence[Part]
    datasets: Sequence[str] = ()
    """The data sets to choose from, each with its own tables; the first is the default."""

    def dataset(self, given: str | None) -> str:
        """Check the data set that a user gave; ``None`` is the default."""
        if given is None:
            return self.datasets[0] if self.datasets else ""
        if given not in self.datasets:
            known = f"known are {', '.join(self.datasets)}" if self.datasets else "there is only one: leave it out"
            raise UserError(f"--dataset {given}: {did_you_mean(given.lower(), self.datasets, known)}")
        return given

    def budgets(self) -> list[Budget]:
        """The budgets that have runs."""
        return [budget for budget in BUDGETS if any(budget in part.budgets for part in self.parts)]

    def summary(self) -> str:
        """What a user can choose: budgets, data sets, and what ``--grid`` adds to each axis."""
        parts = [f"--budget {', '.join(self.budgets())}"]
        if self.datasets:
            parts.append(f"--dataset {', '.join(self.datasets)}")
        added: dict[str, dict[Label, None]] = {}
        for axis in (axis for part in self.parts for axis in part.axes if axis.grid):
            added.setdefault(axis.name, {}).update(dict.fromkeys(axis.grid))
        parts += [f"--grid adds {name} {', '.join(map(str, labels))}" for name, labels in added.items()]
        return "; ".join(parts)

    def plan(
        self, budget: str, seeds: int = 1, grid: bool = False, dataset: str = "", overrides: Sequence[str] = ()
    ) -> list[PlannedRun]:
        """The runs of one budget and data set, with the seeds 0 to ``seeds`` - 1.

        ``overrides`` (``["quantizer.radius=0.5"]``) change all recipes; the keys of axes are not theirs to change.
        """
        parts = [part for part in self.parts if budget in part.budgets]
        if not parts:
            raise UserError(f"--budget {budget}: expected one of {', '.join(self.budgets())}")
        for part in parts:
            part.check(overrides)
        return [
            run
            for seed in range(seeds)
            for part in parts
            for run in self._runs(part, budget, seed, grid, dataset, overrides)
        ]

    def _runs(
        self, part: Part, budget: str, seed: int, grid: bool, dataset: str, overrides: Sequence[str]
    ) -> Iterator[PlannedRun]:
        source = part.recipe.format(budget=budget, dataset=dataset)
        recipe_label = Path(source).stem
        values = [{**axis.values, **(axis.grid if grid else {})} for axis in part.axes]
        for labels in itertools.product(*values):
            axes: dict[str, Label] = {"recipe": recipe_label, **({"dataset": dataset} if dataset else {})}
            axes |= {axis.name: label for axis, label in zip(part.axes, labels, strict=True)}
            axes["seed"] = seed
            name = self._name(axes)
            keys: dict[str, Any] = {"name": name, "seed": seed, "axes": axes}
            for label, of_axis in zip(labels, values, strict=True):
                keys |= of_axis[label]
            yield PlannedRun(name, axes, load_recipe(source, overrides, keys))

    def _name(self, axes: Mapping[str, Label]) -> str:
        """``best-ghrq-d16-b128-s0``; a study of one recipe leaves out its name."""
        labels = [str(label) for name, label in axes.items() if name not in ("dataset", "seed")]
        shown = labels if len(self.parts) > 1 else labels[1:]
        return "-".join([*shown, f"s{axes['seed']}"]).replace("/", "-")
