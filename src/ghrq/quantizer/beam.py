"""Beam search over the stages: several candidates instead of the one that looks best so far."""

import torch
from torch import Tensor

from ghrq import ball
from ghrq.nearest import CodeTable
from ghrq.quantizer.cascade import Aggregation, aggregate, walk
from ghrq.quantizer.maps import to_ball


def beam_search(v: Tensor, table: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int) -> Tensor:
    """Codes ``(n, depth)`` of tangent vectors ``v (n, d)``: the nearest of ``beam`` candidates and the greedy ones.

    Adding ẑ on the left is an isometry, so a candidate's error after one more code y is ``d(y, R)``, R being what is
    left of the point: the tracked residual under the nested rule, ``(-ẑ) ⊕ z`` under the chained one. Candidates are
    kept by float32 products; which of them is nearest in the end is decided in float64.
    """
    point, gap = to_ball(v, c)
    count, d = point.shape
    left, left_gap = point.unsqueeze(1), gap.unsqueeze(1)
    codes = point.new_empty((count, 1, 0), dtype=torch.int64)
    for i in range(depth):
        stage, size = table.stage(i), table.codes.shape[1]
        place = _errors(left, left_gap, stage).topk(min(beam, left.shape[1] * size), dim=1, largest=False).indices
        parent, chosen = (place // size).unsqueeze(-1), place % size
        codes = torch.cat((codes.gather(1, parent.expand(-1, -1, i)), chosen.unsqueeze(-1)), dim=-1)
        if aggregation == "nested" or c == 0.0:
            parents, gaps = left.gather(1, parent.expand(-1, -1, d)), left_gap.gather(1, parent)
            subtract = -stage.codes[chosen], stage.gaps[chosen].unsqueeze(-1)
        else:
            parents, gaps = point.unsqueeze(1), gap.unsqueeze(1)
            total = aggregate(_parts(codes, table.codes), c, aggregation)
            subtract = -total.point, total.gap.to(point.dtype)
        left, left_gap = ball.mobius_add_with_gaps(*subtract, parents, gaps, c)
    greedy = torch.stack([step.chosen for step in walk(point, gap, table, c, aggregation, depth)], dim=-1)
    codes = torch.cat((greedy.unsqueeze(1), codes), dim=1)
    z, _ = to_ball(v.double(), c)
    z_hat = aggregate(_parts(codes, table.codes.double()), c, aggregation).point
    best = ball.distance(z_hat, z.unsqueeze(1), c).argmin(dim=1)
    return codes.gather(1, best.view(-1, 1, 1).expand(-1, -1, depth)).squeeze(1)


def _errors(left: Tensor, left_gap: Tensor, stage: CodeTable) -> Tensor:
    """``‖y - R‖²/(αβ)``, in the order of ``d(y, R)``, of every R in ``left (n, b, d)`` and code y: ``(n, b·K)``."""
    values = torch.cat((left, 1.0 - 0.5 * left_gap), dim=-1) @ stage.matrix.mT
    return ((2.0 * values + left.square().sum(-1, keepdim=True)) / left_gap).flatten(1)


def _parts(codes: Tensor, codebooks: Tensor) -> list[Tensor]:
    return [codebooks[i][codes[..., i]] for i in range(codes.shape[-1])]
