"""Every function of the ball against 60 digits: anywhere in the ball, up to its boundary, in every type."""

import math
from dataclasses import dataclass

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracle
from ghrq import ball
from ghrq.geometry import midpoints, numerics
from oracle import SIGNATURES, exact, mp, mpf, relative_error


@dataclass(frozen=True)
class Example:
    """Two points, a vector and two weights, told by numbers that hypothesis can shrink and a reader can repeat."""

    seed: int
    dim: int
    log_c: float
    depth: float  # √c‖x‖ = 1 - 10^-depth
    mode: str  # where y is, seen from x
    closeness: float  # 0 to 1: how near to that place, down to the last digit of the type
    heading: str  # where v points
    log_size: float
    equal: bool  # the weights

    def values(self, dtype: torch.dtype, deepest: float) -> dict[str, torch.Tensor]:
        """The tensors by their letters in SIGNATURES. They are what is exact from here on."""
        generator = torch.Generator().manual_seed(self.seed)
        digits = -math.log10(torch.finfo(dtype).eps)
        c, ulp = self.c, torch.randint(self.dim, (), generator=generator)

        def direction() -> torch.Tensor:
            v = torch.randn(self.dim, generator=generator, dtype=torch.float64)
            return v / v.norm()

        def moved_by_an_ulp(x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[ulp] = torch.nextafter(x[ulp], torch.zeros((), dtype=dtype))
            return y

        x = (direction() * (1.0 - 10.0**-self.depth) / c**0.5).to(dtype)
        wide, e, share = x.double(), direction(), 10.0 ** (-digits * self.closeness)
        y = {
            "apart": lambda: e * (1.0 - 10.0 ** (-deepest * self.closeness)) / c**0.5,
            "near": lambda: wide + share * 10.0**-self.depth * (0.5 * e / c**0.5 - wide),
            "ulp": lambda: moved_by_an_ulp(x),
            "collinear": lambda: (1.0 - share) * wide,
            "opposite": lambda: (share - 1.0) * wide,
            "antipode": lambda: moved_by_an_ulp(-x),
        }[self.mode]().to(dtype)
        v = {
            "any": direction,
            "along": lambda: wide,
            "across": lambda: e - (e @ wide) * wide / (wide @ wide).clamp(min=1e-300),
            "difference": lambda: y.double() - wide,
        }[self.heading]()
        v = (v / v.norm().clamp(min=1e-300) * 10.0**self.log_size).to(dtype)
        if self.heading == "difference" and self.log_size == 0.0:
            v = ball.logmap(x, y, c)  # the exponential map then lands at y, or on the last digits of 0
        w = torch.ones(2, dtype=dtype) if self.equal else torch.rand(2, generator=generator, dtype=dtype) + 0.1
        return {"x": x, "y": y, "v": v, "m": torch.stack((x, y)), "w": w}

    @property
    def c(self) -> float:
        return 10.0**self.log_c


@dataclass(frozen=True)
class Regime:
    """Where in the ball, in what type, and how well.

    ``unit`` is for the exponential map where nothing wider than its type is left: a geodesic that ends at the origin
    is right to that fraction of where it began, and cannot be right to a fraction of itself.
    """

    dtype: torch.dtype
    dims: tuple[int, ...]
    deepest: float
    tolerance: float
    unit: float


GAP_HALF = -math.log10(1.0 - math.sqrt(0.5))
FLOAT32 = Regime(torch.float32, (1, 2, 3, 8, 64), 5.0, 1e-6, 0.0)
FLOAT32_WIDE = Regime(torch.float32, (512,), 5.0, 1e-6, 0.0)
FLOAT64_INSIDE = Regime(torch.float64, (1, 2, 3, 8, 64), GAP_HALF, 1e-14, 1e-31)
FLOAT64_BOUNDARY = Regime(torch.float64, (1, 2, 3, 8, 64), 9.3, 1e-13, 1e-14)
# Float32 throughout, as on a device without float64.
NARROW = Regime(torch.float32, (1, 2, 3, 8, 64), 5.0, 3e-6, 2e-6)
DERIVATIVES = Regime(torch.float32, (2, 3), 5.0, 1e-5, 0.0)


def examples(regime: Regime) -> st.SearchStrategy[Example]:
    return st.builds(
        Example,
        seed=st.integers(0, 2**16),
        dim=st.sampled_from(regime.dims),
        log_c=st.floats(-2.0, 1.0),
        depth=st.floats(0.0, regime.deepest) | st.just(regime.deepest),
        mode=st.sampled_from(("apart", "near", "ulp", "collinear", "opposite", "antipode")),
        closeness=st.floats(0.0, 1.0),
        heading=st.sampled_from(("any", "along", "across", "difference")),
        log_size=st.floats(-3.0, 3.0) | st.just(0.0),
        equal=st.booleans(),
    )


def settled(max_examples: int) -> settings:
    return settings(max_examples=max_examples, deadline=None, derandomize=True, database=None)


def excess(name: str, example: Example, regime: Regime, c: float | None = None) -> float:
    """The error of a function as a multiple of what it may be."""
    values, c = example.values(regime.dtype, regime.deepest), example.c if c is None else c
    arguments = [values[letter] for letter in SIGNATURES[name]]
    result = getattr(ball, name)(*arguments, c)
    expected = getattr(oracle, name)(*map(exact, arguments), mpf(c))
    allowed = regime.tolerance
    if name == "expmap" and any(expected):
        term = max(oracle.norm(exact(point)) for point in arguments[0].reshape(-1, example.dim))
        allowed = max(allowed, float(regime.unit * term / oracle.norm(expected)))
    if name == "midpoint" and regime is NARROW and any(expected):
        # Two float32 numbers hold 1 - c‖x‖² to 2⁻⁴⁸ only. So each term λx of the sum is off by up to λ² 2⁻⁴⁹, the
        # midpoint by λ 2⁻⁴⁹: more than the tolerance where terms of opposite points all but cancel.
        factor = max(2 / oracle.gap(exact(point), mpf(c)) for point in arguments[0].reshape(-1, example.dim))
        allowed = max(allowed, float(factor * mpf(2) ** -48 / oracle.norm(expected)))
    return relative_error(result, expected) / allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(FLOAT32))
