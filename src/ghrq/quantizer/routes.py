"""Gradients past the choice of a code: the routes from ẑ and from the losses to the encoder's point z.

``identity``   every stage copies its gradient, ``q̃_i = r_{i-1} + sg[q_i - r_{i-1}]``; on the ball the copies leak from
               stage to stage, because ``∂r_i/∂r_{i-1}`` is not 0.
``transport``  the gradient at ẑ is parallel transported to z in one step; no gradient passes through the stages.

The commitment loss pulls the encoder by all stages (``every``), or by the first one: by its Euclidean gradient
(``first``), or by its Riemannian gradient (``discounted``: times ``(2/λ_z)²``), as ``transport`` does with that of ẑ.

:func:`attached_route` computes any combination as it is defined, with autograd. :func:`transport_route` is the closed
form of the paper's combination, and of flat space.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball, gradients
from ghrq.geometry.nearest import CodeTable, search
from ghrq.quantizer.cascade import Aggregation, Choose, Step, Sum, aggregate, residual, walk
from ghrq.quantizer.depth import RowWeights

Gradient = Literal["transport", "identity"]
Commitment = Literal["first", "every", "discounted"]
Units = Literal["ball", "encoder"]


class Routed(NamedTuple):
    """The result of a route for ``n`` points, ``N`` stages."""

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
    """``N`` tensors ``(n, d)``: the input of each stage, detached."""


def squared_distance(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
    """``d(x, y)²`` on the ball, ``‖x - y‖²`` in flat space. ``(n,)``."""
    return ball.distance(x, y, c).square() if c > 0.0 else (x - y).square().sum(-1)


def attached_route(
    z: Tensor,
    gap: Tensor,
    codebooks: Tensor,
    table: CodeTable,
    c: float,
    rows: RowWeights,
    *,
    aggregation: Aggregation,
    gradient: Gradient,
    commitment: Commitment,
    discount: bool,
    unit: float = 1.0,
    choose: Choose = search,
) -> Routed:
    """Any combination of ``aggregation``, ``gradient`` and ``commitment``, by autograd.

    ``z (n, d)`` and its gaps ``(n, 1)``; ``table`` is that of the ``codebooks``; ``unit`` multiplies the gradient that
    ``transport`` brings from ẑ to z. The codes are those of :func:`walk`, as in every other path; autograd follows the
    cascade along them.
    """
    with torch.no_grad():
        steps = list(walk(z.detach(), gap, table, c, aggregation, codebooks.shape[0], choose))
    r, parts, codebook_loss, commitment_loss = z, [], [], []
    z_gap = ball.gap(z.detach(), c)
    for i, step in enumerate(steps):
        q = codebooks[i].index_select(0, step.chosen)
        weights = rows.stage(i)
        pulled = r if i == 0 or commitment == "every" else r.detach()
        if i == 0 and commitment == "discounted":
            pulled = gradients.weighted(z, z_gap.square())
        codebook_loss.append((weights * squared_distance(r.detach(), q, c)).sum())
        commitment_loss.append((weights * squared_distance(pulled, q.detach(), c)).sum())
        part = gradients.straight_through(r, q) if gradient == "identity" else q.detach()
        parts.append(part if rows.depths is None else torch.where((rows.depths > i).unsqueeze(-1), part, 0.0))
        r = residual(r, part, c, aggregation)
        if gradient == "transport" and commitment != "every":
            r = r.detach()
    total = aggregate(parts, c, aggregation)
    if gradient == "transport":
        total = Sum(gradients.transport_through(z, z_gap, *total, c, discount, unit), total.gap)
    codes, residuals = torch.stack([s.chosen for s in steps], dim=-1), [s.residual for s in steps]
    return Routed(*total, codes, torch.stack(codebook_loss), torch.stack(commitment_loss), residuals)


def transport_route(
    z: Tensor,
    gap: Tensor,
    codebooks: Tensor,
    table: CodeTable,
    c: float,
    rows: RowWeights,
    *,
    aggregation: Aggregation,
    commitment: Commitment,
    discount: bool,
    unit: float = 1.0,
    choose: Choose = search,
) -> Routed:
    """``gradient="transport"`` without ``commitment="every"``, in closed form; at ``c = 0`` the Euclidean estimator.

    Arguments and definition: :func:`attached_route`.

    The gradients of the losses are computed in the forward pass: ``∇_q d(r,q)²`` is a multiple of the left residual
    ``(-q) ⊕ r``, which the cascade computes anyway.
    """
    learning = codebooks.requires_grad and torch.is_grad_enabled()
    with torch.no_grad():
        steps = list(walk(z, gap, table, c, aggregation, codebooks.shape[0], choose))
        first, code_gaps = steps[0], torch.stack([s.code_gap for s in steps])
        weights = rows.stages(len(steps)).unsqueeze(-1)
        squared, factor = gradients.squared_distance(
            torch.stack([s.square for s in steps]), torch.stack([s.gap for s in steps]) * code_gaps, c
        )
        loss = (weights * squared).sum((1, 2))
        weighted = weights * factor
        pull = gradients.squared_distance_gradient(
            first.residual, first.gap, first.code, first.code_gap, first.square, weighted[0], c
        )
        if commitment == "discounted":
            pull = pull * gap.square()
        parts, gaps = [s.code for s in steps], [s.code_gap for s in steps]
        if rows.depths is not None:
            used = [(rows.depths > i).unsqueeze(-1) for i in range(len(steps))]
            parts = [torch.where(u, part, 0.0) for u, part in zip(used, parts, strict=True)]
            gaps = [torch.where(u, part, 1.0) for u, part in zip(used, gaps, strict=True)]
        total = aggregate(parts, c, aggregation, gaps)
        pushes = _pushes(codebooks, steps, weighted / -code_gaps) if learning else None
    codebook_loss, commitment_loss = gradients.stage_losses(loss, codebooks, pushes, z, pull)
    point = gradients.transport_through(z, gap, *total, c, discount, unit)
    codes = torch.stack([s.chosen for s in steps], dim=-1)
    return Routed(point, total.gap, codes, codebook_loss, commitment_loss, [s.residual for s in steps])


def _pushes(codebooks: Tensor, steps: list[Step], factor: Tensor) -> Tensor:
    """Gradient ``(N, K, d)`` of the codebook loss: the sum at each code of ``factor (N, n, 1)`` times ``(-q) ⊕ r``."""
    pushes = torch.zeros_like(codebooks)
    for of_stage, step, share in zip(pushes.unbind(), steps, factor.unbind(), strict=True):
        of_stage.index_add_(0, step.chosen, step.toward * share)
    return pushes
