"""Figure 1 of the paper, from trained codes: two orders of the same sum, as Möbius hops on the disk, with an inset.

The disk has two dimensions, codes have more. So the codes of one tuple are projected onto the plane that keeps most of
them; the hops are then exact Möbius sums on the disk. The caption says how much the plane keeps, and gives the
distances in all dimensions.
"""

import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.quantizer.cascade import Aggregation, aggregate, residual
from ghrq.report.code_source import CodeSource
from ghrq.report.figures import GRID, INK, PALE, PAPER, Figure, draw_figure
from ghrq.report.kinds import KINDS
from ghrq.system.errors import UserError

_ORDERS: dict[Aggregation, tuple[str, str, str]] = {
    "nested": (KINDS["euclidean"].colour, "o", "HRA: nested"),
    "chained": (KINDS["naive"].colour, "s", "naive: chained"),
}
# Codes of a tuple that are drawn; the rest of the tuple is the last residual.
_SHOWN = 3
# Of the tuples that lie best in a plane, this share; the one of them whose orders part most is drawn.
_PLANAR = 0.02
_STEPS = 48
# Least distance between named stops on the picture.
_CLEAR = 0.13


class Hops(NamedTuple):
    """One tuple on the unit disk, in float64."""

    z: Tensor
    """``(2,)`` the point."""
    stops: dict[Aggregation, Tensor]
    """By order, ``(m + 2, 2)``: the origin, where each code leads, and where the last residual of the order does."""
    kept: float
    """Share of the squared length of the codes that the plane keeps."""


def aggregation_figure(source: CodeSource) -> Figure:
    """Draw the tuple that shows most; see the module for what is exact."""
    quantizer = source.quantizer
    c, shown = float(quantizer.curvature), min(_SHOWN, quantizer.num_stages)
    if c == 0.0:
        raise UserError("this quantizer is Euclidean, where both orders are the same sum: name one on the ball")
    if quantizer.num_stages < 2:
        raise UserError("this quantizer has one stage, so there is nothing to add up: name one with at least 2")
    books = math.sqrt(c) * quantizer.codebooks.detach().double().cpu()  # on the unit ball
    parts = torch.stack([book[code] for book, code in zip(books, source.codes.T.cpu(), strict=True)])  # (N, n, d)
    z = aggregate(list(parts), 1.0, "nested").point
    missed = {order: ball.distance(_stops(parts[:shown], z, order)[-1], z) / math.sqrt(c) for order in _ORDERS}
    left = ball.distance(aggregate(list(parts[:shown]), 1.0, "nested").point, z) / math.sqrt(c)
    kept = _kept(parts[:shown])
    best = kept.topk(max(1, int(_PLANAR * len(kept)))).indices
    place = int(best[missed["chained"][best].argmax()])
    hops = project(parts[:, place], z[place], shown)
    dim = parts.shape[-1]
    plane = (
        "Codes are of 2 dimensions, so the picture is exact."
        if dim == 2
        else f"Of the {dim} dimensions of the codes the picture shows the plane that keeps most of these, "
        f"{hops.kept:.0%} of their squared length; its hops are exact Möbius sums of the codes as they are there."
    )
    shown_miss, all_miss = (float(missed["chained"][which].median()) for which in ([place], slice(None)))
    caption = (
        f"A point z and its first {shown} codes, added up in two orders from the origin O; dashed is the last residual "
        "by the rule of the same order. The nested order (HRA) comes back to z; the chained one (naive) does not. "
        f"{plane} In all dimensions the chained order misses z by {shown_miss:.3g}, the nested one by "
        f"{float(missed['nested'][place]):.1g}, where the codes alone leave {float(left[place]):.3g}. Median over "
        f"{source.origin}: {all_miss:.3g}, {float(missed['nested'].median()):.1g} and {float(left.median()):.3g}. The "
        f"tuple shown is not typical: of the {_PLANAR:.0%} that lie best in a plane, the one with the widest miss."
    )
    return draw_figure("aggregation", "", caption, 4.75, lambda axes: _draw(axes, hops))


def _kept(parts: Tensor) -> Tensor:
    """For tuples ``(m, n, d)``, the share of the squared length of their codes that the best plane keeps, ``(n,)``."""
    rows = parts.transpose(0, 1)
    squares = torch.linalg.eigvalsh(rows @ rows.mT)  # of the small Gram matrices, in ascending order
    return squares[:, -2:].sum(-1) / squares.sum(-1).clamp(min=1e-300)


def project(parts: Tensor, z: Tensor, shown: int) -> Hops:
    """One tuple ``parts (N, d)`` with its point ``z (d,)`` on the plane of its first codes, z to the upper right."""
    first = parts[:shown]
    _, lengths, axes = torch.linalg.svd(first, full_matrices=False)
    plane = axes[:2]  # (2, d)
    left = z
    for q in first:
        left = residual(left, q, 1.0, "nested")
    codes = first @ plane.mT
    end = aggregate([*codes, plane @ left], 1.0, "nested").point
    angle = math.pi / 5 - math.atan2(float(end[1]), float(end[0]))
    turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=z.dtype)
    codes, end = codes @ turn, end @ turn
    stops = {order: torch.stack([end.new_zeros(2), *_stops(codes, end, order)]) for order in _ORDERS}
    return Hops(end, stops, float(lengths[:2].square().sum() / lengths.square().sum()))