@settled(60)
def test_float32(name: str, example: Example) -> None:
    assert excess(name, example, FLOAT32) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(FLOAT32_WIDE))
@settled(5)
def test_float32_in_many_dimensions(name: str, example: Example) -> None:
    assert excess(name, example, FLOAT32_WIDE) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(FLOAT64_INSIDE))
@settled(60)
def test_float64_inside(name: str, example: Example) -> None:
    assert excess(name, example, FLOAT64_INSIDE) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(FLOAT64_BOUNDARY))
@settled(60)
def test_float64_at_the_boundary(name: str, example: Example) -> None:
    assert excess(name, example, FLOAT64_BOUNDARY) <= 1.0


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-8, 1e-12])
def test_float64_next_to_the_origin(name: str, size: float) -> None:
    """Where the ball is all but flat and results are as small as the points: none may be rounded on the scale of 1."""
    x, y, v = size * torch.tensor([[1.0, 0.0], [-0.3, 0.5], [-0.5, 0.1]], dtype=torch.float64)
    values = {"x": x, "y": y, "v": v, "m": torch.stack((x, y)), "w": torch.tensor([1.0, 2.0], dtype=torch.float64)}
    arguments = [values[letter] for letter in SIGNATURES[name]]
    expected = getattr(oracle, name)(*map(exact, arguments), mpf(1))
    assert relative_error(getattr(ball, name)(*arguments, 1.0), expected) <= 2e-15


# --- pieces ------------------------------------------------------------------------------------------------------

QUOTIENTS = {
    "asinhc": lambda u: mp.asinh(mp.sqrt(u)) / mp.sqrt(u),
    "tanhc": lambda u: mp.tanh(mp.sqrt(u)) / mp.sqrt(u),
    "sech2": lambda u: mp.sech(mp.sqrt(u)) ** 2,
}


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("u", [1e-12, 1e-5, 5e-3, 0.009999, 0.01, 0.02, 0.5, 3.0, 100.0])
def test_quotients_and_their_slopes(name: str, u: float) -> None:
    """On both sides of the change from series to closed form, where either is at its worst."""
    argument = torch.tensor([u], dtype=torch.float64, requires_grad=True)
    result = getattr(numerics, name)(argument)
    result.backward()
    assert relative_error(result, QUOTIENTS[name](mpf(u))) <= 1e-14
    assert relative_error(argument.grad, mp.diff(QUOTIENTS[name], mpf(u), h=mpf(u) * mpf(10) ** -20)) <= 1e-12


# --- points at the boundary and beyond -------------------------------------------------------------------------


@given(example=examples(FLOAT32), dtype=st.sampled_from((torch.float32, torch.float64)))
@settled(50)
def test_project_leaves_the_points_of_the_ball_alone(example: Example, dtype: torch.dtype) -> None:
    x = example.values(torch.float32, FLOAT32.deepest)["x"].to(dtype)
    assert torch.equal(ball.project(x, example.c), x)


