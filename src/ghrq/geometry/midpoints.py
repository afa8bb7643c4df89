"""Midpoints of many groups of points, or of points that arrive over time, by their running sums.

The sums ``Σ wλx`` and ``Σ w(λ - 1)`` of :func:`ghrq.geometry.ball.midpoint` add up and can be averaged; points of the
ball cannot.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.numerics import Curvature

# Rows that sums_sorted copies to float64 at a time.
_SORTED_ROWS = 2048


def sums(
    x: Tensor, index: Tensor, count: int, c: float, weights: Tensor | None = None, heaviest: float = math.inf
) -> tuple[Tensor, Tensor]:
    """The sums that :func:`from_sums` takes, for each of ``count`` groups, in float64.

    ``x (n, d)``, ``index (n,)`` their groups, ``weights (n,)`` -> ``Σ wλx (count, d)``, ``Σ w(λ-1) (count, 1)``. A
    point whose λ is above ``heaviest`` gets less weight, such that its mass is w times that.
    """
    w, mass = ball.midpoint_weights(x, None if weights is None else weights.unsqueeze(-1), c)
    if heaviest < math.inf:
        less = (heaviest * w / mass.clamp(min=1e-300)).clamp(max=1.0)
        w, mass = w * less, mass * less
    # In place: a new tensor would be another float64 copy of x.
    s = mass.new_zeros(count, x.shape[-1]).index_add_(0, index, x.to(mass.dtype, copy=True).mul_(mass))
    t = mass.new_zeros(count).scatter_add_(0, index, (mass - w).squeeze(-1))
    return s, t.unsqueeze(-1)


def sums_sorted(x: Tensor, factor: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """:func:`sums` without weights, from known conformal factors ``(n, 1)``, faster for many rows.

    Rows are sorted by group, part by part, and each group is summed at once. Gain: 1.5 for k-means in
    64 dimensions, 1.9 in 128, 1.07 in 16.
    """
    s = factor.new_zeros(count, x.shape[1])
    groups = torch.arange(count, device=x.device)
    for rows, factors, group in zip(*(t.split(_SORTED_ROWS) for t in (x, factor, index)), strict=True):
        group, order = group.sort()
        first, weights = torch.searchsorted(group, groups), factors.squeeze(-1)[order]
        s += F.embedding_bag(order, rows.to(s.dtype), first, mode="sum", per_sample_weights=weights)
    return s, index.bincount((factor - 1.0).squeeze(-1), minlength=count).unsqueeze(-1)


def from_sums(s: Tensor, t: Tensor, c: Curvature = 1.0) -> Tensor:
    """The midpoint whose running sums are ``s = Σ wλx (..., d)`` and ``t = Σ w(λ - 1) (..., 1)``; 0 if both are 0."""
    root = (t * t - c * numerics.square_norm(s)).clamp(min=0.0)
    # √ has no derivative at 0; rounding can lead there if all points coincide near the boundary.
    denominator = t + torch.where(root > 0.0, root, 1.0).sqrt() * (root > 0.0)
    return s / torch.where(denominator == 0.0, 1.0, denominator)
