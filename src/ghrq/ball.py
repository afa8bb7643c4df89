"""The Poincaré ball as pure functions on tensors.

Points, tangent vectors and gradients are plain tensors ``(..., d)`` that broadcast against each other.
``c`` is the curvature parameter of the ball ``{x : c‖x‖² < 1}`` (its sectional curvature is ``-c``): a float,
or a tensor of shape ``()`` or ``(..., 1)``, which may require a gradient. ``c = 0`` is flat space as the limit
of the ball, where every conformal factor is 2 and every distance ``2‖x - y‖``.

Near the boundary the textbook formulas subtract nearly equal numbers and lose all their digits. The forms used
here do not. They are written in the *gaps* ``α = 1 - c‖x‖²`` and ``β = 1 - c‖y‖²``, which are accumulated in
float64 (one number a row), and in differences ``δ = y - x``, which floating point computes exactly for close
points. The vectors themselves stay in their own type.

Half precision is computed in float32 and handed back in the type that came in.
"""

import math

import torch
from torch import Tensor

__all__ = [
    "conformal_factor",
    "discounted_transport",
    "distance",
    "expmap",
    "expmap0",
    "gap",
    "gyration",
    "logmap",
    "logmap0",
    "logmap0_with_gap",
    "max_radius",
    "midpoint",
    "midpoint_from_sums",
    "mobius_add",
    "mobius_add_with_gaps",
    "mobius_sub",
    "pairwise_distance",
    "project",
    "transport",
    "wide_dtype",
]

Curvature = float | Tensor

# Below this argument the quotients asinh(√u)/√u and tanh(√u)/√u are summed as power series: there the closed
# form is 0/0 at the origin and its derivative cancels. Both series are exact to float64 at this radius.
_SERIES_BELOW = 1e-2
_ASINHC = (1.0, -1 / 6, 3 / 40, -5 / 112, 35 / 1152, -63 / 2816, 231 / 13312, -143 / 10240)
_TANHC = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875)


# --- points and their gaps -----------------------------------------------------------------------------------


def max_radius(dtype: torch.dtype) -> float:
    """The largest ``√c‖x‖`` that :func:`project` and the exponential maps produce in ``dtype``: one ulp inside 1.

    Rounding a vector moves its norm by at most half an ulp, so a point at this radius is always inside the ball.
    """
    return 1.0 - torch.finfo(dtype).eps


