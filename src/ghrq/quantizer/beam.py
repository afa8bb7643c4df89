"""Beam search over the stages: keep several candidates instead of the best one."""

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.gradients import to_ball
from ghrq.geometry.nearest import CodeTable, smallest_ratios, without_copies
from ghrq.quantizer.cascade import Aggregation, Sum, aggregate, walk


def beam_search(
    v: Tensor, table: CodeTable, wide: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int
) -> Tensor:
    """Codes ``(n, depth)`` of tangent vectors ``v (n, d)``: the nearest of ``beam`` candidates and the greedy ones.

    ``wide`` is the same table in float64, for the final comparison of the candidates.
    """
    steps = walk(*to_ball(v, c), table, c, aggregation, depth)
    greedy = torch.stack([step.chosen for step in steps], dim=-1)
    codes = torch.cat((greedy.unsqueeze(1), beam_candidates(v, table, c, aggregation, depth, beam)), dim=1)
    best = distances(v, codes, wide, c, aggregation).argmin(dim=1)
    return codes.gather(1, best.view(-1, 1, 1).expand(-1, -1, depth)).squeeze(1)


def beam_candidates(v: Tensor, table: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int) -> Tensor:
    """The ``min(beam, K^depth)`` distinct tuples that remain after the last stage: ``v (n, d)`` -> ``(n, ·, depth)``.

    Adding ẑ on the left is an isometry, so a candidate's error after one more code y is ``d(y, R)``, R being the
    residual of the point: the tracked one under the nested rule, ``(-ẑ) ⊕ z`` under the chained one. Candidates are
    ranked by products in the type of v, so their order is approximate; :func:`distances` are exact. Of equal codes the
    first comes first.
    """
    table = without_copies(table)
    point, gap = to_ball(v, c)
    count, d = point.shape
    left, left_gap = point.unsqueeze(1), gap.unsqueeze(1)
    codes = point.new_empty((count, 1, 0), dtype=torch.int64)
    copied = point.new_zeros((count, 1, 1))  # infinite for candidates with a copy of an earlier code: the last resort
    for i, stage in enumerate(table.stages()[:depth]):
        size = stage.codes.shape[0]
        square = left.square().sum(-1, keepdim=True)
        few = min(beam, left.shape[1] * size)
        best, place = smallest_ratios(left, square, left_gap, copied, stage, few)
        copied = torch.where(best == torch.inf, torch.inf, 0.0).unsqueeze(-1).to(best.dtype)
        parent, chosen = (place // size).unsqueeze(-1), place % size
        codes = torch.cat((codes.gather(1, parent.expand(-1, -1, i)), chosen.unsqueeze(-1)), dim=-1)
        if aggregation == "nested" or c == 0.0:
            parents, gaps = left.gather(1, parent.expand(-1, -1, d)), left_gap.gather(1, parent)
            subtract = -stage.codes[chosen], stage.gaps[chosen].unsqueeze(-1)
        else:
            parents, gaps = point.unsqueeze(1), gap.unsqueeze(1)
            total = _together(codes, table, c, aggregation)
            subtract = -total.point, total.gap
        left, left_gap = ball.mobius_add_with_gaps(*subtract, parents, gaps, c)
    return codes


def distances(v: Tensor, codes: Tensor, wide: CodeTable, c: float, aggregation: Aggregation) -> Tensor:
    """Distances between tangent vectors ``v (n, d)`` and the sums of ``codes (n, b, depth)``: ``(n, b)`` float64.

    Geodesic distances; in flat space ``‖x - y‖``. ``wide``: a table in float64.
    """
    z, gap = to_ball(v.double(), c)
    z_hat = _together(codes, wide, c, aggregation)
    length = torch.linalg.vector_norm(z_hat.point - z.unsqueeze(1), dim=-1)
    if c == 0.0:
        return length
    return ball.distance_from_length(length, (gap.unsqueeze(1) * z_hat.gap).squeeze(-1), c)


def _together(codes: Tensor, table: CodeTable, c: float, aggregation: Aggregation) -> Sum:
    """The sum of ``codes (..., depth)``: ``(..., d)`` and its gap, from the gaps of the table."""
    columns = codes.unbind(-1)
    parts = [table.codes[i][column] for i, column in enumerate(columns)]
    return aggregate(parts, c, aggregation, [table.gaps[i][column].unsqueeze(-1) for i, column in enumerate(columns)])
