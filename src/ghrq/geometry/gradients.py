"""Functions of the ball with closed-form gradients, for training steps.

Each one names its definition in :mod:`ghrq.geometry.ball`, where autograd finds the gradient. The tests compare value
and gradient of both. "Gain" in a comment is the time of a training step with the definition divided by its time with
the closed form: ``python benchmarks/tricks.py``, one thread.

Gaps ``1 - c‖x‖²`` are passed along with the points instead of being computed from rounded points: so the maps are exact
even where float32 has no points left inside the boundary. None of these functions has a second derivative.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ghrq.geometry import ball, numerics


def _once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward pass: a second derivative is an error, also where the incoming gradient is a constant.

    torch's ``once_differentiable`` takes that for a result without a derivative, and leaves it out silently. Results of
    ``torch.func.vjp`` seem to need a gradient then: detach them.
    """
    once = once_differentiable(backward)

    @functools.wraps(backward)
    def refusing(ctx: Any, *grads: Tensor) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True
            variable = grads[0].new_zeros((), requires_grad=True)  # torch.func does not let a tensor become one
            grads = tuple(grad + variable for grad in grads)
        return once(ctx, *grads)

    return refusing


# --- maps at the origin: gain 1.13 in the step of a quantizer ------------------------------------------------


def to_ball(v: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """:func:`ball.expmap0` of ``v (n, d)``: points ``(n, d)`` and their gaps ``1/cosh²(√c‖v‖)``, ``(n, 1)``."""
    if c == 0.0:
        return v, torch.ones_like(v[..., :1])
    point, gap, *_ = _ToBall.apply(v, c)
    return point, gap


def from_ball(point: Tensor, gap: Tensor, c: float) -> Tensor:
    """:func:`ball.logmap0_with_gap` of points ``(..., d)`` with known gaps ``(..., 1)``: tangent vectors ``(..., d)``.

    If ``gap`` requires a gradient, autograd differentiates it. Otherwise the gap counts as a function of the point.
    """
    if c == 0.0:
        return point
    if gap.requires_grad:
        return ball.logmap0_with_gap(point, gap, c)
    # float32 rounds small float64 gaps to 0, of which there is no logarithm.
    return _FromBall.apply(point, gap.to(point.dtype).clamp(min=numerics.least_gap(point.dtype)), c)[0]


class _ToBall(torch.autograd.Function):
    """``p = tanh(t̄)/t · v`` with ``t = √c‖v‖`` and ``t̄ = min(t, artanh(max_radius))``.

    ``Jᵀg = f g + (ρ/cosh²(t̄) - f)/‖v‖² ⟨v,g⟩ v`` with ``f = tanh(t̄)/t`` and the constant ``ρ = t̄/t``.
    The outputs after the first two are saved for the backward pass.
    """

    @staticmethod
    def forward(v: Tensor, c: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        norm = numerics.norm(v).clamp_(min=torch.finfo(torch.float32).tiny)
        t = math.sqrt(c) * norm
        short = t.clamp(max=math.atanh(ball.max_radius(v.dtype)))
        factor = short.tanh() / t
        gap = numerics.inverse_cosh_square(short).to(v.dtype)
        return v * factor.to(v.dtype), gap, norm, factor, short

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, ...]) -> None:
        v, ctx.c = inputs
        ctx.save_for_backward(v, *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None]:
        v, gap, norm, factor, short = ctx.saved_tensors
        share = short / (math.sqrt(ctx.c) * norm)
        if not numerics.below(norm, 1e15):  # the result depends on the direction of v only, and squares would overflow
            scale = torch.where(norm > 1e15, 1.0 / norm, 1.0)
            v, norm = v * scale.to(v.dtype), norm * scale
        along = (share * gap - factor) / norm.square() * (v * grad).sum(-1, keepdim=True)
        return (grad * factor.to(v.dtype)).addcmul_(v, along.to(v.dtype)), None


