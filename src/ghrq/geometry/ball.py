"""The Poincaré ball as pure functions on tensors.

Points, tangent vectors and gradients are plain tensors ``(..., d)`` that broadcast against each other.
``c`` is the curvature parameter of the ball ``{x : c‖x‖² < 1}`` (its sectional curvature is ``-c``): a float,
or a tensor of shape ``()`` or ``(..., 1)``, which may require a gradient. ``c = 0`` is flat space as the limit
of the ball, where every conformal factor is 2 and every distance ``2‖x - y‖``.

Near the boundary the textbook formulas subtract nearly equal numbers and lose all their digits. The forms used
here do not. They are written in the *gaps* ``α = 1 - c‖x‖²`` and ``β = 1 - c‖y‖²``, which are accumulated in
float64 (one number per row), and in differences ``δ = y - x``, which floating point computes exactly for close
points. The vectors themselves keep their type.

Half precision is computed in float32 and returned in the type of the input.
"""

import math

import torch
from torch import Tensor

from ghrq.geometry import numerics
from ghrq.geometry.numerics import Curvature

__all__ = [
    "conformal_factor",
    "discounted_transport",
    "discounted_transport_with_gaps",
    "distance",
    "distance_from_length",
    "expmap",
    "expmap0",
    "gap",
    "gyration",
    "logmap",
    "logmap0",
    "logmap0_with_gap",
    "max_radius",
    "midpoint",
    "midpoint_weights",
    "mobius_add",
    "mobius_add_with_gaps",
    "mobius_sub",
    "pairwise_distance",
    "project",
    "transport",
]


# --- points and their gaps -----------------------------------------------------------------------------------


def max_radius(dtype: torch.dtype) -> float:
    """The largest ``√c‖x‖`` that :func:`project` and the exponential maps produce in ``dtype``: one ulp inside 1.

    Rounding a vector moves its norm by at most half an ulp, so a point at this radius is always inside the ball. In
    float64 the norm that it is scaled by is rounded as well: there it is eight.

    Examples:
        >>> ball.max_radius(torch.float32) < 1.0
        True

    """
    return 1.0 - (8.0 if dtype == torch.float64 else 1.0) * torch.finfo(dtype).eps


