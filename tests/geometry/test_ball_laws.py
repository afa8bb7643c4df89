"""What holds for every function of the ball: finite values and gradients, the flat limit, types, and torch.func."""

import itertools
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import jacrev, vmap

from ghrq import ball
from oracle import SIGNATURES

# project takes a point as well, and has nothing to compare with 60 digits.
CALLS = SIGNATURES | {"project": "x"}
EVERY = pytest.mark.parametrize("name", CALLS)
WIDE = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def call(name: str, values: dict[str, Tensor], c: float | Tensor) -> Tensor:
    result: Tensor = getattr(ball, name)(*(values[letter] for letter in CALLS[name]), c)
    return result


def together(x: Tensor, y: Tensor, v: Tensor, w: Tensor) -> dict[str, Tensor]:
    return {"x": x, "y": y, "v": v, "m": torch.stack((x, y), dim=-2), "w": w}


def generic(
    *shape: int, dtype: torch.dtype = torch.float32, c: float = 1.0, seed: int = 0, radius: float = 0.9
) -> dict[str, Tensor]:
    """Points up to the radius, as many vectors up to length 1, weights from 0.1 to 1.1."""
    generator = torch.Generator().manual_seed(seed)

    def inside(radius: float) -> Tensor:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        length = radius * torch.rand(*shape[:-1], 1, generator=generator, dtype=torch.float64)
        return (x / x.norm(dim=-1, keepdim=True) * length).to(dtype)

    w = torch.rand(*shape[:-1], 2, generator=generator, dtype=torch.float64) + 0.1
    return together(inside(radius / c**0.5), inside(radius / c**0.5), inside(1.0), w.to(dtype))


# --- finite everywhere -----------------------------------------------------------------------------------------


def edge_points(dtype: torch.dtype, radius: float) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    e = torch.randn(5, generator=generator, dtype=torch.float64)
    e, axis = e / e.norm() * radius, torch.tensor([radius, 0.0, 0.0, 0.0, 0.0])
    eps = torch.finfo(dtype).eps
    points = {
        "origin": 0.0 * e,
        "next to the origin": 1e-30 * e,
        "inside": 0.5 * e,
        "last inside": (1.0 - eps) * e,
        "on the boundary": axis,
        "rounded to the boundary": e,
        "rounded beyond the boundary": (1.0 + 4.0 * eps) * e,
        "opposite on the boundary": -axis,
        "opposite, rounded beyond": -(1.0 + 4.0 * eps) * e,
    }
    return {name: point.to(dtype) for name, point in points.items()}