def _stops(codes: Tensor, z: Tensor, order: Aggregation) -> list[Tensor]:
    """Where 1, 2, … of ``codes (m, ..., d)`` lead, and all of them with the last residual of ``z (..., d)``."""
    left = z
    for q in codes:
        left = residual(left, q, 1.0, order)
    parts = [*codes, left]
    return [aggregate(parts[: i + 1], 1.0, order).point for i in range(len(parts))]


def geodesic(x: Tensor, y: Tensor) -> Tensor:
    """Points ``(_STEPS, 2)`` of the geodesic of the unit disk from x to y."""
    steps = torch.linspace(0, 1, _STEPS, dtype=x.dtype).unsqueeze(-1)
    return ball.expmap(x, steps * ball.logmap(x, y))


def _draw(axes: Any, hops: Hops) -> None:
    circle = [(math.cos(t), math.sin(t)) for t in torch.linspace(0, 2 * math.pi, 361).tolist()]
    axes.fill(*zip(*circle, strict=True), facecolor=PAPER, edgecolor=PALE, linewidth=1.2)
    for radius in (1, 2, 3, 4):  # circles at whole distances from the origin
        at = math.tanh(radius / 2)
        axes.plot(*zip(*[(at * x, at * y) for x, y in circle], strict=True), color=GRID, linewidth=0.7)
    axes.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal")
    axes.axis("off")
    _hops(axes, hops, labels=True)
    axes.plot(0, 0, "o", color=INK, markersize=4)
    axes.annotate("O", (0, 0), xytext=(-11, -3), textcoords="offset points")
    stops = hops.stops["nested"]
    named = [stops[0]]
    for (before, stop, after), name in zip(stops[:4].unfold(0, 3, 1).mT, ("q₁", "q₁ ⊕ q₂"), strict=True):
        if min(float((stop - other).norm()) for other in [*named, hops.z]) > _CLEAR:
            axes.annotate(name, stop.tolist(), **_outside(before, stop, after))
            named.append(stop)
    ends = torch.cat([stops[-2:] for stops in hops.stops.values()])
    x, y = ((ends.amax(0) + ends.amin(0)) / 2).tolist()
    half = max(0.68 * float((ends.amax(0) - ends.amin(0)).max()), 1e-6)
    inset = axes.inset_axes((0.0, 0.0, 0.4, 0.4))
    inset.set(xlim=(x - half, x + half), ylim=(y - half, y + half), aspect="equal")
    inset.set_xticks([])
    inset.set_yticks([])
    inset.set_facecolor(PAPER)
    for side in inset.spines.values():
        side.set(visible=True, color=PALE)
    inset.grid(visible=False)
    _hops(inset, hops)
    times = 0.4 * 2.08 / (2 * half)
    inset.text(0.04, 0.03, f"{times:,.0f} times as large", transform=inset.transAxes, fontsize=8, color=INK)
    axes.indicate_inset_zoom(inset, edgecolor=PALE, alpha=0.45)


def _outside(before: Tensor, stop: Tensor, after: Tensor) -> dict[str, Any]:
    """Where the name of a stop stands: on the outer side of the bend, away from both lines."""
    back, on = ((other - stop) / (other - stop).norm().clamp(min=1e-9) for other in (before, after))
    away = -(back + on)
    if float(away.norm()) < 1e-3:  # a straight line
        away = torch.stack([back[1], -back[0]])
    x, y = (away / away.norm().clamp(min=1e-9)).tolist()
    ha = "left" if x > 0.4 else "right" if x < -0.4 else "center"
    va = "bottom" if y > 0.4 else "top" if y < -0.4 else "center"
    return {"xytext": (6 * x, 6 * y), "textcoords": "offset points", "fontsize": 9, "ha": ha, "va": va}


def _hops(axes: Any, hops: Hops, labels: bool = False) -> None:
    for order, (colour, marker, label) in _ORDERS.items():
        stops = hops.stops[order]
        for start, stop in itertools.pairwise(stops[:-1]):
            axes.plot(*geodesic(start, stop).T.tolist(), color=colour, linewidth=1.8, alpha=0.9)
        axes.plot(*geodesic(stops[-2], stops[-1]).T.tolist(), color=colour, linewidth=1.5, dashes=(2.5, 1.5))
        axes.plot(*stops[1:-2].T.tolist(), ".", color=colour, markersize=6)
        end = {"color": colour, "linestyle": "none", "marker": marker}
        axes.plot(*stops[-2].tolist(), **end, markersize=8, markeredgecolor=INK, label=label if labels else None)
        axes.plot(*stops[-1].tolist(), **end, markersize=4)
    axes.plot(*hops.z.tolist(), "*", color=INK, markersize=10, label="the point z" if labels else None, zorder=4)
    if labels:
        axes.plot([], [], color=PALE, linewidth=1.5, dashes=(2.5, 1.5), label="the last residual")
