"""The Poincaré ball to 60 digits: the textbook formulas, on lists of mpmath numbers.

Nothing here is clever, and nothing is shared with ``ghrq.ball``: 60 digits leave room for every cancellation that
the library avoids by its choice of formula. Curvatures are above 0; the flat limit has tests of its own.

Names and the order of arguments are those of ``ghrq.ball``, so that one test can call both.
"""

from collections.abc import Callable, Sequence

import mpmath
import torch

mp = mpmath.mp.clone()
mp.dps = 60
mpf = mp.mpf

Vector = list[mpmath.mpf]

# What the functions of the ball take before c: points x and y, a vector v, the two points as the rows of a matrix
# m, and two weights w.
SIGNATURES = {
    "gap": "x",
    "conformal_factor": "x",
    "mobius_add": "xy",
    "mobius_sub": "xy",
    "gyration": "xyv",
    "distance": "xy",
    "pairwise_distance": "mm",
    "expmap0": "v",
    "logmap0": "x",
    "expmap": "xv",
    "logmap": "xy",
    "transport": "vxy",
    "discounted_transport": "vxy",
    "midpoint": "mw",
}


# --- in and out ----------------------------------------------------------------------------------------------


def exact(tensor: torch.Tensor) -> Vector:
    """The values a vector holds, without any rounding; of a matrix, the list of its rows."""
    if tensor.ndim > 1:
        return [exact(row) for row in tensor]
    return [mpf(value) for value in tensor.detach().double().tolist()]


def relative_error(tensor: torch.Tensor, expected: Vector | mpmath.mpf) -> float:
    """``‖result - exact‖ / ‖exact‖`` of a vector, or of a number; infinite where the result is not finite."""
    expected = expected if isinstance(expected, list) else [expected]
    result = exact(tensor.reshape(-1))
    assert len(result) == len(expected)
    if not all(map(mp.isfinite, result)):
        return float("inf")
    error, size = norm(sub(result, expected)), norm(expected)
    if error == 0:
        return 0.0
    return float(error / size) if size else float("inf")


# --- vectors -------------------------------------------------------------------------------------------------


def dot(x: Vector, y: Vector) -> mpmath.mpf:
    return mp.fdot(x, y)


def norm(x: Vector) -> mpmath.mpf:
    return mp.sqrt(dot(x, x))