def edge_vectors(dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    e = torch.randn(5, generator=generator, dtype=torch.float64)
    e = e / e.norm()
    vectors = {"0": 0.0 * e, "1e-30": 1e-30 * e, "1": e, "1e6": 1e6 * e, "-1e6": -1e6 * e}
    return {name: vector.to(dtype) for name, vector in vectors.items()}


def edge_cases(name: str, dtype: torch.dtype, radius: float) -> list[dict[str, tuple[Tensor, ...]]]:
    """What x, y and v may be for a function, each case by its name, in batches.

    A norm of 0 takes the whole batch another way, so the cases of a batch have their zeros in the same places.
    """
    points, vectors = edge_points(dtype, radius), edge_vectors(dtype)
    batches: dict[tuple[bool, ...], dict[str, tuple[Tensor, ...]]] = {}
    for (a, x), (b, y), (size, v) in itertools.product(points.items(), points.items(), vectors.items()):
        if ("v" not in CALLS[name] and size != "1") or (not set("ym") & set(CALLS[name]) and b != "origin"):
            continue  # the same arguments again
        zeros = tuple(bool(vector.any()) for vector in (x, y, x - y, x + y, v))
        batches.setdefault(zeros, {})[f"x {a}, y {b}, v of size {size}"] = x, y, v
    return list(batches.values())


@EVERY
@WIDE
@pytest.mark.parametrize("c", [1.0, 0.1, 0.0])
def test_values_and_gradients_are_finite(name: str, dtype: torch.dtype, c: float) -> None:
    for batch in edge_cases(name, dtype, 1.0 / math.sqrt(c) if c else 1.0):
        leaves = [torch.stack(column).requires_grad_() for column in zip(*batch.values(), strict=True)]
        leaves.append(torch.tensor([0.3, 0.7], dtype=dtype).repeat(len(batch), 1).requires_grad_())
        curvature = torch.tensor(c, dtype=dtype, requires_grad=True)
        result = call(name, together(*leaves), curvature)
        result.sum().backward()
        for values in (result, *(leaf.grad for leaf in leaves if leaf.grad is not None)):
            finite = values.isfinite().reshape(len(batch), -1).all(1).tolist()
            assert [case for case, fine in zip(batch, finite, strict=True) if not fine] == []
        assert curvature.grad is None or curvature.grad.isfinite(), list(batch)  # a sum of all: no case can hide


@EVERY
@WIDE
def test_where_points_coincide(name: str, dtype: torch.dtype) -> None:
    """No distance and no slope there; a residual of 0; a transport that stays; a midpoint in place."""
    values = generic(6, 4, dtype=dtype)
    x, v = values["x"].requires_grad_(), values["v"]
    values = together(x, x.detach().clone(), v, values["w"])
    result, tolerance = call(name, values, 1.0), 8.0 * torch.finfo(dtype).eps
    expected = {
        "mobius_sub": torch.zeros_like(x),
        "logmap": torch.zeros_like(x),
        "distance": torch.zeros(6, dtype=dtype),
        "pairwise_distance": torch.zeros(6, 2, 2, dtype=dtype),
        "transport": v,
        "discounted_transport": v * ball.gap(x).square().to(dtype) / 4.0,
        "midpoint": x,
    }
    if name in expected:
        torch.testing.assert_close(result, expected[name], rtol=tolerance, atol=tolerance)
    if name in ("distance", "pairwise_distance"):
        assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.zeros_like(x))


# --- the flat limit --------------------------------------------------------------------------------------------

FLAT: dict[str, Callable[[dict[str, Tensor]], Tensor]] = {
    "gap": lambda a: torch.ones_like(a["x"][..., :1], dtype=torch.float64),
    "conformal_factor": lambda a: torch.full_like(a["x"][..., :1], 2.0),
    "mobius_add": lambda a: a["x"] + a["y"],
    "mobius_sub": lambda a: a["y"] - a["x"],
    "gyration": lambda a: a["v"],
    "distance": lambda a: (2.0 * (a["y"] - a["x"]).double().norm(dim=-1)).to(a["x"].dtype),
    "pairwise_distance": lambda a: torch.cdist(a["m"].double(), a["m"].double()).mul(2.0).to(a["x"].dtype),
    "expmap0": lambda a: a["v"],
    "logmap0": lambda a: a["x"],
    "expmap": lambda a: a["x"] + a["v"],
    "logmap": lambda a: a["y"] - a["x"],
    "transport": lambda a: a["v"],
    "discounted_transport": lambda a: a["v"] / 4.0,
    "midpoint": lambda a: (a["w"].unsqueeze(-1) * a["m"]).sum(-2) / a["w"].sum(-1, keepdim=True),
    "project": lambda a: a["x"],
}


@EVERY
@WIDE
@pytest.mark.parametrize("kind", ["a float", "a tensor"])
def test_flat_space(name: str, dtype: torch.dtype, kind: str) -> None:
    values = generic(20, 7, dtype=dtype, seed=1)
    values = together(30.0 * values["x"], 30.0 * values["y"], 30.0 * values["v"], values["w"])  # there is no boundary
    result = call(name, values, 0.0 if kind == "a float" else torch.tensor(0.0))
    # Only a mean and cdist add up in an order of their own; all else is the same operation to the last bit.
    tolerance = 4.0 * torch.finfo(dtype).eps if name in ("midpoint", "pairwise_distance") else 0.0
    torch.testing.assert_close(result, FLAT[name](values), rtol=tolerance, atol=tolerance)


