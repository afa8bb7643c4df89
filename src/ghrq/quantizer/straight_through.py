"""How gradients get past the choice of a code: the routes from ẑ and from the losses to the encoder's point z.

``identity``   every stage copies its gradient, ``q̃_i = r_{i-1} + sg[q_i - r_{i-1}]``; on the ball the copies leak from
               stage to stage, because ``∂r_i/∂r_{i-1}`` is not 0.
``transport``  one hop: the gradient at ẑ is parallel transported to z, and the cascade itself is closed.

:func:`attached_route` writes any combination down as it is defined and leaves the derivative to autograd.
:func:`transport_route` is the closed form of the paper's combination, and of flat space, several times faster.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ghrq.geometry import ball, numerics
from ghrq.geometry.function import Function
from ghrq.geometry.nearest import code_table, nearest
from ghrq.quantizer.cascade import Aggregation, Step, Sum, aggregate, residual, walk

Gradient = Literal["transport", "identity"]
Commitment = Literal["first", "every"]


class Rows(NamedTuple):
    """Which of ``n`` rows count, and how deep they go."""

    weights: Tensor
    """``(n,)`` the share of each row in a mean over rows; they add up to 1."""
    depths: Tensor | None
    """``(n,)`` the number of stages each row uses, or None for all."""

    def stage(self, index: int) -> Tensor:
        """``(n,)`` the weights at one stage."""
        return self.weights if self.depths is None else self.weights * (self.depths > index)

    def stages(self, count: int) -> Tensor:
        """``(count, n)`` the weights at all stages."""
        if self.depths is None:
            return self.weights.expand(count, -1)
        return torch.stack([self.stage(i) for i in range(count)])


class Routed(NamedTuple):
    """What a route hands back for ``n`` points, ``N`` stages."""

    point: Tensor
    """``(n, d)`` ẑ, with the route's gradient to z."""
    gap: Tensor
    """``(n, 1)`` the gap of ẑ."""
    codes: Tensor
    """``(n, N)``"""
    codebook_loss: Tensor
    """``(N,)`` mean ``d(sg r_{i-1}, q_i)²``."""
    commitment_loss: Tensor
    """``(N,)`` mean ``d(r_{i-1}, sg q_i)²``."""
    residuals: list[Tensor]
    """``N`` tensors ``(n, d)``: what came into each stage, without a graph."""


def squared_distance(x: Tensor, y: Tensor, c: float) -> Tensor:
    """``d(x, y)²`` on the ball, ``‖x - y‖²`` in flat space. ``(n,)``."""
    return ball.distance(x, y, c).square() if c > 0.0 else (x - y).square().sum(-1)


def straight_through(x: Tensor, value: Tensor) -> Tensor:
    """``value``, with the gradient of ``x``."""
    return x + (value - x).detach()


def hop(z: Tensor, gap: Tensor, z_hat: Tensor, hat_gap: Tensor, c: float, discount: bool) -> Tensor:
    """``ẑ``, whose gradient g reaches ``z`` in one hop, as ``P̃_{ẑ→z} g``, or undiscounted as ``λ_z² P̃_{ẑ→z} g``."""
    if c == 0.0:
        return straight_through(z, z_hat)
    return _Hop.apply(z, gap, z_hat, hat_gap, c, discount)


def attached_route(
    z: Tensor,
    codebooks: Tensor,
    c: float,
    rows: Rows,
    *,
    aggregation: Aggregation,
    gradient: Gradient,
    commitment: Commitment,
    discount: bool,
) -> Routed:
    """Any combination of the axes, written as it is defined; autograd does the rest. ``z (n, d)``."""
    r, parts, codes, residuals, codebook_loss, commitment_loss = z, [], [], [], [], []
    for i in range(codebooks.shape[0]):
        index = nearest(r.detach(), codebooks[i].detach(), c)
        q = codebooks[i].index_select(0, index)
        weights = rows.stage(i)
        pulled = r if i == 0 or commitment == "every" else r.detach()
        codebook_loss.append((weights * squared_distance(r.detach(), q, c)).sum())
        commitment_loss.append((weights * squared_distance(pulled, q.detach(), c)).sum())
        part = straight_through(r, q) if gradient == "identity" else q.detach()
        parts.append(part if rows.depths is None else torch.where((rows.depths > i).unsqueeze(-1), part, 0.0))
        codes.append(index)
        residuals.append(r.detach())
        r = residual(r, part, c, aggregation)
        if gradient == "transport" and commitment == "first":
            r = r.detach()
    total = aggregate(parts, c, aggregation)
    if gradient == "transport":
        total = Sum(hop(z, ball.gap(z.detach(), c), *total, c, discount), total.gap)
    return Routed(*total, torch.stack(codes, -1), torch.stack(codebook_loss), torch.stack(commitment_loss), residuals)