def gap(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """How far a point is from the boundary: ``1 - c‖x‖²``, shape ``(..., 1)``, in float64.

    It is correct to nearly every digit of its own, however small it is, and never below the gap of a point that
    :func:`project` lets stand; points on or outside the boundary count as being there, with their gradient alive.
    """
    x, c = _computable(x), _checked(c)
    wide = wide_dtype(x)
    plain = 1.0 - c * _square_norm(x)
    with torch.no_grad():
        true = _compensated_gap(x, c) if x.dtype == wide else plain
        correction = true.clamp(min=torch.finfo(x.dtype).eps) - plain
    return plain + correction


def project(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """Pull points on or beyond the boundary back to :func:`max_radius`; leave all others alone. ``(..., d)``.

    The scaling is a constant for the gradient, so that a point that left the ball can still be pulled back.
    """
    dtype = _result_type(x)
    x, c = _computable(x), _checked(c)
    return _shrink(x, c, max_radius(dtype)).to(dtype)


def conformal_factor(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """``λ_x = 2 / (1 - c‖x‖²)``, shape ``(..., 1)``."""
    return (2.0 / gap(x, c)).to(_result_type(x))


# --- the gyrogroup -------------------------------------------------------------------------------------------


def mobius_add(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Möbius addition ``x ⊕ y = (α s + c‖s‖² x) / (αβ + c‖s‖²)`` with ``s = x + y``. ``(..., d)``."""
    dtype = _result_type(x, y)
    x, y = _computable(x), _computable(y)
    return mobius_add_with_gaps(x, gap(x, c), y, gap(y, c), c)[0].to(dtype)


def mobius_add_with_gaps(x: Tensor, alpha: Tensor, y: Tensor, beta: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """``x ⊕ y`` and its gap ``αβ / (αβ + c‖x+y‖²)``, from the gaps ``α, β (..., 1)`` of float32 or float64 points.

    A chain of sums that hands on its gaps this way keeps them right to all digits of their type, even where the
    points themselves have rounded onto the boundary.
    """
    c = _checked(c)
    s = x + y
    gaps, cs = alpha * beta, c * _square_norm(s, alpha.dtype)
    denominator = gaps + cs
    return _combine(alpha / denominator, s, cs / denominator, x), gaps / denominator


def mobius_sub(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """The left residual ``(-x) ⊕ y = (α δ - c‖δ‖² x) / (αβ + c‖δ‖²)`` with ``δ = y - x``. ``(..., d)``.

    Adding ``x`` on the left undoes it exactly: ``x ⊕ ((-x) ⊕ y) = y``.
    """
    return mobius_add(-x, y, c)


def gyration(u: Tensor, v: Tensor, w: Tensor, c: Curvature = 1.0) -> Tensor:
    """The rotation ``gyr[u, v] w`` that makes Möbius addition associative: ``u⊕(v⊕w) = (u⊕v)⊕gyr[u,v]w``.

    ``w`` is any vector ``(..., d)``, not only a point of the ball.
    """
    dtype = _result_type(u, v, w)
    rotated, _, _ = _rotate(w, -v, u, c)
    return rotated.to(dtype)


# --- distances -----------------------------------------------------------------------------------------------


def distance(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Geodesic distance ``(2/√c) asinh(√c‖y - x‖ / √(αβ))``, shape ``(...)``.

    At coincident points it and its gradient are 0.
    """
    dtype = _result_type(x, y)
    x, y, c = _computable(x), _computable(y), _checked(c)
    length = _norm(y - x)
    return _distance(length, gap(x, c) * gap(y, c), c).squeeze(-1).to(dtype)


def pairwise_distance(x: Tensor, codes: Tensor, c: Curvature = 1.0) -> Tensor:
    """Every distance between ``x (N, d)`` and ``codes (K, d)``: ``(N, K)``, computed exactly in float64.

    For tests and small work; :func:`ghrq.nearest.nearest` finds the nearest code at the price of a matrix product.
    """
    dtype = _result_type(x, codes)
    x, codes, c = _computable(x), _computable(codes), _checked(c)
    wide = wide_dtype(x)
    length = torch.cdist(x.to(wide), codes.to(wide), compute_mode="donot_use_mm_for_euclid_dist")
    return _distance(length, gap(x, c) * gap(codes, c).mT, c).to(dtype)


# --- exponential and logarithm -------------------------------------------------------------------------------


def expmap0(v: Tensor, c: Curvature = 1.0) -> Tensor:
    """From the tangent space at the origin onto the ball: ``tanh(√c‖v‖) v / (√c‖v‖)``. ``(..., d)``.

    Tangent vectors too long for their type are shortened to the one that reaches :func:`max_radius`, by a factor
    that is constant for the gradient: an encoder that ran off can come back.
    """
    dtype = _result_type(v)
    v, c = _computable(v), _checked(c)
    v = _shrink(v, c, math.atanh(max_radius(dtype)))
    return (v * _tanhc(c * _square_norm(v)).to(v.dtype)).to(dtype)


def logmap0(y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Back from the ball to the tangent space at the origin: ``artanh(√c‖y‖) y / (√c‖y‖)``. ``(..., d)``."""
    dtype = _result_type(y)
    y = _computable(y)
    return logmap0_with_gap(y, gap(y, c), c).to(dtype)


def logmap0_with_gap(y: Tensor, beta: Tensor, c: Curvature) -> Tensor:
    """:func:`logmap0` of a float32 or float64 point whose gap ``β (..., 1)`` is known better than by measuring it."""
    c = _checked(c)
    return y * (_asinhc(c * _square_norm(y, beta.dtype) / beta) / beta.sqrt()).to(y.dtype)


def expmap(x: Tensor, v: Tensor, c: Curvature = 1.0) -> Tensor:
    """Follow the geodesic that leaves ``x`` with velocity ``v``: ``x ⊕ (tanh(√c λ_x‖v‖/2) v / (√c‖v‖))``.

    This sum meets opposite points of the boundary, so its vectors are float64 as well. ``(..., d)``.
    """
    dtype = _result_type(x, v)
    x, v, c = _computable(x), _computable(v), _checked(c)
    bound, wide = max_radius(torch.promote_types(x.dtype, v.dtype)), wide_dtype(x)
    headroom, alpha = x.dtype != wide, gap(x, c)
    x, v = x.to(wide), v.to(wide)
    # No geodesic inside the ball is longer than the way from bound to bound, in half lengths 2 artanh(bound).
    half = _shrink(v / alpha, c, 2.0 * math.atanh(bound) + 1.0)
    square = c * _square_norm(half)
    s = x + half * _tanhc(square)
    if not headroom:
        s = s + (_compensated_sum(s, x, v, alpha, square, c) - s).detach()
    beta, cs = _sech2(square), c * _square_norm(s)
    denominator = alpha * beta + cs
    return _shrink(_combine(alpha / denominator, s, cs / denominator, x), c, max_radius(dtype)).to(dtype)


def logmap(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """The velocity at ``x`` of the geodesic that reaches ``y`` at time 1. ``(..., d)``.

    ``log_x(y) = asinh(√u)/√u · (α δ - c‖δ‖² x) / (β √(1+u))`` with ``u = c‖δ‖²/(αβ)``.
    """
    dtype = _result_type(x, y)
    x, y, c = _computable(x), _computable(y), _checked(c)
    delta = y - x
    alpha, beta, cs = gap(x, c), gap(y, c), c * _square_norm(delta)
    u = cs / (alpha * beta)
    factor = _asinhc(u) / (beta * (1.0 + u).sqrt())
    return _combine(factor * alpha, delta, -factor * cs, x).to(dtype)


# --- transport -----------------------------------------------------------------------------------------------


def transport(v: Tensor, x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """Parallel transport of ``v`` from ``x`` to ``y``: ``(λ_x/λ_y) gyr[y, -x] v``. ``(..., d)``."""
    dtype = _result_type(v, x, y)
    rotated, alpha, beta = _rotate(v, x, y, c)
    return (rotated * (beta / alpha).to(rotated.dtype)).to(dtype)


def discounted_transport(g: Tensor, q: Tensor, z: Tensor, c: Curvature = 1.0) -> Tensor:
    """The backward operator of the discounted hyperbolic straight-through estimator, ``P̃_{q→z} g``. ``(..., d)``.

    A Euclidean gradient ``g`` at ``q`` becomes Riemannian (``/λ_q²``) and is transported to ``z``; it is not turned
    back into a Euclidean one, which would multiply it by the diverging ``λ_z²``:
    ``P̃ g = gyr[z, -q] g / (λ_q λ_z)``.
    """
    dtype = _result_type(g, q, z)
    rotated, alpha, beta = _rotate(g, q, z, c)
    return (rotated * (alpha * beta / 4.0).to(rotated.dtype)).to(dtype)


# --- mean ----------------------------------------------------------------------------------------------------


def midpoint(x: Tensor, weights: Tensor | None = None, c: Curvature = 1.0) -> Tensor:
    """Weighted gyromidpoint of the points ``x (..., n, d)`` with ``weights (..., n)`` (default: equal): ``(..., d)``.

    ``m = s / (t + √(t² - c‖s‖²))`` with ``s = Σ wλx`` and ``t = Σ w(λ - 1)``.
    """
    dtype = _result_type(x)
    x, c = _computable(x), _checked(c)
    factor = 2.0 / gap(x, c)
    w = torch.ones_like(factor) if weights is None else weights.to(factor.dtype).unsqueeze(-1)
    s = (w * factor * x.to(factor.dtype)).sum(-2)
    t = (w * (factor - 1.0)).sum(-2)
    return midpoint_from_sums(s, t, c).to(dtype)


def midpoint_from_sums(s: Tensor, t: Tensor, c: Curvature = 1.0) -> Tensor:
    """The midpoint whose running sums are ``s = Σ wλx (..., d)`` and ``t = Σ w(λ - 1) (..., 1)``; 0 if both are 0."""
    root = (t * t - c * _square_norm(s)).clamp(min=0.0)
    # √ has no derivative at 0, where points in one place at the boundary can put it by rounding.
    denominator = t + torch.where(root > 0.0, root, 1.0).sqrt() * (root > 0.0)
    return s / torch.where(denominator == 0.0, 1.0, denominator)


# --- pieces of the formulas above ----------------------------------------------------------------------------


def _result_type(*tensors: Tensor) -> torch.dtype:
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _computable(x: Tensor) -> Tensor:
    """The tensor in the type that the vectors are computed in: float32, or float64 if it is that already."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def _checked(c: Curvature) -> Curvature:
    if isinstance(c, Tensor):
        return c.to(wide_dtype(c))
    if not c >= 0.0:
        raise ValueError(f"the curvature c must be 0 or above, got {c}: the ball has sectional curvature -c")
    return float(c)


def wide_dtype(x: Tensor) -> torch.dtype:
    """The type for gaps and other per-row numbers: float64 wherever the device has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def _norm(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``‖x‖`` as ``(..., 1)``, by default in float64 (without a float64 copy of x); its gradient at 0 is 0."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype or wide_dtype(x))
    return norm


def _square_norm(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return _norm(x, dtype).square()


def _shrink(x: Tensor, c: Curvature, bound: float) -> Tensor:
    """``x`` scaled down to ``√c‖x‖ ≤ bound``, by a factor that is constant for the gradient."""
    with torch.no_grad():
        root = c.sqrt() if isinstance(c, Tensor) else c**0.5
        scale = (bound / (root * _norm(x))).clamp(max=1.0).to(x.dtype)
    return x * scale


def _combine(a: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """``a x + b y`` for float64 coefficients ``(..., 1)`` and vectors of their own type."""
    return a.to(x.dtype) * x + b.to(y.dtype) * y


def _rotate(w: Tensor, x: Tensor, y: Tensor, c: Curvature) -> tuple[Tensor, Tensor, Tensor]:
    """``gyr[y, -x] w``, stable for ``y ≈ x``, and the gaps of ``x`` and ``y``.

    With ``p = c⟨x,w⟩`` and ``q = c⟨δ,w⟩`` it is
    ``w + 2((qα - p c‖δ‖²) x - (p(β + c‖δ‖²) + q c‖x‖²) δ) / (αβ + c‖δ‖²)``.
    """
    w, x, y, c = _computable(w), _computable(x), _computable(y), _checked(c)
    delta = y - x
    alpha, beta, cs = gap(x, c), gap(y, c), c * _square_norm(delta)
    p = c * (x * w).sum(-1, keepdim=True, dtype=wide_dtype(x))
    q = c * (delta * w).sum(-1, keepdim=True, dtype=wide_dtype(x))
    twice = 2.0 / (alpha * beta + cs)
    along_x = twice * (q * alpha - p * cs)
    along_delta = -twice * (p * (beta + cs) + q * c * _square_norm(x))
    return w + _combine(along_x, x, along_delta, delta), alpha, beta


def _distance(length: Tensor, gaps: Tensor, c: Curvature) -> Tensor:
    """The distance of points ``length`` apart whose gaps have the product ``gaps``; smooth in ``c`` at 0."""
    return 2.0 * length / gaps.sqrt() * _asinhc(c * length.square() / gaps)


def _asinhc(u: Tensor) -> Tensor:
    """``asinh(√u)/√u`` for u ≥ 0, smooth at 0."""
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    closed = torch.log1p(t + t * t / (1.0 + (1.0 + t * t).sqrt())) / t
    return torch.where(u < _SERIES_BELOW, _series(_ASINHC, u), closed)


def _tanhc(u: Tensor) -> Tensor:
    """``tanh(√u)/√u`` for u ≥ 0, smooth at 0."""
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    return torch.where(u < _SERIES_BELOW, _series(_TANHC, u), t.tanh() / t)


def _sech2(u: Tensor) -> Tensor:
    """``1/cosh²(√u)`` for u ≥ 0, smooth at 0 and with all its digits where tanh is nearly 1."""
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    return torch.where(u < _SERIES_BELOW, 1.0 - u * _series(_TANHC, u).square(), 1.0 / t.cosh().square())


def _series(coefficients: tuple[float, ...], u: Tensor) -> Tensor:
    u = u.clamp(max=_SERIES_BELOW)
    total = torch.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * u + coefficient
    return total


def _compensated_gap(x: Tensor, c: Curvature) -> Tensor:
    """``1 - c‖x‖²`` to about twice the digits of x's own type, for types with nothing wider to accumulate in.

    Squares are split into value and rounding error, and both are added up in a tree (Dekker; Ogita, Rump, Oishi).
    """
    value, error = _two_product(x, x)
    while value.shape[-1] > 1:
        half = value.shape[-1] // 2
        odd = value[..., 2 * half :], error[..., 2 * half :]
        total, rounding = _two_sum(value[..., :half], value[..., half : 2 * half])
        value = torch.cat((total, odd[0]), dim=-1)
        error = torch.cat((error[..., :half] + error[..., half : 2 * half] + rounding, odd[1]), dim=-1)
    c = torch.as_tensor(c, dtype=x.dtype, device=x.device)
    square, rounding = _two_product(value, c)
    return (1.0 - square) - (rounding + c * error)


@torch.no_grad()
def _compensated_sum(plain: Tensor, x: Tensor, v: Tensor, alpha: Tensor, square: Tensor, c: Curvature) -> Tensor:
    """The ``plain`` sum ``x + tanh(t) v / (√c‖v‖)``, ``t² = square``, to all digits where the two terms meet head on.

    What x has across v comes from Gram-Schmidt, twice and the first time without rounding; what is left along v
    is the difference of how much the two terms lack of the boundary, each known to all its digits.
    """
    length = _norm(v)
    share = 1.0 / torch.where(length == 0.0, 1.0, length.square())
    along = (x * v).sum(-1, keepdim=True) * share
    value, error = _two_product(along, v)
    across = (x - value) - error
    across = across - (across * v).sum(-1, keepdim=True) * share * v
    root = torch.as_tensor(c, dtype=x.dtype, device=x.device).sqrt()
    lack = (alpha + c * _square_norm(across)) / (1.0 - root * along * length)
    lack = lack - 2.0 / (1.0 + (2.0 * square.sqrt()).exp())
    head_on = (along < 0.0) & (root > 0.0) & (length > 0.0)
    return torch.where(head_on, across + v * (lack / (root * length)), plain)


def _two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """``a·b`` as rounded value and exact error."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    digits = math.ceil((1 - math.log2(torch.finfo(a.dtype).eps)) / 2)
    scaled = a * (2.0**digits + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """``a + b`` as rounded value and exact error."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)