@EVERY
@pytest.mark.parametrize("c", [1e-12, 1e-30, 1e-300])
def test_flat_space_is_the_limit(name: str, c: float) -> None:
    values = generic(20, 7, dtype=torch.float64, seed=2)
    torch.testing.assert_close(call(name, values, c), call(name, values, 0.0), rtol=1e-11, atol=1e-11)


@EVERY
def test_slope_in_c_at_flat_space(name: str) -> None:
    values, step = generic(20, 7, dtype=torch.float64, seed=3), 1e-6
    c = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.functional.jacobian(lambda c: call(name, values, c), c)
    # From one side, since no curvature is below 0: f'(0) to second order.
    f0, f1, f2 = (call(name, values, k * step) for k in (0.0, 1.0, 2.0))
    torch.testing.assert_close(slope, (4.0 * f1 - 3.0 * f0 - f2) / (2.0 * step), rtol=1e-6, atol=1e-8)


# --- gradients -------------------------------------------------------------------------------------------------


@EVERY
def test_gradcheck(name: str) -> None:
    letters = sorted(set(CALLS[name]))
    values = generic(2, 3, dtype=torch.float64, c=0.7, seed=4)
    leaves = [values[letter].requires_grad_() for letter in letters]
    c = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    if name == "pairwise_distance":  # not with itself: the distance of a point to itself has no derivative
        codes = generic(2, 3, dtype=torch.float64, c=0.7, seed=5)["m"].requires_grad_()
        assert torch.autograd.gradcheck(ball.pairwise_distance, (values["m"], codes, c))
        return
    assert torch.autograd.gradcheck(
        lambda *leaves: call(name, dict(zip(letters, leaves[:-1], strict=True)), leaves[-1]), (*leaves, c)
    )


def test_points_held_at_the_boundary_can_come_back() -> None:
    """The gradient of what ``project`` and the exponential maps shorten still points the way it would inside."""
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    for function in (ball.project, ball.expmap0, lambda v: ball.expmap(torch.zeros(2), v)):
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
        assert gradient.norm() > 1e-3


@WIDE
def test_gap_has_its_slope_at_the_boundary_and_beyond(dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, -1.5]], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(ball.gap(x, 2.0).sum(), x)
    torch.testing.assert_close(gradient, -4.0 * x.detach())


# --- types -----------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_float32_rounded(name: str, dtype: torch.dtype) -> None:
    values = generic(50, 6, dtype=dtype, c=0.7, seed=6, radius=0.5)  # nothing here comes near the bound of the type
    result = call(name, values, 0.7)
    expected = call(name, {letter: value.float() for letter, value in values.items()}, 0.7)
    assert result.dtype == (torch.float64 if name == "gap" else dtype)
    assert torch.equal(result, expected.to(result.dtype))


@EVERY
def test_types_meet_in_the_wider_one(name: str) -> None:
    values = generic(5, 6, dtype=torch.float64, seed=7)
    mixed = together(values["x"], values["y"], values["v"].float(), values["w"].float())
    if "v" in CALLS[name] and len(CALLS[name]) > 1:
        mixed["x"] = mixed["x"].float()
        assert call(name, mixed, 1.0).dtype == (torch.float32 if name == "expmap" else torch.float64)
    elif name != "expmap0":
        assert call(name, mixed, 1.0).dtype == torch.float64


