"""The laws that the ball obeys as a geoopt manifold: gyrogroup, geodesics, transport, midpoints."""

import torch
from torch import Tensor

from ghrq import ball
from ghrq.geometry.manifold import PoincareBall
from points import DTYPES, assert_close, ball_of, both_types, curvatures, directions, points

import geoopt  # isort: skip  # after ghrq.geometry.manifold, which imports it without its warnings


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
