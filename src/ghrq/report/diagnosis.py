"""What every quantizer of every task can be asked: codes in use, radii against the boundary, errors by depth."""

from collections.abc import Sequence
from typing import Any

from ghrq.quantizer.diagnosis import BOUNDARY_RADIUS
from ghrq.report.curves import by_depth, line_names
from ghrq.report.figures import INK, ChartLine, Figure, Gallery, draw_figure, lines
from ghrq.report.grid import Column
from ghrq.report.kinds import looks
from ghrq.report.page import PageSection
from ghrq.report.results import Group, StudyResults, length_at
from ghrq.report.tables import Table

_RADII = (
    "Of the vectors of the evaluation. Residual error: mean d²(ẑ, z) when only the first codes are used; telescoping "
    "error: the same of all codes and the last residual composed again. Radii are shares of the ball's own, 1 is its "
    "boundary; those of flat space (curvature 0) are norms, and its errors are in Euclidean units, so they do not "
    "compare with those of the ball."
)
_USE = (
    "Codes that are chosen at all, in % of the codebook, and perplexity: how many codes of a stage would be in use if "
    "they were chosen equally often."
)


def diagnosis_section(study: StudyResults, path: str, with_errors: bool = True) -> PageSection:
    """Plots and a table of what ``ResidualQuantizer.diagnose`` measured, at ``path`` of the results.

    ``with_errors``: whether the plot of errors by depth is among them; some tasks have one already.
    """
    groups = [group for group in study.groups if group.number(f"{path}.telescoping_error")]
    figures = [*(_errors(groups, path) if with_errors else []), *_use(groups, path), *_radii(groups, path)]
    return PageSection("Codes, radii and errors", [Gallery(figures), *(table.fill(study) for table in _tables(path))])


def _tables(path: str) -> list[Table]:
    radii = [
        Column("median radius", f"{path}.radius.median", ".3f"),
        Column("greatest radius", f"{path}.radius.greatest", ".4f"),
        Column(f"beyond {BOUNDARY_RADIUS}, %", f"{path}.boundary_fraction", ".1f", factor=100.0),
        Column("curvature", f"{path}.curvature", ".3g"),
        Column("telescoping error", f"{path}.telescoping_error", ".2g"),
        Column("residual error, depth {}", f"{path}.residual_error.*", ".3g"),
    ]
    use = [
        Column("used, stage {}", f"{path}.usage.*", ".0f", factor=100.0),
        Column("perplexity, stage {}", f"{path}.perplexity.*", ".1f"),
    ]
    return [Table("Radii and errors", radii, note=_RADII), Table("Codes in use", use, note=_USE)]


def _errors(groups: Sequence[Group], path: str) -> list[Figure]:
    flat = [group for group in groups if _is_flat(group, path)]
    names = dict(zip(groups, line_names(groups), strict=True))
    given: list[ChartLine] = []
    for those, note in (([group for group in groups if group not in flat], ""), (flat, " (flat)")):
        for group in those:
            found = by_depth([group], f"{path}.residual_error", note=note)
            given += [ChartLine(names[group], line.x, line.y, note) for line in found]
    if not given:
        return []
    caption = "Mean d²(ẑ, z) when only the first codes are used; each should lower the line. Flat: in Euclidean units."
    labels = ("codes used", "d²(ẑ, z)")
    return [lines("residual-error", "Residual error by depth", caption, labels, given, log=True, depths=True)]


def _use(groups: Sequence[Group], path: str) -> list[Figure]:
    """Two plots, in per cent of the codebook of each stage: codes used at all, and perplexity."""
    figures = []
    for name, title, caption in (
        ("usage", "Codes used at all", "100 is best: below it, some codes are never chosen."),
        ("perplexity", "Codes used alike", "Perplexity as a share of the codes: 100 if all are chosen equally often."),
    ):
        given = []
        for line_name, group in zip(line_names(groups), groups, strict=True):
            stages = range(length_at(group.first, f"{path}.{name}"))
            sizes = [1.0 if name == "usage" else _size(group, path, stage) for stage in stages]
            if not all(sizes):
                continue
            y = [group.number(f"{path}.{name}.{stage}", 100.0 / size) for stage, size in enumerate(sizes)]
            if y and all(y):
                given.append(ChartLine(line_name, [stage + 1 for stage in stages], y))
        if given:
            labels = ("stage", "% of the codebook")
            figures.append(lines(f"codes-{name}", title, caption, labels, given, depths=True, limits=(0, 106)))
    return figures


def _radii(groups: Sequence[Group], path: str) -> list[Figure]:
    """For each group, the median and the greatest radius of the points, beside the boundary of the ball."""
    shown = [(name, group) for name, group in zip(line_names(groups), groups, strict=True) if not _is_flat(group, path)]
    if not shown:
        return []

    def draw(axes: Any) -> None:
        of = looks([name for name, _ in shown])
        for place, (look, (_, group)) in enumerate(zip(of, shown, strict=True)):
            median, greatest = (group.number(f"{path}.radius.{which}") for which in ("median", "greatest"))
            codes = group.number(f"{path}.code_radius.0")
            axes.plot([median.mean, greatest.mean], [place, place], color=look.colour, linewidth=5, alpha=0.45)
            label = "median of the points" if place == 0 else None
            axes.plot(median.mean, place, "o", color=look.colour, markeredgecolor=INK, markersize=8, label=label)
            label = "greatest" if place == 0 else None
            axes.plot(greatest.mean, place, "|", color=look.colour, markersize=14, markeredgewidth=3, label=label)
            if codes:
                label = "median of the first codes" if place == 0 else None
                axes.plot(codes.mean, place, "D", color=look.colour, markeredgecolor=INK, markersize=5, label=label)
            share = group.number(f"{path}.boundary_fraction", 100.0)
            axes.text(1.04, place, f"{share.show('.0f')} %", transform=axes.get_yaxis_transform(), va="center")
        axes.axvline(1.0, color=INK, linewidth=1.6, label="the boundary")
        axes.axvline(BOUNDARY_RADIUS, color=INK, linewidth=1.0, dashes=(3, 2))
        axes.set(xlim=(0, 1.02), ylim=(len(shown) - 0.45, -0.55), xlabel="radius, as a share of the ball's")
        axes.set_yticks(range(len(shown)), [look.label for look in of])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)

    caption = (
        f"On the right: how many points lie beyond radius {BOUNDARY_RADIUS} (dashed), where few codes serve all. Flat "
        "space has no boundary, so its kinds are not here."
    )
    return [draw_figure("radii", "Radii against the boundary", caption, 2.1 + 0.36 * len(shown), draw)]


def _is_flat(group: Group, path: str) -> bool:
    curvature = group.number(f"{path}.curvature")
    return group.kind == "euclidean" or bool(curvature and curvature.mean == 0.0)


def _size(group: Group, path: str, stage: int) -> float:
    """The number of codes of a stage; 0 if the results do not say."""
    size = group.number(f"{path}.codebook_size") or group.number(f"{path}.codebook_size.{stage}")
    return size.mean if size else 0.0