def add(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def sub(x: Vector, y: Vector) -> Vector:
    return [a - b for a, b in zip(x, y, strict=True)]


def scale(factor: mpmath.mpf, x: Vector) -> Vector:
    return [factor * a for a in x]


def neg(x: Vector) -> Vector:
    return [-a for a in x]


# --- the ball ------------------------------------------------------------------------------------------------


def gap(x: Vector, c: mpmath.mpf) -> mpmath.mpf:
    return 1 - c * dot(x, x)


def conformal_factor(x: Vector, c: mpmath.mpf) -> mpmath.mpf:
    return 2 / (1 - c * dot(x, x))


def mobius_add(x: Vector, y: Vector, c: mpmath.mpf) -> Vector:
    """Eq. bg_mobius_add."""
    xx, yy, xy = dot(x, x), dot(y, y), dot(x, y)
    numerator = add(scale(1 + 2 * c * xy + c * yy, x), scale(1 - c * xx, y))
    return scale(1 / (1 + 2 * c * xy + c**2 * xx * yy), numerator)


def mobius_sub(x: Vector, y: Vector, c: mpmath.mpf) -> Vector:
    """``(-x) ⊕ y``, the residual of the HRA convention."""
    return mobius_add(neg(x), y, c)


def gyration(u: Vector, v: Vector, w: Vector, c: mpmath.mpf) -> Vector:
    """Eq. bg_gyration. It needs ``w`` inside the ball and is linear in it, so ``w`` is scaled there and back."""
    length = norm(w)
    if length == 0:
        return w
    inside = 1 / (2 * mp.sqrt(c) * length)
    nested = mobius_add(u, mobius_add(v, scale(inside, w), c), c)
    return scale(1 / inside, mobius_add(neg(mobius_add(u, v, c)), nested, c))


def distance(x: Vector, y: Vector, c: mpmath.mpf) -> mpmath.mpf:
    root = mp.sqrt(c)
    return 2 / root * mp.atanh(root * norm(mobius_sub(x, y, c)))


def pairwise_distance(points: Sequence[Vector], codes: Sequence[Vector], c: mpmath.mpf) -> Vector:
    """The distances row by row, as one list."""
    return [distance(x, y, c) for x in points for y in codes]


def expmap0(v: Vector, c: mpmath.mpf) -> Vector:
    length = mp.sqrt(c) * norm(v)
    return v if length == 0 else scale(mp.tanh(length) / length, v)


def logmap0(y: Vector, c: mpmath.mpf) -> Vector:
    length = mp.sqrt(c) * norm(y)
    return y if length == 0 else scale(mp.atanh(length) / length, y)


def expmap(x: Vector, v: Vector, c: mpmath.mpf) -> Vector:
    return mobius_add(x, expmap0(scale(conformal_factor(x, c) / 2, v), c), c)


def logmap(x: Vector, y: Vector, c: mpmath.mpf) -> Vector:
    return scale(2 / conformal_factor(x, c), logmap0(mobius_sub(x, y, c), c))


def transport(v: Vector, x: Vector, y: Vector, c: mpmath.mpf) -> Vector:
    """Eq. bg_pt."""
    return scale(conformal_factor(x, c) / conformal_factor(y, c), gyration(y, neg(x), v, c))


def discounted_transport(g: Vector, q: Vector, z: Vector, c: mpmath.mpf) -> Vector:
    """Steps (i) and (ii) of the d-HSTE: the Riemannian gradient at q, transported to z."""
    return transport(scale(1 / conformal_factor(q, c) ** 2, g), q, z, c)


def midpoint(points: Sequence[Vector], weights: Vector, c: mpmath.mpf) -> Vector:
    """Ungar's gyromidpoint: ``½ ⊗ (Σ wλx / Σ w(λ-1))``."""
    factors = [conformal_factor(x, c) for x in points]
    total = [mpf(0)] * len(points[0])
    for w, factor, x in zip(weights, factors, points, strict=True):
        total = add(total, scale(w * factor, x))
    mean = scale(1 / mp.fsum(w * (factor - 1) for w, factor in zip(weights, factors, strict=True)), total)
    return expmap0(scale(mpf("0.5"), logmap0(mean, c)), c)


# --- cascades: what becomes of a point z and given codes -------------------------------------------------------


def hra_residuals(z: Vector, codes: Sequence[Vector], c: mpmath.mpf) -> list[Vector]:
    """``r_0 = z`` and ``r_i = (-q_i) ⊕ r_{i-1}``: N + 1 vectors."""
    residuals = [z]
    for q in codes:
        residuals.append(mobius_add(neg(q), residuals[-1], c))
    return residuals


def nested_sum(points: Sequence[Vector], c: mpmath.mpf) -> Vector:
    """``q_1 ⊕ (q_2 ⊕ (… ⊕ q_N))``."""
    total = points[-1]
    for q in reversed(points[:-1]):
        total = mobius_add(q, total, c)
    return total


def naive_residuals(z: Vector, codes: Sequence[Vector], c: mpmath.mpf) -> list[Vector]:
    """``r_0 = z`` and ``r_i = r_{i-1} ⊕ (-q_i)``: N + 1 vectors."""
    residuals = [z]
    for q in codes:
        residuals.append(mobius_add(residuals[-1], neg(q), c))
    return residuals


def chained_sum(points: Sequence[Vector], c: mpmath.mpf) -> Vector:
    """``((q_1 ⊕ q_2) ⊕ …) ⊕ q_N``."""
    total = points[0]
    for q in points[1:]:
        total = mobius_add(total, q, c)
    return total


# --- derivatives ---------------------------------------------------------------------------------------------


def jacobian(function: Callable[[Vector], Vector], x: Vector) -> list[Vector]:
    """The derivatives of a vector by each entry of ``x``, by central differences: steps of 1e-30, twice the digits."""
    step, columns = mpf(10) ** -30, []
    with mp.workdps(2 * mp.dps):
        for i in range(len(x)):
            forth, back = list(x), list(x)
            forth[i], back[i] = x[i] + step, x[i] - step
            columns.append(scale(1 / (2 * step), sub(function(forth), function(back))))
    return columns


def gradient(function: Callable[[Vector], mpmath.mpf], x: Vector) -> Vector:
    """The gradient of a number at ``x``."""
    return [column[0] for column in jacobian(lambda point: [function(point)], x)]
