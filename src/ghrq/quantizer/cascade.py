"""Decomposition of a point into codes, and their aggregation.

Two rules, named by the order in which codes are added:

``nested``   (Hyperbolic Residual Aggregation)  ``r_i = (-q_i) ⊕ r_{i-1}``,  ``ẑ = q_1 ⊕ (q_2 ⊕ (… ⊕ q_N))``
``chained``  (the naive order)                  ``r_i = r_{i-1} ⊕ (-q_i)``,  ``ẑ = ((q_1 ⊕ q_2) ⊕ …) ⊕ q_N``

Only the nested rule telescopes: left cancellation gives ``q_i ⊕ r_i = r_{i-1}`` at every stage, hence
``q_1 ⊕ (… ⊕ (q_N ⊕ r_N)) = z``. In flat space both are ``r - q`` and ``Σ q``.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.nearest import CodeTable, Nearest, search

Aggregation = Literal["nested", "chained"]


def residual(r: Tensor, q: Tensor, c: float | Tensor, aggregation: Aggregation) -> Tensor:
    """The residual of ``r (..., d)`` after the code ``q (..., d)`` is removed."""
    if c == 0.0:
        return r - q
    return ball.mobius_sub(q, r, c) if aggregation == "nested" else ball.mobius_add(r, -q, c)


class Sum(NamedTuple):
    """The aggregate of several codes."""

    point: Tensor
    """``(..., d)``"""
    gap: Tensor
    """``(..., 1)`` its gap, exact even where the point has been rounded onto the boundary."""


def aggregate(parts: Sequence[Tensor], c: float | Tensor, aggregation: Aggregation, gaps: Sequence[Tensor] = ()) -> Sum:
    """The sum of ``parts`` (coarse to fine, each ``(..., d)``).

    ``gaps``: the gaps ``(..., 1)`` of the parts where they are known already.
    """
    gaps = gaps or [ball.gap(part, c) for part in parts]
    if c == 0.0:
        return Sum(torch.stack(tuple(parts)).sum(0) if len(parts) > 1 else parts[0], gaps[0])
    order = range(len(parts))
    if aggregation == "nested":
        order = order[::-1]
    total, gap = parts[order[0]], gaps[order[0]]
    for i in order[1:]:
        if aggregation == "nested":
            total, gap = ball.mobius_add_with_gaps(parts[i], gaps[i], total, gap, c)
        else:
            total, gap = ball.mobius_add_with_gaps(total, gap, parts[i], gaps[i], c)
        gap = gap.clamp(min=numerics.least_gap(gap.dtype))
    return Sum(total, gap)


def prefixes(parts: Sequence[Tensor], c: float, aggregation: Aggregation, gaps: Sequence[Tensor]) -> Sum:
    """:func:`aggregate` of the first 1, 2, … parts: ``(..., len(parts), d)`` and ``(..., len(parts), 1)``."""
    if c == 0.0:
        return Sum(torch.stack(tuple(parts), dim=-2).cumsum(-2), torch.stack(tuple(gaps), dim=-2))
    if aggregation == "chained":
        sums = [Sum(parts[0], gaps[0])]
        for part, gap in zip(parts[1:], gaps[1:], strict=True):
            sums.append(Sum(*ball.mobius_add_with_gaps(*sums[-1], part, gap, c)))
        return Sum(torch.stack([s.point for s in sums], dim=-2), torch.stack([s.gap for s in sums], dim=-2))
    # From the finest part outwards, every depth at once: column k holds q_i ⊕ (… ⊕ q_k) for all k ≥ i.
    total, gap = parts[-1].unsqueeze(-2), gaps[-1].unsqueeze(-2)
    for part, part_gap in zip(parts[-2::-1], gaps[-2::-1], strict=True):
        part, part_gap = part.unsqueeze(-2), part_gap.unsqueeze(-2)
        total, gap = ball.mobius_add_with_gaps(part, part_gap, total, gap, c)
        total, gap = torch.cat((part, total), dim=-2), torch.cat((part_gap, gap), dim=-2)
    return Sum(total, gap)


class Step(NamedTuple):
    """One stage of a walk down the cascade over ``n`` rows; every gap is ``(n, 1)``."""

    chosen: Tensor
    """``(n,)`` the code chosen."""
    code: Tensor
    """``(n, d)`` the code itself, ``q_i``."""
    code_gap: Tensor
    residual: Tensor
    """``(n, d)`` the input of the stage, ``r_{i-1}``."""
    gap: Tensor
    toward: Tensor
    """``(n, d)`` the left residual ``(-q_i) ⊕ r_{i-1}``, which points from the code to the residual."""
    square: Tensor
    """``(n, 1)`` the squared chord ``‖r_{i-1} - q_i‖²``."""


# How a stage chooses codes: rows, their squared norms, their gaps and the table of the stage, see :func:`search`.
Choose = Callable[[Tensor, Tensor, Tensor, CodeTable], Nearest]


def walk(
    point: Tensor,
    gap: Tensor,
    table: CodeTable,
    c: float,
    aggregation: Aggregation,
    depth: int,
    choose: Choose = search,
) -> Iterator[Step]:
    """Quantize ``point (n, d)`` with gaps ``(n, 1)`` stage by stage, in closed form.

    The residual's gap is passed from stage to stage instead of being computed from the rounded residual. Float32
    or float64; without gradient.
    """
    r, norm = point, torch.linalg.vector_norm(point, dim=-1, keepdim=True).square()
    for stage in table.stages()[:depth]:
        chosen, code_gap = choose(r, norm, gap, stage)
        code = stage.codes.index_select(0, chosen)
        difference = r - code
        square = torch.linalg.vector_norm(difference, dim=-1, keepdim=True).square()
        if c == 0.0:
            toward, norm = difference, square
            yield Step(chosen, code, code_gap, r, gap, toward, square)
            r = difference
            continue
        gaps = gap * code_gap
        denominator = torch.add(gaps, square, alpha=c)
        norm = square / denominator
        chained = None if aggregation == "nested" else (difference * (gap / denominator)).addcmul_(r, norm, value=c)
        toward = difference.mul_(code_gap / denominator).addcmul_(code, norm, value=-c)
        yield Step(chosen, code, code_gap, r, gap, toward, square)
        r, gap = toward if chained is None else chained, (gaps / denominator).clamp_(min=numerics.least_gap(gap.dtype))