HALF_AND_FULL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF_AND_FULL)
@given(
    seed=st.integers(0, 2**16),
    dim=st.sampled_from((1, 2, 3, 8, 64, 512)),
    log_c=st.floats(-2.0, 1.0),
    factor=st.sampled_from((1.0, 1.0 + 1e-15, 1.0 + 1e-6, 1.5, 20.0)),
)
@settled(60)
def test_whatever_enters_the_ball_is_inside_it(
    dtype: torch.dtype, seed: int, dim: int, log_c: float, factor: float
) -> None:
    generator, c = torch.Generator().manual_seed(seed), 10.0**log_c
    x = torch.randn(dim, generator=generator, dtype=torch.float64)
    x = (x / x.norm() * factor / c**0.5).to(dtype)
    inside = ball.project(x, c)
    radius = mp.sqrt(c) * oracle.norm(exact(x))
    expected = oracle.scale(min(mpf(1), ball.max_radius(dtype) / radius), exact(x))
    assert relative_error(inside, expected) <= 2.0 * torch.finfo(dtype).eps
    for point in (inside, ball.expmap0(100.0 * x, c), ball.expmap(inside, 100.0 * x, c), ball.expmap(-inside, x, c)):
        assert point.dtype == dtype
        assert oracle.gap(exact(point), mpf(c)) > 0


@pytest.mark.parametrize("dtype", HALF_AND_FULL)
def test_max_radius_is_the_last_number_below_one_or_close_to_it(dtype: torch.dtype) -> None:
    assert 1.0 - 8.0 * torch.finfo(dtype).eps <= ball.max_radius(dtype) <= 1.0 - torch.finfo(dtype).eps


@pytest.mark.slow
def test_points_beyond_the_boundary_count_as_being_at_it() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[1.0, 0.0], [1.5, 0.0], [0.0, -40.0]], dtype=dtype)
        at_it = torch.full((3, 1), torch.finfo(dtype).eps, dtype=torch.float64)
        torch.testing.assert_close(ball.gap(x), at_it, rtol=1e-6, atol=0.0)


@given(example=examples(FLOAT32))
@settled(50)
def test_midpoint_from_running_sums(example: Example) -> None:
    values, c = example.values(torch.float32, FLOAT32.deepest), mpf(example.c)
    points, weights = exact(values["m"]), exact(values["w"])
    factors = [oracle.conformal_factor(x, c) for x in points]
    s = [mp.fsum(w * f * x[i] for w, f, x in zip(weights, factors, points, strict=True)) for i in range(example.dim)]
    t = mp.fsum(w * (f - 1) for w, f in zip(weights, factors, strict=True))
    sums = torch.tensor([float(a) for a in s], dtype=torch.float64), torch.tensor([float(t)], dtype=torch.float64)
    assert relative_error(midpoints.from_sums(*sums, example.c), oracle.midpoint(points, weights, c)) <= 1e-9


def test_midpoint_of_no_weight_is_the_origin() -> None:
    assert torch.equal(ball.midpoint(torch.rand(3, 4) / 4.0, torch.zeros(3)), torch.zeros(4))
    assert torch.equal(midpoints.from_sums(torch.zeros(4), torch.zeros(1)), torch.zeros(4))


@given(seed=st.integers(0, 2**16), dim=st.sampled_from((1, 2, 8)), log_c=st.floats(-2.0, 1.0))
@settled(40)
def test_gaps_handed_on_along_a_chain(seed: int, dim: int, log_c: float) -> None:
    """Twelve points in a cone add up to one that float32 can only round onto the boundary. Its gap is known still."""
    generator, c = torch.Generator().manual_seed(seed), 10.0**log_c
    x = 0.2 * torch.randn(12, dim, generator=generator) + torch.eye(dim)[0]
    x = x / x.norm(dim=-1, keepdim=True) * (0.3 + 0.6 * torch.rand(12, 1, generator=generator)) / c**0.5
    total, left = x[-1], ball.gap(x[-1], c)
    for point in x[:-1].flip(0):
        total, left = ball.mobius_add_with_gaps(point, ball.gap(point, c), total, left, c)
    expected = oracle.nested_sum(exact(x), mpf(c))
    assert relative_error(left, oracle.gap(expected, mpf(c))) <= 1e-5
    assert relative_error(total, expected) <= 1e-6
    assert relative_error(ball.logmap0_with_gap(total, left, c), oracle.logmap0(expected, mpf(c))) <= 1e-6


# --- without float64 -------------------------------------------------------------------------------------------


