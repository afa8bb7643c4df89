"""Figures from the results of a study: losses while training, and numbers by depth."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ghrq.report.figures import ChartLine, Figure, lines
from ghrq.report.kinds import label_of
from ghrq.report.results import Group, Measured, length_at, varying


class Curve(NamedTuple):
    """A logged metric, to be drawn over the epochs."""

    name: str
    """Of its file."""
    title: str
    caption: str
    stages: tuple[str, ...]
    """One after the other."""
    metric: str = "loss"
    log: bool = False
    """Whether the axis is logarithmic."""


def training_figures(groups: Sequence[Group], curves: Sequence[Curve], where: str = "") -> list[Figure]:
    """A figure for each curve, with a line for each group that logged it. ``where`` goes into titles and file names."""
    logged = [(group, metrics) for group in groups if (metrics := group.metrics())]
    seeds = {group.first_seed for group, _ in logged}
    whose = f"Seed {min(seeds)}." if len(seeds) == 1 else "The lowest seed of each."
    names = line_names([group for group, _ in logged])
    figures = []
    for curve in curves:
        given = [_line(name, metrics, curve) for name, (_, metrics) in zip(names, logged, strict=True)]
        given = [line for line in given if len(line.x) > 1]
        if given:
            name = "-".join(filter(None, ("curve", curve.name, re.sub(r"\W+", "-", where))))
            title = f"{curve.title} ({where})" if where else curve.title
            caption = f"{curve.caption} {whose}".strip()
            figures.append(lines(name, title, caption, ("epoch", "loss"), given, log=curve.log))
    return figures


def stage_losses(groups: Sequence[Group]) -> list[Curve]:
    """The loss of every stage that was logged."""
    stages = dict.fromkeys(line["stage"] for group in groups for line in group.metrics() if "stage" in line)
    return [Curve(stage, f"Loss of the stage {stage}", "", (stage,)) for stage in stages]


def line_names(groups: Sequence[Group]) -> list[str]:
    """What a line of each group is named by: its kind, or else its labels on the axes in which they differ."""
    axes = varying(groups)
    if axes in ([], ["kind"]):
        return [group.kind or "all" for group in groups]
    return [", ".join(label_of(group.axes[axis], axis) for axis in axes if axis in group.axes) for group in groups]


def _line(name: str, metrics: Sequence[Mapping[str, Any]], curve: Curve) -> ChartLine:
    x: list[float] = []
    y: list[Measured] = []
    for stage in curve.stages:
        before = x[-1] if x else 0.0
        for line in (line for line in metrics if line.get("stage") == stage):
            epoch, value = Measured.of([line.get("epoch")]), Measured.of([line.get(curve.metric)])
            if epoch and value:
                x.append(before + epoch.mean)
                y.append(value)
    return ChartLine(name, x, y)


def by_depth(groups: Sequence[Group], path: str, factor: float = 1.0, note: str = "") -> list[ChartLine]:
    """A line for each group whose results have at ``path`` a list of numbers, one for each depth."""
    found = []
    for name, group in zip(line_names(groups), groups, strict=True):
        depths = range(length_at(group.first, path))
        y = {depth + 1: group.number(f"{path}.{depth}", factor) for depth in depths}
        kept = {depth: value for depth, value in y.items() if value and value.mean > 0.0}  # log axes have no 0
        if kept:
            found.append(ChartLine(name, list(kept), list(kept.values()), note))
    return found
