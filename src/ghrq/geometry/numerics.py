"""Building blocks for the formulas of the ball: types, norms, smooth quotients, compensated sums."""

import math
from contextlib import suppress

import torch
from torch import Tensor

from ghrq.system.checks import has_values

Curvature = float | Tensor
# A number to twice the digits of its type: the rounded value and its error.
InTwo = tuple[Tensor, Tensor]

# Below this argument the quotients asinh(√u)/√u and tanh(√u)/√u are summed as power series: there the closed
# form is 0/0 at the origin and its derivative cancels. Both series are exact to float64 at this radius.
_SERIES_BELOW = 1e-2
_ASINHC = (1.0, -1 / 6, 3 / 40, -5 / 112, 35 / 1152, -63 / 2816, 231 / 13312, -143 / 10240)
_TANHC = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875)

# Terms that cancel in the inner half of the ball (gap above 0.5) have u = t² < 0.78. There Lambert's fraction, cut off
# at _FRACTION_ENDS, is exact to more than twice the digits of float64; the denominators above _FRACTION_IN_TWO need
# no error term.
_FRACTION_BELOW = 0.8
_FRACTION_ENDS = 37
_FRACTION_IN_TWO = 17

# Lengths of float64 vectors between these have squares that neither overflow nor lose digits.
_SHORT, _LONG = 1e-140, 1e140
_LARGEST = torch.finfo(torch.float64).max

# Squares end here, where a product with a curvature is still a number.
LARGEST_SQUARE = 1e290


def result_type(*tensors: Tensor) -> torch.dtype:
    """The floating point type of the result of a function of these tensors."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def computable(x: Tensor) -> Tensor:
    """The tensor in the type that the vectors are computed in: float32, or float64 if it is that already."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def wide_dtype(x: Tensor) -> torch.dtype:
    """The type for gaps and other per-row numbers: float64 wherever the device has it."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def least_gap(dtype: torch.dtype) -> float:
    """The least gap that a chain of points on the boundary may come to: its product with a point's gap is not 0."""
    return 1e-30 if dtype == torch.float32 else 1e-290


def checked(c: Curvature) -> Curvature:
    """The curvature, at least 0, ready to be multiplied with per-row numbers."""
    if isinstance(c, Tensor):
        if c.ndim == 0 and c.device.type == "cpu" and not torch.compiler.is_compiling():
            with suppress(RuntimeError):  # inside torch.vmap a tensor has no single value
                if not 0.0 <= (value := c.item()) < math.inf:
                    raise ValueError(
                        f"the curvature c must be 0 or above and finite, got {value}: learn it as a softplus"
                    )
        return c.to(wide_dtype(c))
    if not 0.0 <= c < math.inf:
        raise ValueError(f"the curvature c must be 0 or above, got {c}: the ball has sectional curvature -c")
    return float(c) + 0.0  # -0.0 is 0, too


def norm(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``‖x‖`` as ``(..., 1)``, by default accumulated in float64; its gradient at 0 is 0.

    Float64 has no wider type for the squares, which overflow above 1e154 and vanish below 1e-162: a batch with such
    rows is scaled by powers of 2, row by row. The result is at most the largest number.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype or wide_dtype(x))
    if x.dtype != torch.float64 or _ordinary(length):
        return length
    scale = _power_of_two(x)
    return (torch.linalg.vector_norm(x * scale, dim=-1, keepdim=True) / scale).clamp(max=_LARGEST)


