"""InfoNCE over geodesic distances, with its gradient in closed form.

Each row has one positive and k negatives from a table, so the differences alone are ``(B, k, d)``. They are made,
used and forgotten chunk by chunk, small enough for the cache, and the gradient is written down in the same pass:
autograd would walk over that tensor some twenty times.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ghrq.geometry.function import Function

_CHUNK_ELEMENTS = 200_000


def info_nce(
    anchor: Tensor,
    anchor_gap: Tensor,
    positive: Tensor,
    positive_gap: Tensor,
    table: Tensor,
    table_gap: Tensor,
    negatives: Tensor,
    c: float,
    temperature: float = 1.0,
    itself: bool = True,
) -> Tensor:
    """The mean over rows of ``-log(e^{-d(u,v)/τ} / (1 + e^{-d(u,v)/τ} + Σ_j e^{-d(u,n_j)/τ}))``, a scalar.

    The distance is the ball's; at ``c = 0`` its limit ``2‖x - y‖``, so that both geometries start with the same
    logits next to the origin. The 1 is u itself as a wrong answer, at distance 0.

    Args:
        anchor: the points u ``(B, d)``, and their gaps ``1 - c‖u‖²`` ``(B, 1)``.
        anchor_gap: see there.
        positive: the points v ``(B, d)``, and their gaps ``(B, 1)``.
        positive_gap: see there.
        table: the points ``(n, d)`` that the negatives are rows of, and their gaps ``(n, 1)``.
        table_gap: see there.
        negatives: row numbers ``(B, k)``, int64.
        c: curvature of the ball, 0 or above. Gaps count as functions of their points.
        temperature: τ.
        itself: whether the 1 is there.

    """
    points = anchor, anchor_gap, positive, positive_gap, table, table_gap
    return _InfoNCE.apply(*points, negatives, c, temperature, itself)[0]


class _InfoNCE(Function):
    @staticmethod
    def forward(
        u: Tensor,
        alpha: Tensor,
        v: Tensor,
        beta: Tensor,
        table: Tensor,
        gaps: Tensor,
        negatives: Tensor,
        c: float,
        temperature: float,
        itself: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, k = negatives.shape
        alpha, beta, gaps = alpha.to(u.dtype), beta.to(u.dtype), gaps.to(u.dtype)
        for_u, for_v, for_table = torch.empty_like(u), torch.empty_like(v), torch.zeros_like(table)
        losses = u.new_empty(rows)
        size = max(1, _CHUNK_ELEMENTS // (k * u.shape[1]))
        for start in range(0, rows, size):
            at = slice(start, start + size)
            x, gap = u[at].unsqueeze(1), alpha[at].unsqueeze(1)
            drawn = negatives[at].reshape(-1)
            n, n_gap = table[drawn].view(-1, k, u.shape[1]), gaps[drawn].view(-1, k, 1)
            near, far = _Pairs(x, gap, v[at].unsqueeze(1), beta[at].unsqueeze(1), c), _Pairs(x, gap, n, n_gap, c)
            logits = torch.cat((near.distance, far.distance, torch.zeros_like(near.distance)[:, : int(itself)]), dim=1)
            log_share = logits.div_(-temperature).log_softmax(dim=1)
            losses[at] = -log_share[:, 0, 0]
            # How the mean loss changes with each distance: it falls with the negatives', rises with the positive's.
            slope = log_share.exp_().div_(-rows * temperature)
            slope[:, 0] += 1.0 / (rows * temperature)
            from_near, to_near = near.gradients(slope[:, :1])
            from_far, to_far = far.gradients(slope[:, 1 : k + 1])
            for_u[at] = from_near + from_far
            for_v[at] = to_near.squeeze(1)
            for_table.index_put_((drawn,), to_far.view(-1, u.shape[1]), accumulate=True)
        return losses.mean(), for_u, for_v, for_table

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        for_u, for_v, for_table = ctx.saved_tensors
        return grad * for_u, None, grad * for_v, None, grad * for_table, None, None, None, None, None


class _Pairs:
    """Points ``x (b, 1, d)`` against ``y (b, k, d)``: distances ``(b, k, 1)`` and what they pass back."""

    def __init__(self, x: Tensor, alpha: Tensor, y: Tensor, beta: Tensor, c: float) -> None:
        self.x, self.alpha, self.y, self.beta, self.c = x, alpha, y, beta, c
        self.delta = y - x
        self.square = torch.linalg.vecdot(self.delta, self.delta).unsqueeze(-1)
        gaps = alpha * beta
        self.sum = gaps + c * self.square
        ratio = self.square / gaps
        if c == 0.0:
            self.distance = 2.0 * ratio.sqrt()
        else:
            self.distance = (2.0 / c**0.5) * (c * ratio).sqrt().asinh()

    def gradients(self, slope: Tensor) -> tuple[Tensor, Tensor]:
        """``Σ_j s_j ∇_x d_j`` ``(b, d)`` and ``s_j ∇_y d_j`` ``(b, k, d)`` for slopes ``s (b, k, 1)``.

        ``∇_y d = k (δ + c‖δ‖²/β y)``, ``∇_x d = k (-δ + c‖δ‖²/α x)``, ``k = 2 / (‖δ‖ √(αβ + c‖δ‖²))``; 0 at δ = 0.
        """
        k = slope * 2.0 / (self.square * self.sum).sqrt().clamp(min=torch.finfo(slope.dtype).tiny)
        k = torch.where(self.square == 0.0, 0.0, k)
        chord = self.c * self.square * k
        to_x = (chord.sum(1) / self.alpha.squeeze(1)) * self.x.squeeze(1) - (k.mT @ self.delta).squeeze(1)
        return to_x, (self.delta * k).addcmul_(self.y, chord / self.beta)