@EVERY
def test_autocast_changes_nothing(name: str) -> None:
    values = generic(50, 6, c=0.7, seed=8)
    outside = call(name, values, 0.7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = call(name, values, 0.7)
    assert inside.dtype == outside.dtype
    assert torch.equal(inside, outside)


# --- shapes and torch.func -------------------------------------------------------------------------------------


@EVERY
@WIDE
def test_vmap_is_the_loop(name: str, dtype: torch.dtype) -> None:
    values, c = generic(6, 4, dtype=dtype, seed=9), torch.linspace(0.0, 1.0, 6, dtype=dtype)
    rows = [call(name, {letter: value[i] for letter, value in values.items()}, c[i]) for i in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where it would fall back to a loop of its own
        result = vmap(lambda values, c: call(name, values, c))(values, c)
    tolerance = 8.0 * torch.finfo(dtype).eps
    torch.testing.assert_close(result, torch.stack(rows), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@EVERY
def test_jacrev_is_autograd(name: str) -> None:
    values = generic(3, 4, dtype=torch.float64, seed=10)
    arguments = [values[letter] for letter in CALLS[name]]
    if name == "pairwise_distance":
        arguments[1] = generic(3, 4, dtype=torch.float64, seed=11)["m"]

    def function(*arguments: Tensor) -> Tensor:
        return getattr(ball, name)(*arguments, 0.7)

    expected = torch.autograd.functional.jacobian(function, tuple(arguments))
    result = jacrev(function, argnums=tuple(range(len(arguments))))(*arguments)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CALLS if not set("mw") & set(CALLS[name])])
def test_points_broadcast(name: str) -> None:
    """``(N, 1, d)`` against ``(K, d)``, with a curvature for each of the N."""
    many, few, c = generic(5, 1, 4, seed=12), generic(3, 4, seed=13), torch.linspace(0.0, 1.0, 5).reshape(5, 1, 1)
    values = {"x": many["x"], "y": few["y"], "v": few["v"]}
    whole = {letter: value.expand(5, 3, 4) for letter, value in values.items()}
    result = call(name, values, c)
    expected = torch.stack([call(name, {k: v[i] for k, v in whole.items()}, c[i, 0]) for i in range(5)])
    torch.testing.assert_close(result.expand_as(expected), expected, rtol=1e-6, atol=1e-6)


def test_a_chain_of_sums_can_hand_on_its_gaps() -> None:
    values = generic(5, 4, c=0.7, seed=17)
    x, y = values["x"], values["y"]
    result, left = ball.mobius_add_with_gaps(x, ball.gap(x, 0.7), y, ball.gap(y, 0.7), 0.7)
    assert torch.equal(result, ball.mobius_add(x, y, 0.7))
    wide = ball.mobius_add(x.double(), y.double(), 0.7)
    torch.testing.assert_close(left, ball.gap(wide, 0.7), rtol=1e-6, atol=0.0)


def test_pairwise_is_every_pair() -> None:
    x, codes = generic(5, 4, seed=14)["x"], generic(3, 4, seed=15)["x"]
    expected = ball.distance(x.unsqueeze(1), codes, 0.7)
    assert expected.shape == (5, 3)
    torch.testing.assert_close(ball.pairwise_distance(x, codes, 0.7), expected, rtol=1e-6, atol=0.0)


def test_midpoint_of_many_with_a_curvature_each() -> None:
    """As many sets as points in a set: the shape in which a curvature could be mistaken for a point's own."""
    generator = torch.Generator().manual_seed(16)
    x, c = torch.rand(3, 3, 4, generator=generator) / 2.0, torch.tensor([[0.1], [0.5], [1.0]])
    expected = torch.stack([ball.midpoint(x[i], None, float(c[i])) for i in range(3)])
    torch.testing.assert_close(ball.midpoint(x, None, c), expected, rtol=1e-6, atol=0.0)
    weights = torch.rand(3, 3, generator=generator)
    expected = torch.stack([ball.midpoint(x[i], weights[i], 0.5) for i in range(3)])
    torch.testing.assert_close(ball.midpoint(x, weights, 0.5), expected, rtol=1e-6, atol=0.0)


@EVERY
@pytest.mark.parametrize("c", [-1.0, -1, -1e-9, math.nan])
def test_negative_curvature_is_refused(name: str, c: float) -> None:
    with pytest.raises(ValueError, match=str(c)):
        call(name, generic(2, 3), c)