def gap(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """The gap ``1 - c‖x‖²`` between a point and the boundary, shape ``(..., 1)``, in float64.

    It has full relative precision, however small it is. It is at least the gap of a point that :func:`project` leaves
    unchanged: points on or outside the boundary get that gap, and keep their gradient.

    Examples:
        >>> ball.gap(torch.tensor([0.6, 0.8]) / 2)
        tensor([0.7500], dtype=torch.float64)

    """
    x, c = numerics.computable(x), numerics.checked(c)
    wide = numerics.wide_dtype(x)
    plain = 1.0 - c * numerics.square_norm(x)
    with torch.no_grad():
        true = plain
        if x.dtype == wide:
            true = numerics.compensated_gap(x, c)
            true = torch.where(true.isfinite(), true, plain)  # its products overflow earlier
        true = true.clamp(min=torch.finfo(x.dtype).eps)
    # The value of `true` with the gradient of `plain`; true - plain would round: -1599 + (eps + 1599).
    return true.detach() + (plain - plain.detach())


def project(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """Pull points on or beyond the boundary back to :func:`max_radius`; leave all others alone. ``(..., d)``.

    The scaling is a constant for the gradient, so that a point outside the ball still gets a gradient.

    Examples:
        >>> ball.project(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])

    """
    dtype = numerics.result_type(x)
    x, c = numerics.computable(x), numerics.checked(c)
    return numerics.shrink(x, c, max_radius(dtype)).to(dtype)


def conformal_factor(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """``λ_x = 2 / (1 - c‖x‖²)``, shape ``(..., 1)``.

    Examples:
        >>> ball.conformal_factor(torch.tensor([[0.0, 0.0], [0.6, 0.0]]))
        tensor([[2.0000],
                [3.1250]])

    """
    return (2.0 / gap(x, c)).to(numerics.result_type(x))


# --- the gyrogroup -------------------------------------------------------------------------------------------


def mobius_add(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Möbius addition ``x ⊕ y = (α s + c‖s‖² x) / (αβ + c‖s‖²)`` with ``s = x + y``. ``(..., d)``.

    Examples:
        >>> ball.mobius_add(torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5]))
        tensor([0.5882, 0.3529])

    """
    dtype = numerics.result_type(x, y)
    x, y = numerics.computable(x), numerics.computable(y)
    result, _ = mobius_add_with_gaps(x, gap(x, c), y, gap(y, c), c)
    with torch.no_grad():
        to_x = torch.where((y == 0.0).all(-1, keepdim=True), x - result, 0.0)
    return (result + to_x).to(dtype)  # x ⊕ 0 is x, to the last bit


def mobius_add_with_gaps(x: Tensor, alpha: Tensor, y: Tensor, beta: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """``x ⊕ y`` and its gap ``αβ / (αβ + c‖x+y‖²)``, from the gaps ``α, β (..., 1)`` of float32 or float64 points.

    A chain of sums that passes its gaps on this way keeps them exact to the digits of their type, even where the
    points themselves have been rounded onto the boundary.
    """
    c = numerics.checked(c)
    s = x + y
    gaps, cs = alpha * beta, c * numerics.square_norm(s, alpha.dtype)
    denominator = gaps + cs
    return numerics.combine(alpha / denominator, s, cs / denominator, x), gaps / denominator


def mobius_sub(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """The left residual ``(-x) ⊕ y = (α δ - c‖δ‖² x) / (αβ + c‖δ‖²)`` with ``δ = y - x``. ``(..., d)``.

    Adding ``x`` on the left undoes it exactly: ``x ⊕ ((-x) ⊕ y) = y``.

    Examples:
        >>> x, y = torch.tensor([0.5, 0.0]), torch.tensor([0.1, 0.2])
        >>> ball.mobius_add(x, ball.mobius_sub(x, y))
        tensor([0.1000, 0.2000])

    """
    return mobius_add(-x, y, c)


def gyration(u: Tensor, v: Tensor, w: Tensor, c: Curvature = 1.0) -> Tensor:
    """The rotation ``gyr[u, v] w`` that makes Möbius addition associative: ``u⊕(v⊕w) = (u⊕v)⊕gyr[u,v]w``.

    ``w`` is any vector ``(..., d)``, not only a point of the ball.

    Examples:
        >>> u, v, w = torch.tensor([[0.5, 0.0], [0.0, 0.5], [0.3, 0.1]])
        >>> left = ball.mobius_add(u, ball.mobius_add(v, w))
        >>> right = ball.mobius_add(ball.mobius_add(u, v), ball.gyration(u, v, w))
        >>> torch.allclose(left, right)
        True

    """
    dtype = numerics.result_type(u, v, w)
    return _rotate(w, -v, gap(v, c), u, gap(u, c), c).to(dtype)


# --- distances -----------------------------------------------------------------------------------------------


def distance(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Geodesic distance ``(2/√c) asinh(√c‖y - x‖ / √(αβ))``, shape ``(...)``.

    At coincident points it and its gradient are 0.

    Examples:
        >>> ball.distance(torch.zeros(2), torch.tensor([[0.5, 0.0], [0.9, 0.0]]))
        tensor([1.0986, 2.9444])

    """
    dtype = numerics.result_type(x, y)
    x, y, c = numerics.computable(x), numerics.computable(y), numerics.checked(c)
    length = numerics.norm(y - x)
    return distance_from_length(length, gap(x, c) * gap(y, c), c).squeeze(-1).to(dtype)


def distance_from_length(length: Tensor, gaps: Tensor, c: Curvature) -> Tensor:
    """The distance of points with ``length = ‖y - x‖`` and ``gaps = αβ``; smooth in ``c`` at 0."""
    square = length.square().clamp(max=min(numerics.LARGEST_SQUARE, torch.finfo(length.dtype).max))
    return 2.0 * length / gaps.sqrt() * numerics.asinhc(c * square / gaps)


def pairwise_distance(x: Tensor, codes: Tensor, c: Curvature = 1.0) -> Tensor:
    """Every distance between ``x (N, d)`` and ``codes (K, d)``: ``(N, K)``, computed exactly in float64.

    Vectors longer than 1e150, far outside the ball, overflow: :func:`project` them first.
    For tests and small work; :func:`ghrq.geometry.nearest.nearest` finds the nearest code by one matrix product.

    Examples:
        >>> ball.pairwise_distance(torch.zeros(3, 2), torch.tensor([[0.5, 0.0], [0.0, 0.9]])).shape
        torch.Size([3, 2])

    """
    dtype = numerics.result_type(x, codes)
    x, codes, c = numerics.computable(x), numerics.computable(codes), numerics.checked(c)
    wide = numerics.wide_dtype(x)
    left, right = x.to(wide), codes.to(wide)
    with torch.no_grad():
        length = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
        slope = torch.where(length > 0.0, 0.5 / length, 0.0)
    # cdist is precise; its derivative is wrong under torch.func.jacrev (2.13), so that of the square is used.
    square = left.square().sum(-1).unsqueeze(-1) + right.square().sum(-1).unsqueeze(-2) - 2.0 * left @ right.mT
    length = length.detach() + slope.detach() * (square - square.detach())
    return distance_from_length(length, gap(x, c) * gap(codes, c).mT, c).to(dtype)


# --- exponential and logarithm -------------------------------------------------------------------------------


def expmap0(v: Tensor, c: Curvature = 1.0) -> Tensor:
    """From the tangent space at the origin onto the ball: ``tanh(√c‖v‖) v / (√c‖v‖)``. ``(..., d)``.

    Tangent vectors too long for their type are shortened to the one that reaches :func:`max_radius`, by a factor
    that is constant for the gradient: an encoder whose output has become too long still gets a gradient.

    Examples:
        >>> ball.expmap0(torch.tensor([[0.5, 0.0], [50.0, 0.0]]))
        tensor([[0.4621, 0.0000],
                [1.0000, 0.0000]])

    """
    dtype = numerics.result_type(v)
    v, c = numerics.computable(v), numerics.checked(c)
    v = numerics.shrink(v, c, math.atanh(max_radius(dtype)))
    return (v * numerics.tanhc(c * numerics.square_norm(v)).to(v.dtype)).to(dtype)


def logmap0(y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Back from the ball to the tangent space at the origin: ``artanh(√c‖y‖) y / (√c‖y‖)``. ``(..., d)``.

    Examples:
        >>> ball.logmap0(ball.expmap0(torch.tensor([0.5, 0.2])))
        tensor([0.5000, 0.2000])

    """
    dtype = numerics.result_type(y)
    y = numerics.computable(y)
    return logmap0_with_gap(y, gap(y, c), c).to(dtype)


def logmap0_with_gap(y: Tensor, beta: Tensor, c: Curvature) -> Tensor:
    """:func:`logmap0` of a float32 or float64 point whose gap ``β (..., 1)`` is known better than by measuring it."""
    c = numerics.checked(c)
    return y * (numerics.asinhc(c * numerics.square_norm(y, beta.dtype) / beta) / beta.sqrt()).to(y.dtype)


def expmap(x: Tensor, v: Tensor, c: Curvature = 1.0) -> Tensor:
    """Follow the geodesic that leaves ``x`` with velocity ``v``: ``x ⊕ (tanh(√c λ_x‖v‖/2) v / (√c‖v‖))``.

    The two terms can cancel, so the vectors are float64 as well, and where they cancel the sum is computed to twice
    those digits. ``(..., d)``.

    Examples:
        >>> x, y = torch.tensor([0.5, 0.0]), torch.tensor([0.1, 0.2])
        >>> half = ball.expmap(x, 0.5 * ball.logmap(x, y))
        >>> torch.allclose(ball.distance(x, half), ball.distance(half, y))
        True

    """
    dtype = numerics.result_type(x, v)
    x, v, c = numerics.computable(x), numerics.computable(v), numerics.checked(c)
    bound, wide = max_radius(torch.promote_types(x.dtype, v.dtype)), numerics.wide_dtype(x)
    # No geodesic inside the ball is longer than from bound to bound: 2 artanh(bound) in half lengths.
    longest = 2.0 * math.atanh(bound) + 1.0
    x, v = x.to(wide), numerics.shrink(v.to(wide), c, longest)
    alpha = gap(x, c)
    half = numerics.shrink(v / alpha, c, longest)
    square = c * numerics.square_norm(half)
    s = x + half * numerics.tanhc(square)
    s = s + (numerics.compensated_sum(s, x, v, alpha, square, c) - s).detach()
    beta, cs = numerics.sech2(square), c * numerics.square_norm(s)
    denominator = alpha * beta + cs
    return numerics.shrink(numerics.combine(alpha / denominator, s, cs / denominator, x), c, max_radius(dtype)).to(
        dtype
    )


def logmap(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """The velocity at ``x`` of the geodesic that reaches ``y`` at time 1. ``(..., d)``.

    ``log_x(y) = asinh(√u)/√u · (α δ - c‖δ‖² x) / (β √(1+u))`` with ``u = c‖δ‖²/(αβ)``.

    Examples:
        >>> x, y = torch.tensor([0.5, 0.0]), torch.tensor([0.1, 0.2])
        >>> ball.expmap(x, ball.logmap(x, y))
        tensor([0.1000, 0.2000])

    """
    dtype = numerics.result_type(x, y)
    x, y, c = numerics.computable(x), numerics.computable(y), numerics.checked(c)
    delta = y - x
    alpha, beta, cs = gap(x, c), gap(y, c), c * numerics.square_norm(delta)
    u = cs / (alpha * beta)
    factor = numerics.asinhc(u) / (beta * (1.0 + u).sqrt())
    return numerics.combine(factor * alpha, delta, -factor * cs, x).to(dtype)


# --- transport -----------------------------------------------------------------------------------------------


def transport(v: Tensor, x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Parallel transport of ``v`` from ``x`` to ``y``: ``(λ_x/λ_y) gyr[y, -x] v``. ``(..., d)``.

    Examples:
        >>> v, x, y = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 0.5]])
        >>> moved = ball.transport(v, x, y)
        >>> lengths = ball.conformal_factor(x) * v.norm(), ball.conformal_factor(y) * moved.norm()
        >>> torch.allclose(*lengths)
        True

    """
    dtype = numerics.result_type(v, x, y)
    alpha, beta = gap(x, c), gap(y, c)
    rotated = _rotate(v, x, alpha, y, beta, c)
    return (rotated * (beta / alpha).to(rotated.dtype)).to(dtype)


def discounted_transport(g: Tensor, q: Tensor, z: Tensor, c: Curvature = 1.0) -> Tensor:
    """The backward operator of the discounted hyperbolic straight-through estimator, ``P̃_{q→z} g``. ``(..., d)``.

    A Euclidean gradient ``g`` at ``q`` becomes Riemannian (``/λ_q²``) and is transported to ``z``; it is not turned
    back into a Euclidean one, which would multiply it by the diverging ``λ_z²``:
    ``P̃ g = gyr[z, -q] g / (λ_q λ_z)``.

    Examples:
        >>> g, origin = torch.tensor([1.0, 0.0]), torch.zeros(2)
        >>> ball.discounted_transport(g, origin, origin)
        tensor([0.2500, 0.0000])

    """
    dtype = numerics.result_type(g, q, z)
    return discounted_transport_with_gaps(g, q, gap(q, c), z, gap(z, c), c).to(dtype)


def discounted_transport_with_gaps(
    g: Tensor, q: Tensor, alpha: Tensor, z: Tensor, beta: Tensor, c: Curvature, unit: float = 1.0
) -> Tensor:
    """``unit`` times :func:`discounted_transport` between points whose gaps ``α, β (..., 1)`` are known already."""
    rotated = _rotate(g, q, alpha, z, beta, c)
    return rotated * (alpha * beta * (unit / 4.0)).to(rotated.dtype)


# --- mean ----------------------------------------------------------------------------------------------------


def midpoint(x: Tensor, weights: Tensor | None = None, c: Curvature = 1.0) -> Tensor:
    """Weighted gyromidpoint of the points ``x (..., n, d)`` with ``weights (..., n)`` (default: equal): ``(..., d)``.

    ``m = s / (t + √(t² - c‖s‖²))`` with ``s = Σ wλx`` and ``t = Σ w(λ - 1)``. Vectors longer than 1e150, far outside
    the ball, overflow: :func:`project` them first.

    Examples:
        >>> ball.midpoint(torch.tensor([[0.5, 0.0], [-0.5, 0.0]]))
        tensor([0., 0.])

    """
    dtype = numerics.result_type(x)
    x, c = numerics.computable(x), numerics.checked(c)
    x = x.to(numerics.wide_dtype(x))  # before the gap: opposite points cancel, so every digit of λ matters
    curvature = c.unsqueeze(-2) if isinstance(c, Tensor) and c.ndim else c
    w, mass = midpoint_weights(x, None if weights is None else weights.unsqueeze(-1), curvature)
    total = mass.sum(-2, keepdim=True)
    s = (mass * x).sum(-2, keepdim=True)
    s = s + (numerics.compensated_mass(x, w, curvature) - s).detach()
    mean = s / torch.where(total == 0.0, 1.0, total)
    spread = (mass * numerics.square_norm(x - mean)).sum(-2)
    # t² - c‖s‖² without the cancellation: (Σw)² + c Σwλ Σwλ‖x - mean‖².
    total, s = total.squeeze(-2), s.squeeze(-2)
    root = w.sum(-2).square() + c * total * spread
    denominator = (mass - w).sum(-2) + torch.where(root > 0.0, root, 1.0).sqrt() * (root > 0.0)
    return (s / torch.where(denominator == 0.0, 1.0, denominator)).to(dtype)


def midpoint_weights(x: Tensor, weights: Tensor | None, c: Curvature) -> tuple[Tensor, Tensor]:
    """``w`` and ``wλ_x``, both ``(..., 1)`` float64: the terms of a midpoint's sums are ``wλx`` and ``wλ - w``.

    ``x (..., d)``, ``weights (..., 1)`` (default: 1).
    """
    factor = 2.0 / gap(x, c)
    w = torch.ones_like(factor) if weights is None else weights.to(factor.dtype)
    return w, w * factor


# --- pieces of the formulas above -----------------------------------------------------------------------------


def _rotate(w: Tensor, x: Tensor, alpha: Tensor, y: Tensor, beta: Tensor, c: Curvature) -> Tensor:
    """``gyr[y, -x] w``, stable for ``y ≈ x``, from the gaps of ``x`` and ``y``, whose type sets that of the sums.

    With ``p = c⟨x,w⟩`` and ``q = c⟨δ,w⟩`` it is
    ``w + 2((qα - p c‖δ‖²) x - (p(β + c‖δ‖²) + q c‖x‖²) δ) / (αβ + c‖δ‖²)``.
    """
    w, x, y, c = numerics.computable(w), numerics.computable(x), numerics.computable(y), numerics.checked(c)
    delta, dtype = y - x, alpha.dtype
    cs = c * numerics.square_norm(delta, dtype)
    p = c * (x * w).sum(-1, keepdim=True, dtype=dtype)
    q = c * (delta * w).sum(-1, keepdim=True, dtype=dtype)
    twice = 2.0 / (alpha * beta + cs)
    along_x = twice * torch.addcmul(q * alpha, p, cs, value=-1.0)
    along_delta = twice * torch.addcmul(q * (alpha - 1.0), p, beta + cs, value=-1.0)
    return w + numerics.combine(along_x, x, along_delta, delta)