class _FromBall(torch.autograd.Function):
    """``v = A y`` with ``A = asinh(√u)/√(uβ)``, ``u = c‖y‖²/β``; ``Jᵀg = A g + (1/β - A)/‖y‖² ⟨y,g⟩ y``."""

    @staticmethod
    def forward(point: Tensor, gap: Tensor, c: float) -> tuple[Tensor, Tensor, Tensor]:
        norm = torch.linalg.vector_norm(point, dim=-1, keepdim=True).clamp_(min=torch.finfo(point.dtype).tiny ** 0.5)
        t = math.sqrt(c) * norm
        factor = numerics.asinh(t / gap.sqrt()) / t
        return point * factor, norm, factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, ...]) -> None:
        point, gap, _ = inputs
        ctx.save_for_backward(point, gap, *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        point, gap, norm, factor = ctx.saved_tensors
        along = (gap.reciprocal() - factor) / norm.square() * (point * grad).sum(-1, keepdim=True)
        return (grad * factor).addcmul_(point, along), None, None


# --- past the choice of a code: gain 3.5 in the step of a quantizer ------------------------------------------


def straight_through(x: Tensor, value: Tensor) -> Tensor:
    """``value``, to the last bit, with the gradient of ``x``."""
    return value.detach() + (x - x.detach())


def also_by(value: Tensor, x: Tensor) -> Tensor:
    """``value``, to the last bit, with its own gradient and that of ``x``."""
    return value + (x - x.detach())


def weighted(x: Tensor, weight: Tensor) -> Tensor:
    """``x``; its gradient reaches x multiplied by ``weight``."""
    return x.detach() + weight * (x - x.detach())


def transport_through(
    z: Tensor, gap: Tensor, z_hat: Tensor, hat_gap: Tensor, c: float, discount: bool, unit: float = 1.0
) -> Tensor:
    """``ẑ``; its gradient g reaches ``z`` as ``u P̃_{ẑ→z} g``, or as ``u λ_z² P̃_{ẑ→z} g`` without the discount.

    ``P̃`` is :func:`ball.discounted_transport`, u is ``unit``. Points are ``(n, d)``, gaps ``(n, 1)``.
    """
    if c == 0.0:
        return straight_through(z, z_hat)
    return _TransportThrough.apply(z, gap, z_hat, hat_gap, c, discount, unit)


class _TransportThrough(torch.autograd.Function):
    @staticmethod
    def forward(
        z: Tensor, gap: Tensor, z_hat: Tensor, hat_gap: Tensor, c: float, discount: bool, unit: float
    ) -> Tensor:
        return z_hat.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.c, ctx.discount, ctx.unit = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, gap, z_hat, hat_gap = ctx.saved_tensors
        grad = ball.discounted_transport_with_gaps(grad, z_hat, hat_gap, z, gap, ctx.c, ctx.unit)
        if not ctx.discount:
            grad = grad * (2.0 / gap).square().to(grad.dtype)
        return grad, None, None, None, None, None, None


def stage_losses(
    loss: Tensor, codebooks: Tensor, pushes: Tensor | None, z: Tensor, pull: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss ``(N,)`` of the stages as codebook loss and as commitment loss, with known gradients.

    ``pushes (N, K, d)``, or None, are the gradients by the ``codebooks (N, K, d)``; ``pull (n, d)`` is that of the
    first stage by ``z (n, d)``. One function with two outputs: two calls of :func:`known` cost 2 % of a step.
    """
    return _StageLosses.apply(loss, codebooks, pushes, z, pull)


class _StageLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        loss: Tensor, codebooks: Tensor, pushes: Tensor | None, z: Tensor, pull: Tensor
    ) -> tuple[Tensor, Tensor]:
        return loss.clone(), loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[2], inputs[4])

    @staticmethod
    @_once
    def backward(ctx: Any, codebook: Tensor, commitment: Tensor) -> tuple[Tensor | None, ...]:
        pushes, pull = ctx.saved_tensors
        push = None if pushes is None else pushes * codebook.view(-1, 1, 1)
        return None, push, None, pull * commitment[0], None


def known(value: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
    """``value ()``, whose gradient by ``x`` is ``gradient``, of the shape of x.

    Calls can be chained for several ``x``: ``value`` keeps the gradients that it has already.
    """
    return _Known.apply(value, x, gradient)


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(value: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return grad, grad * gradient, None


# --- distances: gain 2.2 in a step of InfoNCE ----------------------------------------------------------------


def squared_distance(square: Tensor, gaps: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """``d(r, q)²`` (:func:`ball.distance`; in flat space ``‖r - q‖²``) and the factor f of its gradients.

    ``∇_q d² = -f/β · (-q) ⊕ r`` and ``∇_r d² = -f/α · (-r) ⊕ q``, with the gaps ``α`` of r and ``β`` of q.
    From ``square = ‖r - q‖²`` and ``gaps = αβ``; with ``u = c‖r - q‖²/(αβ)``:
    ``d² = 4/c · asinh²(√u)`` and ``f = 8 asinh(√u)/√u · √(1 + u)``.
    """
    if c == 0.0:
        return square, torch.full_like(square, 2.0)
    u = c * square / gaps
    t = u.sqrt().clamp(min=torch.finfo(u.dtype).tiny)
    asinh = numerics.asinh(t)
    return asinh.square() * (4.0 / c), asinh / t * (1.0 + u).sqrt() * 8.0


def squared_distance_gradient(
    r: Tensor, alpha: Tensor, q: Tensor, beta: Tensor, square: Tensor, weighted: Tensor, c: float
) -> Tensor:
    """``w ∇_r d(r, q)²``, ``(n, d)``, from ``weighted = w f``; f, square: see :func:`squared_distance`."""
    if c == 0.0:
        return weighted * (r - q)
    share = weighted / torch.add(alpha * beta, square, alpha=c)
    return ((r - q) * share).addcmul_(r, share * square / alpha, value=c)


class Distances:
    """:func:`ball.distance` of points ``x (b, 1, d)`` and ``y (b, k, d)`` with their gaps: ``value (b, k, 1)``."""

    def __init__(self, x: Tensor, alpha: Tensor, y: Tensor, beta: Tensor, c: float) -> None:
        self.x, self.alpha, self.y, self.beta, self.c = x, alpha, y, beta, c
        self.delta = y - x
        self.square = torch.linalg.vecdot(self.delta, self.delta).unsqueeze(-1)
        gaps = alpha * beta
        self.sum = gaps + c * self.square
        ratio = self.square / gaps
        self.value = 2.0 * ratio.sqrt() if c == 0.0 else (2.0 / c**0.5) * (c * ratio).sqrt().asinh()

    def gradients(self, slope: Tensor) -> tuple[Tensor, Tensor]:
        """``Σ_j s_j ∇_x d_j`` ``(b, d)`` and ``s_j ∇_y d_j`` ``(b, k, d)`` for slopes ``s (b, k, 1)``.

        ``∇_y d = k (δ + c‖δ‖²/β y)``, ``∇_x d = k (-δ + c‖δ‖²/α x)``, ``k = 2 / (‖δ‖ √(αβ + c‖δ‖²))``; 0 at δ = 0.
        """
        k = slope * 2.0 / (self.square * self.sum).sqrt().clamp(min=torch.finfo(slope.dtype).tiny)
        k = torch.where(self.square == 0.0, 0.0, k)
        chord = self.c * self.square * k
        to_x = (chord.sum(1) / self.alpha.squeeze(1)) * self.x.squeeze(1) - (k.mT @ self.delta).squeeze(1)
        return to_x, (self.delta * k).addcmul_(self.y, chord / self.beta)
