"""The ball as a geoopt manifold: its laws, its promises at the boundary, and the optimisers that walk on it."""

import copy
import subprocess
import sys

import pytest
import safetensors.torch
import torch
from torch import Tensor

from ghrq import ball
from ghrq.manifold import ManifoldParameter, PoincareBall
from points import DTYPES, all_inside, assert_close, ball_of, both_types, curvatures, directions, points

import geoopt  # isort: skip  # after ghrq.manifold, which imports it without its warnings


# --- the gyrogroup and its vector space ----------------------------------------------------------------------


@both_types
@curvatures
def test_left_cancellation(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(500, 7, c=c, dtype=dtype), points(500, 7, c=c, dtype=dtype, seed=1)
    # Subtracting x multiplies errors by up to (1+r)/(1-r), 19 at the radius 0.9.
    assert_close(m.mobius_add(-x, m.mobius_add(x, y)), y, 20, c**-0.5)
    assert_close(m.mobius_sub(x, x), torch.zeros_like(x), 0)


@both_types
@curvatures
def test_subtraction_is_the_right_one_of_geoopt(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(50, 7, c=c, dtype=dtype), points(50, 7, c=c, dtype=dtype, seed=1)
    assert torch.equal(m.mobius_sub(x, y), ball.project(ball.mobius_add(x, -y, m.c), m.c))
    theirs = geoopt.PoincareBall(m.c.double().clone()).mobius_sub(x.double(), y.double())
    assert_close(m.mobius_sub(x, y), theirs.to(dtype), 16, c**-0.5)


@both_types
@curvatures
def test_gyration_makes_addition_associative(c: float, dtype: torch.dtype) -> None:
    m = ball_of(c, dtype)
    x, y, z = (points(300, 5, c=c, dtype=dtype, seed=seed, depth=0.8) for seed in range(3))
    left = m.mobius_add(x, m.mobius_add(y, z))
    right = m.mobius_add(m.mobius_add(x, y), m.gyration(x, y, z))
    assert_close(left, right, 40, c**-0.5)


@both_types
@curvatures
def test_coaddition(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(500, 7, c=c, dtype=dtype), points(500, 7, c=c, dtype=dtype, seed=1)
    assert_close(m.mobius_coadd(x, y), m.mobius_coadd(y, x), 2, c**-0.5)
    assert_close(m.mobius_coadd(x, y), m.mobius_add(x, m.gyration(x, -y, y)), 20, c**-0.5)
    assert_close(m.mobius_sub(m.mobius_coadd(x, y), y), x, 40, c**-0.5)
    assert_close(m.mobius_cosub(m.mobius_add(x, y), y), x, 40, c**-0.5)
    assert_close(m.mobius_cosub(x, x), torch.zeros_like(x), 0)


def test_coaddition_of_nearly_opposite_points_keeps_its_digits() -> None:
    x = directions(200, 6) * 0.9999
    y = -x + 1e-6 * directions(200, 6, seed=1)
    x, y = x.float(), y.float()
    exact = ball_of(1.0).mobius_coadd(x.double(), y.double())
    error = (ball_of(1.0, torch.float32).mobius_coadd(x, y).double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert error.max() < 3e-7


@both_types
@curvatures
def test_scalar_multiplication(c: float, dtype: torch.dtype) -> None:
    m, x = ball_of(c, dtype), points(300, 6, c=c, dtype=dtype, depth=0.8)
    total = torch.zeros_like(x)
    for n in range(5):
        assert_close(m.mobius_scalar_mul(torch.tensor(float(n), dtype=dtype), x), total, 20, c**-0.5)
        total = m.mobius_add(x, total)
    r, s = (torch.rand(300, 1, dtype=dtype, generator=torch.Generator().manual_seed(i)) * 2 - 1 for i in range(2))
    rx, sx = m.mobius_scalar_mul(r, x), m.mobius_scalar_mul(s, x)
    assert_close(m.mobius_scalar_mul(r + s, x), m.mobius_add(rx, sx), 20, c**-0.5)
    assert_close(m.mobius_scalar_mul(r * s, x), m.mobius_scalar_mul(r, sx), 8, c**-0.5)
    assert_close(m.dist0(rx, keepdim=True), r.abs() * m.dist0(x, keepdim=True), 16, c**-0.5)
    assert_close(m.mobius_scalar_mul(-torch.ones((), dtype=dtype), x), m.antipode(x), 4, c**-0.5)


@both_types
@curvatures
def test_functions_through_the_origin(c: float, dtype: torch.dtype) -> None:
    m, x = ball_of(c, dtype), points(20, 6, c=c, dtype=dtype)
    one, two = directions(4, 6, dtype=dtype, seed=2), directions(6, 6, dtype=dtype, seed=3)
    w = directions(20, 6, dtype=dtype, seed=4)
    assert_close(m.mobius_matvec(one, x), m.mobius_fn_apply(lambda v: v @ one.mT, x), 2, c**-0.5)
    batched = m.mobius_matvec(one.expand(20, 4, 6), x)
    assert_close(batched, m.mobius_matvec(one, x), 8, c**-0.5)
    chain = m.mobius_fn_apply_chain(x, lambda v: v @ two.mT, lambda v: v @ one.mT)
    assert_close(chain, m.mobius_matvec(one, m.mobius_matvec(two, x)), 20, c**-0.5)
    assert_close(m.mobius_pointwise_mul(w, x), m.mobius_fn_apply(torch.mul, x, w), 2, c**-0.5)
    assert torch.equal(m.mobius_fn_apply_chain(x), x)
    assert torch.equal(m.mobius_matvec(torch.zeros_like(one), x), torch.zeros(20, 4, dtype=dtype))


# --- geodesics, distances and transport ----------------------------------------------------------------------


@both_types
@curvatures
def test_geodesics(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(200, 5, c=c, dtype=dtype), points(200, 5, c=c, dtype=dtype, seed=1)
    t = torch.linspace(0, 1, 9, dtype=dtype).view(-1, 1, 1)
    path = m.geodesic(t, x, y)
    assert_close(path[0], x, 1, c**-0.5)
    assert_close(path[-1], y, 8, c**-0.5)
    length = m.dist(x, y)
    assert_close(m.dist(path[1:], path[:-1]), (length / 8).expand(8, -1), 400, c**-0.5)
    assert_close(m.dist(x, path), t.squeeze(-1) * length, 400, c**-0.5)
    ray = m.geodesic_unit(t * 2.0, x, y)
    assert_close(m.dist(x, ray), (t * 2.0).squeeze(-1).expand(-1, 200), 2000, c**-0.5)
    assert_close(m.geodesic_unit(t, x, torch.zeros_like(x))[3], x, 2, c**-0.5)


@both_types
@curvatures
def test_exponential_and_logarithm_are_inverse(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(500, 5, c=c, dtype=dtype), points(500, 5, c=c, dtype=dtype, seed=1)
    assert_close(m.expmap(x, m.logmap(x, y)), y, 8, c**-0.5)
    assert_close(m.expmap0(m.logmap0(y)), y, 4, c**-0.5)
    assert_close(m.norm(x, m.logmap(x, y)), m.dist(x, y), 16, c**-0.5)
    assert_close(m.norm(torch.zeros_like(y), m.logmap0(y)), m.dist0(y), 8, c**-0.5)
    assert_close(m.dist2(x, y), m.dist(x, y) ** 2, 16, 1 / c)


@both_types
@curvatures
def test_transport(c: float, dtype: torch.dtype) -> None:
    m, x, y = ball_of(c, dtype), points(500, 5, c=c, dtype=dtype), points(500, 5, c=c, dtype=dtype, seed=1)
    u, v = directions(500, 5, dtype=dtype, seed=2), directions(500, 5, dtype=dtype, seed=3)
    there = m.transp(x, y, v)
    relative = m.norm(x, v, keepdim=True)  # the ratio of the conformal factors is up to 20
    assert_close(m.transp(y, x, there), v, 40)
    assert_close(
        m.inner(y, there, m.transp(x, y, u), keepdim=True) / relative**2,
        m.inner(x, v, u, keepdim=True) / relative**2,
        40,
    )
    zero = torch.zeros_like(x)
    assert_close(m.inner(x, m.transp0(x, u), m.transp0(x, v)), m.inner(zero, u, v), 20)
    assert_close(m.transp0(x, v), m.transp(zero, x, v), 4)
    assert_close(m.transp0back(x, m.transp0(x, v)), v, 4)
    assert_close(m.transp0back(x, v), m.transp(x, zero, v), 4, 10.0)
    # A geodesic carries its own velocity along.
    step = m.logmap(x, y)
    assert_close(m.transp(x, y, step), -m.logmap(y, x), 200, c**-0.5)


@both_types
@curvatures
def test_metric(c: float, dtype: torch.dtype) -> None:
    m, x = ball_of(c, dtype), points(30, 5, c=c, dtype=dtype)
    u, v = directions(30, 5, dtype=dtype, seed=2), directions(30, 5, dtype=dtype, seed=3)
    factor = 2 / (1 - c * x.double().square().sum(-1))
    assert m.inner(x, u, v).shape == m.norm(x, u).shape == m.lambda_x(x).shape == (30,)
    assert m.component_inner(x, u).shape == m.inner(x, u, keepdim=True).shape == (30, 1)
    torch.testing.assert_close(m.lambda_x(x), factor.to(dtype))
    torch.testing.assert_close(m.inner(x, u, v), (factor**2 * (u * v).double().sum(-1)).to(dtype), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(m.inner(x, u), m.norm(x, u) ** 2)
    torch.testing.assert_close(m.component_inner(x, u)[:, 0], m.inner(x, u))
    # ⟨rgrad, v⟩_x is the differential ⟨egrad, v⟩.
    torch.testing.assert_close(m.inner(x, m.egrad2rgrad(x, u), v), (u * v).sum(-1), rtol=1e-5, atol=1e-6)
    assert torch.equal(m.proju(x, u[0]), u[0].expand(30, 5))


@curvatures
def test_distance_to_a_plane_is_the_least_distance_to_its_points(c: float) -> None:
    m, d = ball_of(c), 4
    for seed in range(6):
        x, p, a = points(d, c=c, seed=seed), points(d, c=c, seed=seed + 10), directions(d, seed=seed + 20) * 3.0
        basis = torch.linalg.svd(a.unsqueeze(0)).Vh[1:]  # orthogonal to a
        w = torch.zeros(d - 1, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([w], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

        def loss(x: Tensor = x, p: Tensor = p, w: Tensor = w, basis: Tensor = basis) -> Tensor:
            w.grad = None
            value = m.dist2(x, m.expmap(p, w @ basis))
            value.backward()
            return value

        optimizer.step(loss)
        least = loss().sqrt().detach()
        distance = m.dist2plane(x, p, a)
        torch.testing.assert_close(distance, least, rtol=1e-6, atol=1e-8)
        signed = m.dist2plane(x, p, a, signed=True)
        assert signed.sign() == (m.logmap(p, x) @ a).sign()
        torch.testing.assert_close(signed.abs(), distance)
        torch.testing.assert_close(m.dist2plane(x, p, a, scaled=True), 3.0 * distance)
        torch.testing.assert_close(m.dist2plane(p, p, a), torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(
            m.dist2plane(x.float(), p.float(), a.float()), distance.float(), rtol=1e-5, atol=1e-5
        )


@both_types
@curvatures
def test_hyperboloid(c: float, dtype: torch.dtype) -> None:
    m, x = ball_of(c, dtype), points(100, 5, c=c, dtype=dtype)
    lifted = m.inv_sproj(x)
    assert lifted.shape == (100, 6)
    lorentz = lifted[:, :-1].double().square().sum(-1) - lifted[:, -1].double().square()
    torch.testing.assert_close(
        lorentz, torch.full_like(lorentz, -1 / c), rtol=1e-4 if dtype == DTYPES[0] else 1e-12, atol=0
    )
    assert_close(m.sproj(lifted), x, 4, c**-0.5)
    flat = PoincareBall(0.0).to(dtype)
    assert_close(flat.sproj(flat.inv_sproj(x)), x, 2, c**-0.5)


# --- midpoints -----------------------------------------------------------------------------------------------


@both_types
@curvatures
def test_weighted_midpoint(c: float, dtype: torch.dtype) -> None:
    m, x = ball_of(c, dtype), points(4, 9, 5, c=c, dtype=dtype)
    w = torch.rand(4, 9, dtype=dtype, generator=torch.Generator().manual_seed(3))
    each = m.weighted_midpoint(x, w, reducedim=[1])
    assert_close(each, ball.midpoint(x, w, m.c), 1, c**-0.5)
    assert_close(m.weighted_midpoint(x), ball.midpoint(x.reshape(36, 5), c=m.c), 1, c**-0.5)
    assert m.weighted_midpoint(x, w, reducedim=[1], keepdim=True).shape == (4, 1, 5)
    assert_close(m.weighted_midpoint(x, -w, reducedim=[1]), each, 1, c**-0.5)
    assert_close(m.weighted_midpoint(x, w, reducedim=[0]), ball.midpoint(x.movedim(0, 1), w.mT, m.c), 1, c**-0.5)
    other = m.weighted_midpoint(x.movedim(-1, 0), w, dim=0, reducedim=[2])
    assert_close(other.mT, each, 1, c**-0.5)
    # ⊗ by the sum of the weights
    combined = m.weighted_midpoint(x, w, reducedim=[1], lincomb=True)
    assert_close(combined, m.mobius_scalar_mul(w.sum(1, keepdim=True), each), 4, c**-0.5)
    counted = m.weighted_midpoint(x, reducedim=[1], lincomb=True)
    nine = torch.tensor(9.0, dtype=dtype)
    assert_close(counted, m.mobius_scalar_mul(nine, m.weighted_midpoint(x, reducedim=[1])), 1, c**-0.5)
    # a negative weight is a positive one of the antipode
    sign = torch.where(torch.arange(9) % 2 == 0, 1.0, -1.0).to(dtype)
    flipped = m.weighted_midpoint(x, sign * w, reducedim=[1], posweight=True)
    assert_close(flipped, ball.midpoint(sign[:, None] * x, w, m.c), 1, c**-0.5)
    assert torch.equal(m.weighted_midpoint(x, 0 * w, reducedim=[1]), torch.zeros(4, 5, dtype=dtype))


# --- geoopt's contract ---------------------------------------------------------------------------------------


def every_call(m: PoincareBall, dim: int, dtype: torch.dtype) -> dict[str, Tensor | tuple[Tensor, ...]]:
    """Every public geometric method, on tensors whose vectors lie along ``dim``."""

    def place(tensor: Tensor) -> Tensor:
        return tensor.movedim(-1, dim)

    c = float(m.c)
    x, y, z = (place(points(3, 4, 5, c=c, dtype=dtype, seed=seed)) for seed in range(3))
    u, v = (place(directions(3, 4, 5, dtype=dtype, seed=seed)) * 0.1 for seed in (4, 5))
    r = place(torch.rand(3, 4, 1, dtype=dtype, generator=torch.Generator().manual_seed(6)))
    matrix = directions(5, 5, dtype=dtype, seed=7)
    weights = torch.rand(3, 4, dtype=dtype, generator=torch.Generator().manual_seed(8))
    reducedim = [axis for axis in range(3) if axis != dim % 3]
    calls = {
        "dist": m.dist(x, y, dim=dim, keepdim=True),
        "dist2": m.dist2(x, y, dim=dim, keepdim=True),
        "dist0": m.dist0(x, dim=dim, keepdim=True),
        "dist2plane": m.dist2plane(x, y, u, dim=dim, keepdim=True, signed=True),
        "lambda_x": m.lambda_x(x, dim=dim, keepdim=True),
        "inner": m.inner(x, u, v, dim=dim, keepdim=True),
        "norm": m.norm(x, u, dim=dim, keepdim=True),
        "projx": m.projx(2 * x / x.norm(dim=dim, keepdim=True), dim=dim),
        "proju": m.proju(x, u, dim=dim),
        "egrad2rgrad": m.egrad2rgrad(x, u, dim=dim),
        "mobius_add": m.mobius_add(x, y, dim=dim),
        "mobius_sub": m.mobius_sub(x, y, dim=dim),
        "mobius_coadd": m.mobius_coadd(x, y, dim=dim),
        "mobius_cosub": m.mobius_cosub(x, y, dim=dim),
        "mobius_scalar_mul": m.mobius_scalar_mul(r, x, dim=dim),
        "mobius_pointwise_mul": m.mobius_pointwise_mul(u, x, dim=dim),
        "mobius_matvec": m.mobius_matvec(matrix, x, dim=dim),
        "mobius_fn_apply": m.mobius_fn_apply(torch.sin, x, dim=dim),
        "mobius_fn_apply_chain": m.mobius_fn_apply_chain(x, torch.sin, torch.cos, dim=dim),
        "gyration": m.gyration(x, y, z, dim=dim),
        "antipode": m.antipode(x, dim=dim),
        "geodesic": m.geodesic(r, x, y, dim=dim),
        "geodesic_unit": m.geodesic_unit(r, x, u, dim=dim),
        "expmap": m.expmap(x, u, dim=dim),
        "expmap0": m.expmap0(u, dim=dim),
        "logmap": m.logmap(x, y, dim=dim),
        "logmap0": m.logmap0(x, dim=dim),
        "transp": m.transp(x, y, u, dim=dim),
        "transp0": m.transp0(x, u, dim=dim),
        "transp0back": m.transp0back(x, u, dim=dim),
        "retr": m.retr(x, u, dim=dim),
        "retr_transp": m.retr_transp(x, u, v, dim=dim),
        "expmap_transp": m.expmap_transp(x, u, v, dim=dim),
        "transp_follow_retr": m.transp_follow_retr(x, u, v, dim=dim),
        "transp_follow_expmap": m.transp_follow_expmap(x, u, v, dim=dim),
        "weighted_midpoint": m.weighted_midpoint(x, weights, reducedim=reducedim, dim=dim, keepdim=True),
        "sproj": m.sproj(m.inv_sproj(x, dim=dim), dim=dim),
        "inv_sproj": m.inv_sproj(x, dim=dim),
    }
    if dim == -1:  # these know only the last axis
        calls |= {
            "component_inner": m.component_inner(x, u),
            "random": m.random(3, 4),
            "random_normal": m.random_normal(3, 4, std=2.0),
            "wrapped_normal": m.wrapped_normal(3, 5, mean=x[:, 0]),
            "origin": m.origin(3, 4),
            "check": torch.tensor(
                [
                    m.check_point(x),
                    m.check_vector(u),
                    m.check_point_on_manifold(x),
                    m.check_vector_on_tangent(x, u),
                    not m.check_point_on_manifold(2 * x / x.norm(dim=-1, keepdim=True) / c**0.5),
                ]
            ),
        }
        m.assert_check_point(x)
        m.assert_check_vector(u)
        m.assert_check_point_on_manifold(x)
        m.assert_check_vector_on_tangent(x, u)
        calls |= dict.fromkeys((n for n in dir(m) if n.startswith(("check_", "assert_check_"))), calls["check"])
    return calls


def test_no_method_reaches_geoopts_mathematics(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"geoopt's own {name} was used")

    monkeypatch.setattr(geoopt.manifolds.stereographic.manifold, "math", Forbidden())
    with pytest.raises(AssertionError, match="geoopt's own"):
        geoopt.PoincareBall().dist(torch.zeros(2), torch.zeros(2))
    calls = every_call(ball_of(1.0), -1, torch.float64)
    assert calls["check"].all()
    methods = {n for n in dir(geoopt.PoincareBall) if not n.startswith("_")} - set(dir(torch.nn.Module))
    not_geometry = {"pack_point", "unpack_tensor", "device", "dtype", "name", "ndim", "reversible", "radius", "c", "k"}
    assert methods - not_geometry == set(calls) - {"check"}


@both_types
@pytest.mark.parametrize("dim", [0, 1, -2, -3])
def test_vectors_may_lie_along_any_axis(dim: int, dtype: torch.dtype) -> None:
    m = ball_of(1.5, dtype)
    expected, actual = every_call(m, -1, dtype), every_call(m, dim, dtype)
    assert len(actual) > 35
    for name, values in actual.items():
        pairs = zip(*(v if isinstance(v, tuple) else (v,) for v in (values, expected[name])), strict=True)
        for value, reference in pairs:
            torch.testing.assert_close(value, reference.movedim(-1, dim), msg=f"{name}: {{}}".format)


def test_reductions_drop_the_axis_they_are_given() -> None:
    m, x, y = ball_of(1.0), points(3, 4, 5), points(3, 4, 5, seed=1)
    reference = m.dist(x, y)
    assert reference.shape == (3, 4)
    torch.testing.assert_close(m.dist(x.movedim(-1, 1), y.movedim(-1, 1), dim=1), reference)
    torch.testing.assert_close(m.norm(x.movedim(-1, 0), y.movedim(-1, 0), dim=0), m.norm(x, y))
    # As geoopt's layer of hyperplanes calls it: (B, d, 1) against (d, planes).
    planes = points(7, 5, seed=2)
    distances = m.dist2plane(x[:, 0].unsqueeze(-1), planes.mT, planes.mT, dim=-2, signed=True)
    torch.testing.assert_close(distances, m.dist2plane(x[:, 0].unsqueeze(1), planes, planes, signed=True))
    with pytest.raises(IndexError):
        m.dist(x, y, dim=3)


@curvatures
def test_agrees_with_geoopt_in_the_middle_of_the_ball(c: float) -> None:
    theirs = geoopt.PoincareBall(torch.tensor(c, dtype=torch.float64))
    ours, reference = every_call(ball_of(c), -1, torch.float64), every_call(theirs, -1, torch.float64)
    different = {
        "projx",  # the larger ball is the point
        "retr",  # geoopt's is of first order, x + u
        "retr_transp",
        "transp_follow_retr",
        "inner",  # geoopt multiplies (..., 1) by what it reduced
        "random",
        "random_normal",
        "wrapped_normal",
    }
    for name in reference.keys() - different:
        torch.testing.assert_close(ours[name], reference[name], rtol=1e-8, atol=1e-10, msg=f"{name}: {{}}".format)


def test_random_points() -> None:
    m = PoincareBall(2.0)
    torch.manual_seed(0)
    x = m.random(2000, 4, std=1.0)
    assert isinstance(x, geoopt.ManifoldTensor)
    assert x.manifold is m
    assert m.check_point_on_manifold(x)
    tangent = m.logmap0(x)
    assert abs(tangent.std().item() - 0.5) < 0.02
    far = m.random(2000, 4, std=1e4)
    assert (far.double().norm(dim=-1) < 2**-0.5).all()
    assert torch.equal(m.origin(3, 4), torch.zeros(3, 4))


def test_works_inside_geoopts_compound_manifolds() -> None:
    m, x, y = ball_of(1.0), points(10, 4), points(10, 4, seed=1)
    scaled = geoopt.Scaled(m, 2.0)
    torch.testing.assert_close(scaled.dist(x, y), 2.0 * m.dist(x, y))
    torch.testing.assert_close(scaled.expmap(x, scaled.logmap(x, y)), y)
    torch.testing.assert_close(scaled.dist0(scaled.expmap0(x)), scaled.norm(torch.zeros_like(x), x))
    product = geoopt.StereographicProductManifold((m, 4), (ball_of(0.5), 4))
    pair = torch.cat((x, y), dim=-1)
    torch.testing.assert_close(product.dist0(pair) ** 2, m.dist0(x) ** 2 + ball_of(0.5).dist0(y) ** 2)
    assert product.reversible  # as the retraction is the exponential map
    assert isinstance(m, geoopt.PoincareBall)
    assert isinstance(m, geoopt.Stereographic)


# --- the curvature -------------------------------------------------------------------------------------------


def test_a_fixed_curvature_is_kept_to_the_last_digit() -> None:
    for c in (1e-6, 0.1, 1.0, 2.0, 3.7):
        assert PoincareBall(c).c == torch.tensor(c)
        assert PoincareBall(torch.tensor(c, dtype=torch.float64)).c == torch.tensor(c, dtype=torch.float64)
    assert PoincareBall(2).c.dtype == torch.get_default_dtype()
    assert not list(PoincareBall(1.0).parameters())


def test_a_learnable_curvature_gets_its_gradient() -> None:
    for c in (1e-4, 0.7, 1.0, 30.0):
        m = PoincareBall(torch.tensor(c, dtype=torch.float64), learnable=True)
        torch.testing.assert_close(m.c.detach(), torch.tensor(c, dtype=torch.float64))
        x, y, u = points(20, 4, c=c), points(20, 4, c=c, seed=1), directions(20, 4, seed=2)

        def loss(m: PoincareBall, x: Tensor = x, y: Tensor = y, u: Tensor = u) -> Tensor:
            return m.dist(x, y).sum() + m.dist2plane(x, y, u).sum() + m.retr(x, u).sum() + m.mobius_coadd(x, y).sum()

        (gradient,) = torch.autograd.grad(loss(m), m.isp_c)
        h = 1e-6 * c
        numeric = (loss(ball_of(c + h)) - loss(ball_of(c - h))) / (2 * h) * torch.sigmoid(m.isp_c.detach())
        torch.testing.assert_close(gradient, numeric.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("c", "learnable"), [(-1.0, False), (0.0, True), (-1.0, True), (float("nan"), False)])
def test_curvatures_that_are_refused(c: float, learnable: bool) -> None:
    with pytest.raises(ValueError, match="curvature"):
        PoincareBall(c, learnable=learnable)


def test_the_tensor_of_the_caller_stays_as_it_is() -> None:
    c = torch.tensor(1.5)
    m = PoincareBall(c)
    c.fill_(9.0)
    assert m.c == 1.5
    assert PoincareBall(torch.tensor(2.0), learnable=True).c.requires_grad


@pytest.mark.parametrize("learnable", [False, True])
def test_copies_types_and_files(learnable: bool, tmp_path) -> None:
    class Model(torch.nn.Module):
        def __init__(self, c: float) -> None:
            super().__init__()
            self.manifold = PoincareBall(c, learnable=learnable)
            self.codes = ManifoldParameter(points(5, 3, c=c, dtype=torch.float32), manifold=self.manifold)

    model = Model(2.0)
    twin = copy.deepcopy(model)
    assert twin.codes.manifold is twin.manifold is not model.manifold
    assert torch.equal(twin.manifold.c, model.manifold.c)
    assert torch.equal(twin.codes, model.codes)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = Model(1.0)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other.manifold.c, model.manifold.c)
    assert torch.equal(other.codes, model.codes)
    model.double()
    assert model.manifold.c.dtype == model.manifold.dtype == model.codes.dtype == torch.float64
    assert isinstance(model.codes, ManifoldParameter)
    assert model.codes.manifold is model.manifold
    assert model.manifold.random(2, 3).dtype == torch.float64


def test_flat_space_is_the_limit() -> None:
    m, tiny = PoincareBall(0.0).double(), ball_of(1e-12)
    x, y, u = points(20, 4), points(20, 4, seed=1), directions(20, 4, seed=2)
    for method, args in {
        "dist": (x, y),
        "dist2plane": (x, y, u),
        "mobius_add": (x, y),
        "mobius_coadd": (x, y),
        "expmap": (x, u),
        "retr": (x, u),
        "logmap": (x, y),
        "transp": (x, y, u),
        "geodesic": (torch.tensor(0.3, dtype=torch.float64), x, y),
        "weighted_midpoint": (x,),
    }.items():
        flat = getattr(m, method)(*args)
        torch.testing.assert_close(flat, getattr(tiny, method)(*args), msg=method)
        assert flat.isfinite().all()
    torch.testing.assert_close(m.dist(x, y), 2 * (x - y).norm(dim=-1))
    torch.testing.assert_close(m.mobius_coadd(x, y), x + y)
    torch.testing.assert_close(m.weighted_midpoint(x), x.mean(0))
    torch.testing.assert_close(m.weighted_midpoint(x, lincomb=True), x.sum(0))


# --- up to the boundary --------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1.0, 2.5])
def test_float32_at_radius_0_9999(c: float) -> None:
    single, double = ball_of(c, torch.float32), PoincareBall(torch.tensor(c)).double()
    x = (directions(300, 16) * 0.9999 / c**0.5).float()
    y = (directions(300, 16, seed=1) * 0.9999 / c**0.5).float()
    near = (x + 1e-4 * directions(300, 16, seed=2).float() * 0.3).float()
    near = torch.where(near.norm(dim=-1, keepdim=True) < 0.99995 / c**0.5, near, x * 0.9998)
    eps = torch.finfo(torch.float32).eps
    for other in (y, near, -x, 0.5 * x, x):
        exact = double.dist(x.double(), other.double())
        torch.testing.assert_close(single.dist(x, other).double(), exact, rtol=5e-7, atol=0)
        # There and back. Rounding the logarithm turns it by an ulp, and geodesics at an angle part as sinh;
        # rounding the end moves it by an ulp times its conformal factor.
        error = double.dist(single.expmap(x, single.logmap(x, other)).double(), other.double())
        bound = eps * ((c**0.5 * exact).sinh() + double.lambda_x(other.double())) / c**0.5
        assert (error < bound).all()
    theirs = geoopt.PoincareBall(c)
    assert (theirs.projx(x) - x).norm(dim=-1).min() > 3e-3 / c**0.5  # what all of this would be lost to


def test_sums_are_pulled_back_into_the_ball_unless_told_otherwise() -> None:
    m = PoincareBall()
    x, y = m.projx(2 * directions(200, 8).float()), m.projx(2 * directions(200, 8, seed=1).float())
    free = m.mobius_add(x, y, project=False)
    assert not all_inside(free)  # by rounding
    assert all_inside(m.mobius_add(x, y))
    assert torch.equal(m.projx(free), m.mobius_add(x, y))


def test_points_at_the_largest_radius_are_on_the_manifold() -> None:
    for dtype in DTYPES:
        m = ball_of(1.0, dtype)
        x = directions(50, 8, dtype=dtype) * ball.max_radius(dtype)
        assert m.check_point_on_manifold(x, atol=0.0, rtol=torch.finfo(dtype).eps)
        assert m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 0.9999)
        assert not m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 1.001)
        ok, reason = m.check_point_on_manifold(directions(50, 8, dtype=dtype) * 1.001, explain=True)
        assert not ok
        assert "outside" in reason


# --- the import ----------------------------------------------------------------------------------------------


def test_import_is_silent_and_restores_the_filters() -> None:
    program = "import ghrq.manifold, warnings; warnings.warn('torch.jit.script', DeprecationWarning)"
    run = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert run.stderr == "<string>:1: DeprecationWarning: torch.jit.script\n"