def transport_route(
    z: Tensor, gap: Tensor, codebooks: Tensor, c: float, rows: Rows, *, aggregation: Aggregation, discount: bool
) -> Routed:
    """``gradient="transport", commitment="first"`` in closed form; at ``c = 0`` the ordinary Euclidean estimator.

    ``z (n, d)`` and its gaps ``(n, 1)``.

    The losses' gradients are simple enough to be found on the way down: ``∇_q d(r,q)²`` is a multiple of the
    left residual ``(-q) ⊕ r``, which the cascade computes anyway.
    """
    learning = codebooks.requires_grad and torch.is_grad_enabled()
    with torch.no_grad():
        steps = list(walk(z, gap, code_table(codebooks, c), c, aggregation, codebooks.shape[0]))
        code_gaps = torch.stack([s.code_gap for s in steps])
        weights = rows.stages(len(steps)).unsqueeze(-1)
        squared, force = _force(
            torch.stack([s.square for s in steps]), torch.stack([s.gap for s in steps]) * code_gaps, c
        )
        loss = (weights * squared).sum((1, 2))
        weighted = weights * force
        pushes = _push(codebooks, steps, weighted / -code_gaps) if learning else None
        pull = _pull(steps[0], c, weighted[0])
        parts, gaps = [s.code for s in steps], [s.code_gap for s in steps]
        if rows.depths is not None:
            used = [(rows.depths > i).unsqueeze(-1) for i in range(len(steps))]
            parts = [torch.where(u, part, 0.0) for u, part in zip(used, parts, strict=True)]
            gaps = [torch.where(u, part, 1.0) for u, part in zip(used, gaps, strict=True)]
        total = aggregate(parts, c, aggregation, gaps)
    codebook_loss, commitment_loss = _Losses.apply(codebooks, z, loss, pushes, pull)
    point = hop(z, gap, *total, c, discount)
    codes = torch.stack([s.chosen for s in steps], dim=-1)
    residuals = [s.residual for s in steps]
    return Routed(point, total.gap, codes, codebook_loss, commitment_loss, residuals)


def _force(square: Tensor, gaps: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """``d(r, q)²`` and the factor f of its gradient ``∇_q d² = -f/β · (-q) ⊕ r``.

    From ``‖r - q‖²`` and the product of the gaps of r and q. With ``u = c‖r - q‖²/(αβ)``:
    ``d² = 4/c · asinh²(√u)`` and ``f = 8 asinh(√u)/√u · √(1 + u)``.
    """
    if c == 0.0:
        return square, torch.full_like(square, 2.0)
    u = c * square / gaps
    t = u.sqrt().clamp(min=torch.finfo(u.dtype).tiny)
    asinh = numerics.asinh(t)  # torch's own is not vectorized
    return asinh.square() * (4.0 / c), asinh / t * (1.0 + u).sqrt() * 8.0


def _push(codebooks: Tensor, steps: list[Step], factor: Tensor) -> Tensor:
    """The codebook loss's gradient ``(N, K, d)``: each row's left residual times ``factor (N, n, 1)``, at its code."""
    pushes = torch.zeros_like(codebooks)
    for of_stage, step, share in zip(pushes.unbind(), steps, factor.unbind(), strict=True):
        of_stage.index_add_(0, step.chosen, step.toward * share)
    return pushes


def _pull(step: Step, c: float, weighted: Tensor) -> Tensor:
    """``w ∇_r d(r, q)²``, shape ``(n, d)``: minus ``w f/α`` times ``(-r) ⊕ q``; ``weighted = w f``."""
    if c == 0.0:
        return weighted * step.toward
    share = weighted / torch.add(step.gap * step.code_gap, step.square, alpha=c)
    return ((step.residual - step.code) * share).addcmul_(step.residual, share * step.square / step.gap, value=c)


# The two functions below differ from what autograd would derive, or know it already; none has a second derivative.


class _Hop(Function):
    @staticmethod
    def forward(z: Tensor, gap: Tensor, z_hat: Tensor, hat_gap: Tensor, c: float, discount: bool) -> Tensor:
        return z_hat.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.c, ctx.discount = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        z, gap, z_hat, hat_gap = ctx.saved_tensors
        grad = ball.discounted_transport_with_gaps(grad, z_hat, hat_gap, z, gap, ctx.c)
        if not ctx.discount:
            grad = grad * (2.0 / gap).square().to(grad.dtype)
        return grad, None, None, None, None, None


class _Losses(Function):
    """The loss ``(N,)`` of each stage as codebook and as commitment loss, whose gradients are known.

    ``pushes (N, K, d)``, or None, are those by the codebooks of all stages, ``pull (n, d)`` is that of the first by z.
    """

    @staticmethod
    def forward(
        codebooks: Tensor, z: Tensor, loss: Tensor, pushes: Tensor | None, pull: Tensor
    ) -> tuple[Tensor, Tensor]:
        return loss.clone(), loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, codebook: Tensor, commitment: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        pushes, pull = ctx.saved_tensors
        push = None if pushes is None else pushes * codebook.view(-1, 1, 1)
        return push, pull * commitment[0], None, None, None