@given(example=examples(FLOAT32), representable=st.booleans())
@settled(80)
def test_compensated_gap(example: Example, representable: bool) -> None:
    x = example.values(torch.float32, FLOAT32.deepest)["x"]
    c = float(torch.tensor(example.c)) if representable else example.c
    result = numerics.compensated_gap(x, c)
    assert result.dtype == torch.float32
    assert relative_error(result, oracle.gap(exact(x), mpf(c))) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(NARROW))
@settled(40)
def test_device_without_float64(name: str, example: Example) -> None:
    assume(example.depth == 0.0 or example.depth > 1e-6)  # else even an ulp's square is too small for float32
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "wide_dtype", lambda x: torch.float32)
        assert excess(name, example, NARROW, c=float(torch.tensor(example.c))) <= 1.0


# --- derivatives -----------------------------------------------------------------------------------------------


def shaped(entries: list, like: torch.Tensor) -> list:
    return (
        entries if like.ndim == 1 else [entries[i : i + like.shape[1]] for i in range(0, len(entries), like.shape[1])]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@given(example=examples(DERIVATIVES))
@settled(25)
def test_derivatives_in_float32(name: str, example: Example) -> None:
    """By every argument and by c: relative to the derivative or, where it may vanish, to result over argument."""
    values, c = example.values(torch.float32, DERIVATIVES.deepest), mpf(example.c)
    arguments = [values[letter] for letter in SIGNATURES[name]]
    inputs = [exact(argument) for argument in arguments]

    def flat(*inputs: list) -> list:
        result = getattr(oracle, name)(*inputs)
        return result if isinstance(result, list) else [result]

    size = oracle.norm(flat(*inputs, c))
    assume(not torch.equal(values["x"], values["y"]))  # where the distance has a kink
    assume(name != "expmap" or oracle.gap(flat(*inputs, c), c) > 1e-6)  # held at the bound, with a gradient of its own
    everything = torch.autograd.functional.jacobian(
        lambda *a: getattr(ball, name)(*a).reshape(-1), (*arguments, torch.tensor(example.c, dtype=torch.float64))
    )
    for i, (letter, argument) in enumerate(zip(SIGNATURES[name], arguments, strict=True)):
        columns = oracle.jacobian(
            lambda z, i=i, like=argument: flat(*inputs[:i], shaped(z, like), *inputs[i + 1 :], c),
            exact(argument.reshape(-1)),
        )
        vanishing = name == "gyration" or letter == "w"  # collinear points rotate nothing; a mean of one point is it
        compare(everything[i], columns, size * (mp.sqrt(c) if letter in "xy" else 1) if vanishing else mpf(0))
    # c moves the boundary: its derivative gathers float32 sums, each of them over the gap.
    least = min(oracle.gap(point, c) for point in exact(values["m"]))
    scale = size / c * max(1, torch.finfo(torch.float32).eps / DERIVATIVES.tolerance / least)
    compare(everything[-1], oracle.jacobian(lambda z: flat(*inputs, z[0]), [c]), scale)


def compare(result: torch.Tensor, columns: list, scale: mpmath.mpf) -> None:
    expected = [entry for column in columns for entry in column]
    error = oracle.norm(oracle.sub(exact(result.reshape(len(result), -1).T.reshape(-1)), expected))
    assert error <= DERIVATIVES.tolerance * max(oracle.norm(expected), scale)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@given(example=examples(DERIVATIVES))
@settled(50)
def test_gradient_of_the_squared_distance(dtype: torch.dtype, tolerance: float, example: Example) -> None:
    """``∇_y d² = 8 asinh(√u)/√u / (√(1+u) αβ) · (δ + c‖δ‖² y/β)``, ``u = c‖δ‖²/(αβ)``."""
    values, c = example.values(dtype, DERIVATIVES.deepest), mpf(example.c)
    x, y = values["x"], values["y"].requires_grad_()
    assume(not torch.equal(x, y))
    ball.distance(x, y, example.c).square().backward()
    X, Y = exact(x), exact(y)
    delta, alpha, beta = oracle.sub(Y, X), oracle.gap(X, c), oracle.gap(Y, c)
    u = c * oracle.dot(delta, delta) / (alpha * beta)
    factor = 8 * mp.asinh(mp.sqrt(u)) / mp.sqrt(u) / (mp.sqrt(1 + u) * alpha * beta)
    closed = oracle.scale(factor, oracle.add(delta, oracle.scale(c * oracle.dot(delta, delta) / beta, Y)))
    slope = oracle.gradient(lambda z: oracle.distance(X, z, c) ** 2, Y)
    assert oracle.norm(oracle.sub(closed, slope)) <= mpf("1e-20") * oracle.norm(slope)
    assert relative_error(y.grad, closed) <= tolerance