def square_norm(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``‖x‖²``, likewise."""
    square = norm(x, dtype).square()
    return square.clamp(max=LARGEST_SQUARE) if x.dtype == torch.float64 else square


def shrink(x: Tensor, c: Curvature, bound: float) -> Tensor:
    """``x`` scaled down to ``√c‖x‖ ≤ bound``, by a factor that is constant for the gradient."""
    with torch.no_grad():
        root = c.sqrt() if isinstance(c, Tensor) else c**0.5
        length = norm(x)
        scale = bound / (root * length)
        if x.dtype != torch.float64 or _ordinary(length):
            first, scale = None, scale.clamp(max=1.0).to(x.dtype)
        else:  # in two steps: the factor itself may be too small a number
            first = _power_of_two(x).clamp(max=1.0)
            scale = bound / (root * norm(x * first))
            outside = first * scale < 1.0
            first, scale = torch.where(outside, first, 1.0), torch.where(outside, scale, 1.0)
    return x * scale if first is None else x * first * scale


def below(numbers: Tensor, bound: float) -> bool:
    """Whether all ``numbers`` are below ``bound``. False if there are no values."""
    return has_values(numbers) and (numbers.numel() == 0 or float(numbers.max()) < bound)


def _ordinary(length: Tensor) -> bool:
    """Whether the squares of all these norms are far from overflow and underflow. False if there are no values."""
    if not has_values(length):
        return False
    if length.numel() == 0:
        return True
    low, high = length.detach().aminmax()
    return float(low) > _SHORT and float(high) < _LONG


def _power_of_two(x: Tensor) -> Tensor:
    """A power of 2, ``(..., 1)``, that scales each row of ``x (..., d)`` to a largest value between 1 and 2.

    It is 1 for rows of ordinary length, and constant for the gradient.
    """
    with torch.no_grad():
        largest = torch.linalg.vector_norm(x, ord=math.inf, dim=-1, keepdim=True)
        # Not frexp, which ONNX does not have.
        scale = torch.exp2(-largest.log2().floor().clamp(-1000.0, 1000.0))
        return torch.where((largest > _SHORT) & (largest < _LONG) | (largest == 0.0), 1.0, scale)


def combine(a: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """``a x + b y`` for float64 coefficients ``(..., 1)`` and vectors of their own type."""
    return torch.addcmul(a.to(x.dtype) * x, b.to(y.dtype), y)


def asinh(t: Tensor) -> Tensor:
    """``asinh(t)`` for t ≥ 0, in operations that every runtime has in float64."""
    square = t * t
    return torch.log1p(t + square / (1.0 + (1.0 + square).sqrt()))


def asinhc(u: Tensor) -> Tensor:
    """``asinh(√u)/√u`` for u ≥ 0, smooth at 0."""
    u = u.clamp(max=min(_LARGEST, torch.finfo(u.dtype).max))
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    return torch.where(u < _SERIES_BELOW, _series(_ASINHC, u), asinh(t) / t)


def tanhc(u: Tensor) -> Tensor:
    """``tanh(√u)/√u`` for u ≥ 0, smooth at 0."""
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    return torch.where(u < _SERIES_BELOW, _series(_TANHC, u), t.tanh() / t)


def sech2(u: Tensor) -> Tensor:
    """``1/cosh²(√u)`` for u ≥ 0, smooth at 0 and with all its digits where tanh is nearly 1."""
    t = torch.where(u < _SERIES_BELOW, 1.0, u).sqrt()
    return torch.where(u < _SERIES_BELOW, 1.0 - u * _series(_TANHC, u).square(), inverse_cosh_square(t))


def inverse_cosh_square(t: Tensor) -> Tensor:
    """``1/cosh²(t)`` for t ≥ 0, in operations that every runtime has in float64."""
    e = (-2.0 * t).exp()
    return 4.0 * e / (1.0 + e).square()


def _series(coefficients: tuple[float, ...], u: Tensor) -> Tensor:
    u = u.clamp(max=_SERIES_BELOW)
    total = torch.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * u + coefficient
    return total


def compensated_gap(x: Tensor, c: Curvature) -> Tensor:
    """``1 - c‖x‖²`` to about twice the digits of x's own type, for types that have no wider type to accumulate in."""
    return _gap_in_two(x, c)[0]


def _gap_in_two(x: Tensor, c: Curvature) -> InTwo:
    """``1 - c‖x‖²`` as the sum of two numbers."""
    square, error = _square_in_two(x, c)
    total, left = two_sum(torch.ones_like(square), -square)
    # Near the boundary the error is as large as the difference itself: normalize once more.
    return two_sum(total, left - error)


def _square_in_two(x: Tensor, c: Curvature) -> InTwo:
    """``c‖x‖²`` likewise: squares are split into value and rounding error, both are added up."""
    value, error = _sum_in_two(*two_product(x, x), dim=-1)
    # c in two parts as well: the error of rounding it to x's type matters next to the gap.
    c = torch.as_tensor(c, dtype=torch.float64 if isinstance(c, float) else c.dtype)
    high = c.to(x.dtype)
    low = (c - high.to(c.dtype)).to(x)
    high = high.to(x)
    square, rounding = two_product(value, high)
    return square, rounding + high * error + low * value


def _sum_in_two(value: Tensor, error: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The sum over ``dim``, which stays as 1, of numbers given as value and error: in a tree, each rounding kept.

    (Dekker; Ogita, Rump, Oishi.)
    """
    while (size := value.shape[dim]) > 1:
        half = size // 2
        (a, b, odd), (a_error, b_error, odd_error) = (
            t.split([half, half, size - 2 * half], dim=dim) for t in (value, error)
        )
        total, rounding = two_sum(a, b)
        value = torch.cat((total, odd), dim=dim)
        error = torch.cat((a_error + b_error + rounding, odd_error), dim=dim)
    return value, error


@torch.no_grad()
def compensated_mass(x: Tensor, w: Tensor, c: Curvature) -> Tensor:
    """``Σ w λ_x x`` over the points ``x (..., n, d)`` with weights ``w (..., n, 1)``: ``(..., 1, d)``.

    The terms of :func:`ghrq.geometry.ball.midpoint`; opposite points cancel, so all rounding errors are carried along.
    """
    high, low = _gap_in_two(x, c)
    least = torch.finfo(x.dtype).eps  # as in ball.gap, for points outside the boundary
    high, low = high.clamp(min=least), torch.where(high < least, 0.0, low)
    share = 2.0 * w / high
    value, error = two_product(share, high)
    share_error = ((2.0 * w - value) - error - share * low) / high
    value, error = two_product(share, x)
    total, left = _sum_in_two(value, error + share_error * x, dim=-2)
    return total + left


@torch.no_grad()
def compensated_sum(plain: Tensor, x: Tensor, v: Tensor, alpha: Tensor, square: Tensor, c: Curvature) -> Tensor:
    """The ``plain`` sum ``x + tanh(t) v / (√c‖v‖)``, ``t² = square``, to all digits where the two terms cancel.

    In the outer half of the ball, the part of x orthogonal to v comes from Gram-Schmidt, twice, the first time without
    rounding; the part along v is the difference of the two terms' gaps to the boundary, each known to all its digits.
    In the inner half these gaps are nearly 1, and the second term is computed to twice the digits instead.
    """
    length = norm(v)
    share = 1.0 / torch.where(length < _SHORT, 1.0, length.square())
    along = (x * v).sum(-1, keepdim=True) * share
    value, error = two_product(along, v)
    across = (x - value) - error
    across = across - (across * v).sum(-1, keepdim=True) * share * v
    root = torch.as_tensor(c, dtype=x.dtype, device=x.device).sqrt()
    lack = (alpha + c * square_norm(across)) / (1.0 - root * along * length)
    lack = lack - 2.0 / (1.0 + (2.0 * square.sqrt()).exp())
    inner = (along < 0.0) & (alpha > 0.25) & (square < _FRACTION_BELOW) & (length < _LONG)
    outer = (along < 0.0) & (alpha < 0.5) & (length >= _SHORT)
    outer_sum = across + v * (lack / torch.where(outer, root * length, 1.0))
    return torch.where(inner, _inner_sum(x, v, c), torch.where(outer, outer_sum, plain))


def _inner_sum(x: Tensor, v: Tensor, c: Curvature) -> Tensor:
    """``x + tanh(t) v / (√c‖v‖)``, ``t = √c‖v‖ / α``, with the second term to twice the digits of its type."""
    gap = _gap_in_two(x, c)
    square = _quotient_in_two(_quotient_in_two(_square_in_two(v, c), gap), gap)
    share, share_error = _quotient_in_two(_tanhc_in_two(square), gap)
    value, error = two_product(share, v)
    total, left = two_sum(x, value)
    return total + (left + error + share_error * v)


def _tanhc_in_two(u: InTwo) -> InTwo:
    """``tanh(√u)/√u`` by Lambert's continued fraction ``1 / (1 + u / (3 + u / (5 + …)))``, to twice the digits.

    Rounding errors of inner denominators hardly affect the result, so only the outer ones carry an error term.
    """
    denominator = torch.full_like(u[0], _FRACTION_ENDS)
    for odd in range(_FRACTION_ENDS - 2, _FRACTION_IN_TWO, -2):
        denominator = odd + u[0] / denominator
    in_two = denominator, torch.zeros_like(denominator)
    for odd in range(_FRACTION_IN_TWO, 0, -2):
        value, error = _quotient_in_two(u, in_two)
        total, rounding = two_sum(torch.full_like(value, odd), value)
        in_two = total, rounding + error
    return _quotient_in_two((torch.ones_like(denominator), torch.zeros_like(denominator)), in_two)


def _quotient_in_two(a: InTwo, b: InTwo) -> InTwo:
    """``a / b`` of numbers that are given as value and error."""
    quotient = a[0] / b[0]
    value, error = two_product(quotient, b[0])
    return quotient, ((a[0] - value) - error + a[1] - quotient * b[1]) / b[0]


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """``a·b`` as rounded value and exact error."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    digits = math.ceil((1 - math.log2(torch.finfo(a.dtype).eps)) / 2)
    scaled = a * (2.0**digits + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """``a + b`` as rounded value and exact error."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)
