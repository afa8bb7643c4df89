"""Beam search over the stages: several candidates instead of the one that looks best so far."""

import torch
from torch import Tensor

from ghrq import ball
from ghrq.nearest import CodeTable
from ghrq.quantizer.cascade import Aggregation, aggregate, walk


def beam_search(
    point: Tensor, gap: Tensor, table: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int
) -> Tensor:
    """Codes ``(n, depth)`` of ``point (n, d)`` nearest to it among ``beam`` candidates and the greedy one.

    Adding ẑ on the left is an isometry, so a candidate's error after one more code y is ``d(y, R)``, R being what is
    left of the point: the tracked residual under the nested rule, ``(-ẑ) ⊕ z`` under the chained one.
    """
    count, d = point.shape
    left = point.unsqueeze(1)
    codes = point.new_empty((count, 1, 0), dtype=torch.int64)
    for i in range(depth):
        stage = table.stage(i)
        error = ball.pairwise_distance(left.reshape(-1, d), stage.codes, c).view(count, -1)
        place = error.topk(min(beam, error.shape[1]), dim=1, largest=False).indices
        parent, index = place // stage.codes.shape[0], place % stage.codes.shape[0]
        codes = torch.cat((codes.gather(1, parent.unsqueeze(-1).expand(-1, -1, i)), index.unsqueeze(-1)), dim=-1)
        if aggregation == "nested" or c == 0.0:
            from_parent = left.gather(1, parent.unsqueeze(-1).expand(-1, -1, d))
            left = ball.mobius_sub(stage.codes[index], from_parent, c)
        else:
            left = ball.mobius_sub(_sum(codes, table, c, aggregation), point.unsqueeze(1), c)
    greedy = torch.stack([step.chosen for step in walk(point, gap, table, c, aggregation, depth)], dim=-1)
    codes = torch.cat((greedy.unsqueeze(1), codes), dim=1)
    error = ball.distance(_sum(codes, table, c, aggregation), point.unsqueeze(1), c)
    best = error.argmin(dim=1).view(-1, 1, 1).expand(-1, -1, depth)
    return codes.gather(1, best).squeeze(1)


def _sum(codes: Tensor, table: CodeTable, c: float, aggregation: Aggregation) -> Tensor:
    return aggregate([table.codes[i][codes[..., i]] for i in range(codes.shape[-1])], c, aggregation).point
