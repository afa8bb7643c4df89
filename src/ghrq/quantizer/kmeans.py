"""k-means on the ball: hyperbolic distance to assign, gyromidpoint to update."""

import torch
from torch import Tensor

from ghrq import ball
from ghrq.nearest import nearest

# More points than this for each code do not move the centres noticeably, they only take time.
POINTS_PER_CODE = 256


def midpoint_sums(
    x: Tensor, index: Tensor, count: int, c: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The sums of :func:`ghrq.ball.midpoint` for each of ``count`` groups, in float64.

    ``x (n, d)``, ``index (n,)`` their groups, ``weights (n,)`` -> ``Σ wλx (count, d)``, ``Σ w(λ-1) (count, 1)``.
    """
    factor = 2.0 / ball.gap(x, c)
    weight = torch.ones_like(factor) if weights is None else weights.to(factor.dtype).unsqueeze(-1)
    s = factor.new_zeros(count, x.shape[-1]).index_add_(0, index, weight * factor * x.to(factor.dtype))
    t = factor.new_zeros(count, 1).index_add_(0, index, weight * (factor - 1.0))
    return s, t


@torch.no_grad()
def kmeans(x: Tensor, count: int, c: float, iterations: int = 10) -> Tensor:
    """``count`` centres of the points ``x (n, d)``: ``(count, d)``. Needs at least ``count`` points.

    Starts from distinct random points (the global random generator decides). A centre that loses all its points
    moves to one of the points that lie farthest from theirs.
    """
    if x.shape[0] < count:
        raise ValueError(
            f"k-means for {count} codes needs at least as many vectors, got {x.shape[0]}: pass more of them"
        )
    order = torch.randperm(x.shape[0], device=x.device)
    x = x[order[: POINTS_PER_CODE * count]]
    centres = x[:count].clone()
    for _ in range(iterations):
        index = nearest(x, centres, c)
        s, t = midpoint_sums(x, index, count, c)
        empty = t.squeeze(-1) == 0.0
        moved = ball.project(ball.midpoint_from_sums(s, t, c).to(x.dtype), c)
        if empty.any():
            farthest = ball.distance(x, centres[index], c).topk(int(empty.sum())).indices
            moved[empty] = x[farthest]
        centres = moved
    return centres
