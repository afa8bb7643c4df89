"""Results of runs that differ in nothing but the seed, and their lines in figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ghrq.report.figures import Series
from ghrq.report.tables import Measured


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one kind of quantizer, one a seed."""

    kind: str
    results: dict[int, dict[str, Any]] = field(default_factory=dict, kw_only=True)
    """By seed."""
    diverged: dict[int, str] = field(default_factory=dict, kw_only=True)
    """The messages of those that came to no result, by seed."""

    def number(self, *path: str | int) -> Measured:
        """What the results have at ``path``, over the seeds; nothing where they lack it."""
        return Measured.of(_at(result, path) for result in self.results.values())

    @property
    def first(self) -> dict[str, Any]:
        """The results of the lowest seed, empty if all diverged."""
        return self.results[min(self.results)] if self.results else {}

    def add(self, seed: int, result: dict[str, Any]) -> None:
        """Results, or ``{"error": message}``."""
        if "error" in result:
            self.diverged[seed] = str(result["error"])
        else:
            self.results[seed] = result


class Curve(NamedTuple):
    """What of the metrics is shown together."""

    title: str
    caption: str
    stages: tuple[str, ...]
    """One after the other."""
    metric: str
    log: bool = False
    """Whether the axis is logarithmic."""


def training_curve(kind: str, metrics: Sequence[Mapping[str, Any]], curve: Curve) -> Series:
    """A metric over the epochs of stages that follow each other."""
    x: list[float] = []
    y: list[Measured] = []
    for stage in curve.stages:
        before = x[-1] if x else 0.0
        here = [line for line in metrics if line.get("stage") == stage and line.get(curve.metric) is not None]
        x += [before + line["epoch"] for line in here]
        y += [Measured((line[curve.metric],)) for line in here]
    return Series(kind, x, y)


def by_depth(groups: Sequence[Group], *path: str, scale: float = 1.0, note: str = "") -> list[Series]:
    """A line for each group whose results have a list of numbers at ``path``, one for each depth."""
    series = []
    for group in groups:
        inner: Any = group.first
        for key in path:
            inner = inner.get(key, {})
        y = [group.number(*path, depth).scaled(scale) for depth in range(len(inner))]
        # A logarithmic axis has no place for 0.
        kept = [(depth, value) for depth, value in enumerate(y, start=1) if value and value.mean > 0.0]
        if kept:
            series.append(Series(group.kind, [depth for depth, _ in kept], [value for _, value in kept], note))
    return series


def _at(result: Any, path: tuple[str | int, ...]) -> float | None:
    for key in path:
        try:
            result = result[key]
        except (KeyError, IndexError, TypeError):
            return None
    return result
