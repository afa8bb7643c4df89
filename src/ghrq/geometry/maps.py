"""Onto the ball and back, at the origin, with their derivatives written out.

:func:`ball.expmap0` and :func:`ball.logmap0` are the same maps for every use; these are the ones of a training step,
where a derivative left to autograd would cost more than the search. Gaps are handed on, not measured on rounded points:
both maps are right where no float32 point of the ball is left.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ghrq.geometry import ball, numerics
from ghrq.geometry.function import Function


def to_ball(v: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """The exponential map of vectors ``v (n, d)``: points ``(n, d)`` and their gaps ``1/cosh²(√c‖v‖)``, ``(n, 1)``."""
    if c == 0.0:
        return v, torch.ones_like(v[..., :1])
    point, gap, *_ = _ToBall.apply(v, c)
    return point, gap


def from_ball(point: Tensor, gap: Tensor, c: float) -> Tensor:
    """The logarithmic map of points ``(..., d)`` with known gaps ``(..., 1)``: tangent vectors ``(..., d)``.

    A gap that carries a gradient of its own is differentiated as it is; otherwise it counts as the point's.
    """
    if c == 0.0:
        return point
    if gap.requires_grad:
        return ball.logmap0_with_gap(point, gap, c)
    return _FromBall.apply(point, gap.to(point.dtype), c)[0]


# Both hand out what their derivatives need again, too.


class _ToBall(Function):
    """``p = tanh(t̄)/t · v`` with ``t = √c‖v‖`` and ``t̄`` = t, but no longer than the type can tell from the boundary.

    ``Jᵀg = f g + (ρ/cosh²(t̄) - f)/‖v‖² ⟨v,g⟩ v`` with ``f = tanh(t̄)/t`` and ``ρ = t̄/t``, a constant.
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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None]:
        v, gap, norm, factor, short = ctx.saved_tensors
        share = short / (math.sqrt(ctx.c) * norm)
        along = (share * gap - factor) / norm.square() * (v * grad).sum(-1, keepdim=True)
        return (grad * factor.to(v.dtype)).addcmul_(v, along.to(v.dtype)), None


class _FromBall(Function):
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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        point, gap, norm, factor = ctx.saved_tensors
        along = (gap.reciprocal() - factor) / norm.square() * (point * grad).sum(-1, keepdim=True)
        return (grad * factor).addcmul_(point, along), None, None
