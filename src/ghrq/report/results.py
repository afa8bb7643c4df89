"""The results of a study, grouped: runs that differ in nothing but the seed belong together."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ghrq.report.kinds import KINDS
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.training.recipe import Recipe
    from ghrq.training.run import Run
    from ghrq.training.study import Label, Outcome

NOTHING = "–"

ResultPath = str | Callable[[Any], float | None]
"""Where in results.json a number is: keys and list indices with dots between them, such as ``recall.free.tuple`` or
``quantizer.residual_error.-1``; or a function of the results."""


@dataclass(frozen=True)
class Measured:
    """A number as it was measured in each of several runs."""

    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[Any], factor: float = 1.0) -> "Measured":
        """Those values that are finite numbers, times ``factor``: results.json has ``null`` for NaN."""
        numbers = (float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool))
        return cls(tuple(factor * value for value in numbers if math.isfinite(value)))

    @property
    def mean(self) -> float:
        """NaN without values."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float:
        """The sample standard deviation; 0 of a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __bool__(self) -> bool:
        return bool(self.values)

    def show(self, spec: str) -> str:
        """``mean ± spread``, both by the format ``spec``; of a single value the mean alone."""
        if not self:
            return NOTHING
        mean = format(self.mean, spec)
        spread = ".2g" if spec.endswith("g") else spec.replace("+", "")
        return f"{mean} ± {format(self.spread, spread)}" if len(self.values) > 1 else mean


def value_at(results: Any, path: ResultPath) -> Any:
    """What ``results`` has at ``path``; ``None`` if it is not there."""
    try:
        if callable(path):
            return path(results)
        for key in path.split("."):
            results = results[int(key)] if isinstance(results, list | tuple) else results[key]
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return results


def length_at(results: Any, path: ResultPath) -> int:
    """How many entries the list at ``path`` has; 0 if there is none."""
    found = value_at(results, path)
    return len(found) if isinstance(found, list | tuple) else 0


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but the seed."""

    axes: "Mapping[str, Label]"
    """Their labels on all axes but the seed."""
    outcomes: "Sequence[Outcome]"
    """In the order of their seeds."""

    @property
    def kind(self) -> str:
        """The label on the axis ``kind``; empty if the study has no such axis."""
        return str(self.axes.get("kind", ""))

    @property
    def finished(self) -> "list[Outcome]":
        """The runs with results."""
        return [outcome for outcome in self.outcomes if not outcome.error]

    @property
    def diverged(self) -> int:
        """How many runs diverged."""
        return len(self.outcomes) - len(self.finished)

    @property
    def first(self) -> Mapping[str, Any]:
        """The results of the lowest seed that has some; empty if all diverged."""
        return self.finished[0].results if self.finished else {}

    @property
    def first_seed(self) -> "Label":
        """The lowest seed, of those with results if there are any."""
        return (self.finished or list(self.outcomes))[0].axes.get("seed", 0)

    def number(self, path: ResultPath, factor: float = 1.0) -> Measured:
        """The number at ``path``, over the seeds; without values where the results lack it."""
        return Measured.of((value_at(outcome.results, path) for outcome in self.finished), factor)

    def runs(self) -> "list[Run]":
        """The runs whose folders are there."""
        from ghrq.training.run import Run

        return [Run.open(o.folder) for o in self.outcomes if (o.folder / "recipe.toml").is_file()]

    def recipe(self) -> "Recipe | None":
        """The recipe of the first run that has a readable one; recipes of other versions may not be."""
        for run in self.runs():
            with suppress(UserError):
                return run.recipe
        return None

    def metrics(self) -> list[dict[str, Any]]:
        """The logged metrics of the first run that has any."""
        return next((lines for run in self.runs() if (lines := run.metrics())), [])

    def seconds(self) -> Measured:
        """What training took, over the runs whose folders are there."""
        times = []
        for run in self.runs():
            lines = [(line.get("stage"), Measured.of([line.get("seconds")])) for line in run.metrics()]
            last = {stage: seconds.mean for stage, seconds in lines if stage and seconds}
            times.append(sum(last.values()) or None)
        return Measured.of(times)


class StudyResults:
    """The outcomes of a study in groups, in the order of the kinds, then of their runs."""

    def __init__(self, outcomes: "Iterable[Outcome]") -> None:
        self.outcomes = sorted(outcomes, key=lambda outcome: int(outcome.axes.get("seed", 0)))
        found: dict[Any, list[Outcome]] = {}
        for outcome in self.outcomes:
            key = tuple(item for item in outcome.axes.items() if item[0] != "seed")
            found.setdefault(key, []).append(outcome)
        self.groups = sorted((Group(dict(key), runs) for key, runs in found.items()), key=lambda g: _place(g.kind))

    def labels(self, axis: str) -> "list[Label]":
        """The labels on an axis: kinds in their fixed order, others in the order in which they were planned."""
        found = dict.fromkeys(outcome.axes[axis] for outcome in self.outcomes if axis in outcome.axes)
        return sorted(found, key=_place) if axis == "kind" else list(found)

    def select(self, **labels: "Label | Sequence[Label]") -> list[Group]:
        """The groups with the given label, or one of the given labels, on each of the given axes."""
        allowed = {axis: list(given) if isinstance(given, list | tuple) else [given] for axis, given in labels.items()}
        return [g for g in self.groups if all(g.axes.get(axis) in among for axis, among in allowed.items())]

    @property
    def first(self) -> Mapping[str, Any]:
        """The results of the first run that has some."""
        return next((group.first for group in self.groups if group.first), {})

    @property
    def seeds(self) -> "list[Label]":
        """All seeds."""
        return list(dict.fromkeys(outcome.axes.get("seed", 0) for outcome in self.outcomes))


def _place(kind: "Label") -> int:
    """The place of a kind among all; others come last."""
    order = list(KINDS)
    return order.index(str(kind)) if kind in order else len(order)


def varying(groups: Iterable[Group]) -> list[str]:
    """The axes in which groups differ."""
    groups = list(groups)
    axes = dict.fromkeys(axis for group in groups for axis in group.axes)
    return [axis for axis in axes if len({group.axes.get(axis) for group in groups}) > 1]
