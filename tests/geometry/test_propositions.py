"""The paper's appendix B, proposition by proposition: to 60 digits by the oracle, and by ``ghrq.geometry.ball``.

What the oracle shows to 40 digits is an identity of the mathematics. What the ball then shows is that its forms of
the same functions keep the identity, as well as their type allows.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import jacrev

import oracle
from ghrq import ball
from oracle import Vector, exact, mp, mpf, relative_error

EXACT = mpf("1e-40")


@dataclass(frozen=True)
class Points:
    """Any number of points of one ball, float64, their radii between 0 and the limit."""

    seed: int
    dim: int
    log_c: float
    limit: float

    @property
    def c(self) -> float:
        return 10.0**self.log_c

    def draw(self, count: int, least: float = 0.0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        x = torch.randn(count, self.dim, generator=generator, dtype=torch.float64)
        radius = least + (self.limit - least) * torch.rand(count, 1, generator=generator, dtype=torch.float64)
        return list(x / x.norm(dim=-1, keepdim=True) * radius / self.c**0.5)


def points(limits: tuple[float, ...] = (0.5, 0.9, 1.0 - 1e-9), dims: tuple[int, ...] = (2, 3, 7)) -> st.SearchStrategy:
    return st.builds(
        Points,
        seed=st.integers(0, 2**16),
        dim=st.sampled_from(dims),
        log_c=st.floats(-2.0, 1.0),
        limit=st.sampled_from(limits),
    )


settled = settings(max_examples=40, deadline=None, derandomize=True, database=None)

# Rounding a point moves it by up to eps λ/2 in the metric, so the laws hold in float64 to 1e-12 up to this radius.
MODERATE = (0.5, 0.9)


def same(a: Vector, b: Vector) -> bool:
    return oracle.norm(oracle.sub(a, b)) <= EXACT * max(1, oracle.norm(b))


# --- B: the two standard facts ---------------------------------------------------------------------------------


@given(where=points())
@settled
def test_gyroassociativity(where: Points) -> None:
    """(G1) ``a ⊕ (b ⊕ w) = (a ⊕ b) ⊕ gyr[a,b] w``, and the gyrations that are the identity."""
    a, b, w = map(exact, where.draw(3))
    c = mpf(where.c)
    left = oracle.mobius_add(a, oracle.mobius_add(b, w, c), c)
    right = oracle.mobius_add(oracle.mobius_add(a, b, c), oracle.gyration(a, b, w, c), c)
    assert same(left, right)
    zero = [mpf(0)] * where.dim
    assert same(oracle.mobius_add(a, oracle.neg(a), c), zero)
    assert same(oracle.gyration(a, oracle.neg(a), w, c), w)
    assert same(oracle.gyration(a, zero, w, c), w)


@given(where=points(MODERATE))
@settled
def test_gyroassociativity_of_the_ball(where: Points) -> None:
    a, b, w = where.draw(3)
    left = ball.mobius_add(a, ball.mobius_add(b, w, where.c), where.c)
    right = ball.mobius_add(ball.mobius_add(a, b, where.c), ball.gyration(a, b, w, where.c), where.c)
    torch.testing.assert_close(left, right, rtol=0.0, atol=1e-12 / where.c**0.5)
    assert torch.equal(ball.mobius_add(a, -a, where.c), torch.zeros_like(a))
    assert torch.equal(ball.gyration(a, -a, w, where.c), w)
    torch.testing.assert_close(ball.gyration(a, torch.zeros_like(a), w, where.c), w, rtol=0.0, atol=1e-14)


@given(where=points())
@settled
def test_gyrocommutativity(where: Points) -> None:
    """``u ⊕ v = gyr[u,v] (v ⊕ u)``: what the background section calls the failure of commutativity."""
    u, v = where.draw(2)
    U, V, c = exact(u), exact(v), mpf(where.c)
    assert same(oracle.mobius_add(U, V, c), oracle.gyration(U, V, oracle.mobius_add(V, U, c), c))
    swapped = ball.gyration(u, v, ball.mobius_add(v, u, where.c), where.c)
    assert relative_error(swapped, oracle.mobius_add(U, V, c)) <= 1e-13


@given(where=points(), factor=st.sampled_from((-0.9, -0.5, 0.01, 0.3)))
@settled
def test_gyrations_are_rotations(where: Points, factor: float) -> None:
    """(G2) Linear, orthogonal, and the identity across both points: by the definition as it stands, w unscaled."""
    u, v, w, z = map(exact, where.draw(4))
    c, factor = mpf(where.c), mpf(factor)

    def gyration(w: Vector) -> Vector:
        back = oracle.neg(oracle.mobius_add(u, v, c))
        return oracle.mobius_add(back, oracle.mobius_add(u, oracle.mobius_add(v, w, c), c), c)

    w, z = oracle.scale(mpf("0.4"), w), oracle.scale(mpf("0.4"), z)  # so that their sum is a point too
    assert same(gyration(oracle.scale(factor, w)), oracle.scale(factor, gyration(w)))
    assert same(gyration(oracle.add(w, z)), oracle.add(gyration(w), gyration(z)))
    assert abs(oracle.dot(gyration(w), gyration(z)) - oracle.dot(w, z)) <= EXACT * oracle.norm(w) * oracle.norm(z)
    assert abs(oracle.norm(gyration(w)) - oracle.norm(w)) <= EXACT * oracle.norm(w)
    if where.dim > 2:
        across = perpendicular(w, u, v)
        assert same(gyration(across), across)


@given(where=points())
@settled
def test_gyrations_of_the_ball_are_rotations(where: Points) -> None:
    u, v, w, _ = where.draw(4)
    identity = torch.eye(where.dim, dtype=torch.float64)
    matrix = ball.gyration(u, v, identity, where.c).T
    torch.testing.assert_close(matrix.T @ matrix, identity, rtol=0.0, atol=1e-13)
    assert torch.linalg.det(matrix) > 0.0  # connected to the identity: not a reflection
    torch.testing.assert_close(ball.gyration(u, v, 1e3 * w, where.c), 1e3 * (matrix @ w), rtol=1e-12, atol=1e-10)
    if where.dim > 2:
        across = torch.tensor([float(a) for a in perpendicular(exact(w), exact(u), exact(v))], dtype=torch.float64)
        torch.testing.assert_close(ball.gyration(u, v, across, where.c), across, rtol=0.0, atol=1e-13)


def perpendicular(w: Vector, *others: Vector) -> Vector:
    """What ``w`` has across the others, scaled to stay well inside the ball that w is in."""
    basis: list[Vector] = []
    for vector in (*others, w):
        for e in basis:
            vector = oracle.sub(vector, oracle.scale(oracle.dot(vector, e), e))
        basis.append(oracle.scale(1 / oracle.norm(vector), vector))
    return oracle.scale(oracle.norm(w) / 2, basis[-1])


# --- B.1: left cancellation ------------------------------------------------------------------------------------


@given(where=points())
@settled
def test_left_cancellation(where: Points) -> None:
    """``a ⊕ ((-a) ⊕ b) = b``; on the right it fails, unless the two points are collinear."""
    a, b = map(exact, where.draw(2, least=0.3))
    c = mpf(where.c)
    assert same(oracle.mobius_add(a, oracle.mobius_sub(a, b, c), c), b)

    def right(a: Vector, b: Vector) -> Vector:
        return oracle.mobius_add(oracle.mobius_add(b, oracle.neg(a), c), a, c)

    cosine = oracle.dot(a, b) / (oracle.norm(a) * oracle.norm(b))
    if abs(cosine) < mpf("0.99"):
        assert oracle.distance(right(a, b), b, c) * mp.sqrt(c) > mpf("0.01")
    along = oracle.scale(mpf("-0.7"), b)
    assert same(right(along, b), b)


@given(where=points(MODERATE))
@settled
def test_left_cancellation_of_the_ball(where: Points) -> None:
    a, b = where.draw(2, least=0.3)
    left = ball.mobius_add(a, ball.mobius_sub(a, b, where.c), where.c)
    torch.testing.assert_close(left, b, rtol=0.0, atol=1e-12 / where.c**0.5)
    right = ball.mobius_add(ball.mobius_add(b, -a, where.c), a, where.c)
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=0).abs()
    assert cosine > 0.99 or ball.distance(right, b, where.c) * where.c**0.5 > 0.01


# --- B.2: the residual of HRA is a pure rotation -----------------------------------------------------------------


@given(where=points((0.5, 0.9), dims=(2, 3)))
@settled
def test_residual_mismatch_is_a_rotation(where: Points) -> None:
    """``R_i = Γ_i r_i``, ``Γ_i = gyr[q_1,u_2] … gyr[q_{i-1},u_i]``, so that ``‖R_i‖ = ‖r_i‖``, at every depth i."""
    z, *codes = map(exact, where.draw(6))
    c = mpf(where.c)
    residuals = oracle.hra_residuals(z, codes, c)
    assert same(oracle.nested_sum([*codes, residuals[-1]], c), z)
    for i in range(1, len(codes) + 1):
        true = oracle.mobius_sub(oracle.nested_sum(codes[:i], c), z, c)
        rotated = residuals[i]
        for k in range(i - 1, 0, -1):  # the factor of the largest k acts first
            rotated = oracle.gyration(codes[k - 1], oracle.nested_sum(codes[k:i], c), rotated, c)
        assert same(true, rotated)
        assert abs(oracle.norm(true) - oracle.norm(residuals[i])) <= EXACT


@pytest.mark.slow
@given(where=points((0.5, 0.9), dims=(2, 3, 16)))
@settled
def test_residual_mismatch_of_the_ball_is_a_rotation(where: Points) -> None:
    z, *codes = where.draw(5)
    codes = [0.5 * q for q in codes]
    r = z
    for i, q in enumerate(codes, start=1):
        r = ball.mobius_sub(q, r, where.c)
        tails = [codes[i - 1]]  # u_i, u_{i-1}, …, u_1
        rotated = r
        for k in range(i - 1, 0, -1):
            rotated = ball.gyration(codes[k - 1], tails[-1], rotated, where.c)
            tails.append(ball.mobius_add(codes[k - 1], tails[-1], where.c))
        true = ball.mobius_sub(tails[-1], z, where.c)
        torch.testing.assert_close(true, rotated, rtol=0.0, atol=1e-11 / where.c**0.5)
        torch.testing.assert_close(true.norm(), r.norm(), rtol=0.0, atol=1e-11 / where.c**0.5)


def test_naive_residual_mismatch_is_not_a_rotation() -> None:
    """It corrupts the magnitude too, and is no matter of rounding: 60 digits do not help."""
    worst = 0.0
    for seed in range(20):
        z, *codes = map(exact, Points(seed, 3, 0.0, 0.9).draw(6, least=0.3))
        residual = oracle.naive_residuals(z, codes, mpf(1))[-1]
        true = oracle.mobius_sub(oracle.chained_sum(codes, mpf(1)), z, mpf(1))
        worst = max(worst, float(abs(oracle.norm(true) - oracle.norm(residual))))
    assert worst > 0.1


DRIFT = pytest.mark.parametrize(("dim", "c"), [(2, 1.0), (3, 0.1), (8, 4.0), (64, 1.0)])


def cascade(z: Tensor, c: float, stages: int, nested: bool) -> tuple[list[Tensor], Tensor]:
    """Codes that take about half of what is left, as a codebook's would, and the residual after the last."""
    generator = torch.Generator().manual_seed(1)
    codes, r = [], z
    for _ in range(stages):
        v, noise = ball.logmap0(r, c), torch.randn(z.shape, generator=generator)
        size = v.norm(dim=-1, keepdim=True).clamp(max=1.0 / c**0.5) / noise.norm(dim=-1, keepdim=True)
        q = ball.expmap0(0.5 * v + 0.3 * size * noise, c)
        codes.append(q)
        r = ball.mobius_sub(q, r, c) if nested else ball.mobius_add(r, -q, c)
    return codes, r


@DRIFT
def test_telescoping(dim: int, c: float) -> None:
    """``q_1 ⊕ (… ⊕ (q_N ⊕ r_N)) = z`` in float32 at radius 0.99, 32 stages deep, where the naive order drifts."""
    z = torch.randn(100, dim, generator=torch.Generator().manual_seed(0))
    z = z / z.norm(dim=-1, keepdim=True) * 0.99 / c**0.5
    codes, tail = cascade(z, c, 32, nested=True)
    total = tail
    for q in reversed(codes):
        total = ball.mobius_add(q, total, c)
    assert ball.distance(total, z, c).max() * c**0.5 < 1e-4
    codes, tail = cascade(z, c, 32, nested=False)
    total = codes[0]
    for q in (*codes[1:], tail):
        total = ball.mobius_add(total, q, c)
    drift = ball.distance(total, z, c) * c**0.5
    assert drift.min() > 0.1
    # The drift is the algebra's, not the arithmetic's.
    exactly = oracle.chained_sum([exact(q[0]) for q in (*codes, tail)], mpf(c))
    assert oracle.distance(exactly, exact(z[0]), mpf(c)) * mp.sqrt(c) > 0.1


# --- B.3: the residual gradient leaks ------------------------------------------------------------------------------


def naive_leak(r: Tensor, q: Tensor, c: float) -> Tensor:
    """``A = ∂r_i/∂r_{i-1}`` for ``r_i = r ⊕ (-q)`` with the straight-through Jacobian I: r and q move together."""
    return jacrev(lambda t: ball.mobius_add(r + t, -(q + t), c))(torch.zeros_like(r))


def hra_leak(r: Tensor, q: Tensor, c: float) -> Tensor:
    return jacrev(lambda t: ball.mobius_sub(q + t, r + t, c))(torch.zeros_like(r))


@given(where=points(MODERATE, dims=(3, 5)))
@settled
def test_leak_across_the_points(where: Points) -> None:
    """``A w = ± c‖δ‖²/γ w`` for w ⊥ span{r, q}: + for the naive residual, - for that of HRA."""
    r, q, w = where.draw(3, least=0.1)
    across = torch.tensor([float(a) for a in perpendicular(exact(w), exact(r), exact(q))], dtype=torch.float64)
    R, Q, c = exact(r), exact(q), mpf(where.c)
    delta = oracle.sub(Q, R)
    gamma = 1 - 2 * c * oracle.dot(R, Q) + c**2 * oracle.dot(R, R) * oracle.dot(Q, Q)
    scalar = float(c * oracle.dot(delta, delta) / gamma)
    assert 0.0 < scalar < 1.0  # since γ = αβ + c‖δ‖²
    tolerance = {"rtol": 1e-11, "atol": 1e-11 * float(across.norm())}
    torch.testing.assert_close(naive_leak(r, q, where.c) @ across, scalar * across, **tolerance)
    torch.testing.assert_close(hra_leak(r, q, where.c) @ across, -scalar * across, **tolerance)


@given(where=points(MODERATE), share=st.floats(-0.99, 0.99))
@settled
def test_leak_along_collinear_points(where: Points, share: float) -> None:
    """``A e = c(ρ²-κ²)/(1-cρκ)² e``; on one line ⊕ commutes, so here both conventions leak alike."""
    (r,) = where.draw(1, least=0.1)
    q, c, e = share * r, where.c, r / r.norm()
    rho, kappa = float(r @ e), float(q @ e)
    scalar = c * (rho**2 - kappa**2) / (1.0 - c * rho * kappa) ** 2
    factors = 1.0 / ball.conformal_factor(q, c) - 1.0 / ball.conformal_factor(r, c)
    torch.testing.assert_close(2.0 * factors.item() / (1.0 - c * rho * kappa) ** 2, scalar, rtol=1e-9, atol=1e-12)
    for leak in (naive_leak, hra_leak):
        torch.testing.assert_close(leak(r, q, c) @ e, scalar * e, rtol=0.0, atol=1e-12 + 1e-10 * abs(scalar))


@pytest.mark.slow
@given(where=points(MODERATE, dims=(3, 5)), closeness=st.floats(0.0, 6.0))
@settled
def test_leak_is_zero_only_where_the_code_is_exact(where: Points, closeness: float) -> None:
    r, other = where.draw(2, least=0.1)
    q = r + 10.0**-closeness * (other - r)
    for leak in (naive_leak, hra_leak):
        # In the limit both differentials are I/(1 - c‖r‖²), and what is left of them is their rounding.
        assert leak(r, r, where.c).abs().max() <= 1e-14 / ball.gap(r, where.c).item()
        assert leak(r, q, where.c).norm() > 0.1 * where.c * float((q - r).norm()) ** 2
        assert torch.equal(leak(r, q, 0.0), torch.zeros_like(leak(r, q, 0.0)))


def test_leak_grows_without_bound_along_the_radius() -> None:
    """Where residual and code near the boundary together. Across them it cannot: c‖δ‖²/γ is at most 1."""
    e, w = torch.eye(3, dtype=torch.float64)[:2]
    for gap in (1e-1, 1e-3, 1e-5, 1e-7):
        r, q = (1.0 - gap) * e, (1.0 - 2.0 * gap) * e
        for leak in (naive_leak, hra_leak):
            matrix = leak(r, q, 1.0)
            assert matrix.norm() > 0.2 / gap  # 2/9 of 1/gap in the limit
            assert (matrix @ w).norm() < 1.0


# --- B.4: the stable gyration is exact ---------------------------------------------------------------------------


@given(where=points(), closeness=st.floats(0.0, 12.0))
@settled
def test_stable_gyration(where: Points, closeness: float) -> None:
    """Definition, raw closed form, Eq. gyr_stable and the ball: one function, also where q is close to z."""
    z, other, v = where.draw(3)
    q = z + 10.0**-closeness * (other - z)
    Z, Q, V, c = exact(z), exact(q), exact(v), mpf(where.c)
    dot = oracle.dot
    A, B, delta = Z, oracle.neg(Q), oracle.sub(Q, Z)
    a = -(c**2) * dot(A, V) * dot(B, B) + c * dot(B, V) + 2 * c**2 * dot(A, B) * dot(B, V)
    b = -(c**2) * dot(B, V) * dot(A, A) - c * dot(A, V)
    d = 1 + 2 * c * dot(A, B) + c**2 * dot(A, A) * dot(B, B)
    raw = oracle.add(V, oracle.scale(2 / d, oracle.add(oracle.scale(a, A), oracle.scale(b, B))))

    gap = 1 - c * dot(Z, Z)
    stable_d = gap**2 - 2 * c * gap * dot(Z, delta) + c**2 * dot(Z, Z) * dot(delta, delta)
    difference = -c * gap * dot(delta, V) - c**2 * dot(Z, V) * dot(delta, delta)
    difference += 2 * c**2 * dot(Z, delta) * dot(delta, V)
    assert abs(stable_d - d) <= EXACT * d
    assert abs(difference - (a - b)) <= EXACT * (abs(a) + abs(b))
    numerator = oracle.sub(oracle.scale(difference / 2, oracle.add(Q, Z)), oracle.scale((a + b) / 2, delta))
    stable = oracle.add(V, oracle.scale(2 / stable_d, numerator))

    definition = oracle.gyration(Z, oracle.neg(Q), V, c)
    # 1/d multiplies the 60 digits' own rounding, by up to 1e18 here.
    assert oracle.norm(oracle.sub(raw, definition)) <= mpf("1e-20") * oracle.norm(V)
    assert oracle.norm(oracle.sub(stable, definition)) <= mpf("1e-20") * oracle.norm(V)
    assert relative_error(ball.gyration(z, -q, v, where.c), definition) <= 1e-13
    discounted = oracle.scale(gap * oracle.gap(Q, c) / 4, definition)
    assert relative_error(ball.discounted_transport(v, q, z, where.c), discounted) <= 1e-13


# --- B.5: Euclidean residual quantization at zero curvature ------------------------------------------------------


@pytest.mark.slow
@given(seed=st.integers(0, 2**16), dim=st.sampled_from((1, 2, 9)))
@settled
def test_recovery_of_the_euclidean_cascade(seed: int, dim: int) -> None:
    """At c = 0 both conventions are the Euclidean one, and the operator is I/4. The numbers are dyadic: no rounding."""
    generator = torch.Generator().manual_seed(seed)
    z, g, *codes = torch.randint(-1024, 1025, (8, dim), generator=generator).double() / 256.0
    hra = naive = euclidean = z
    for q in codes:
        hra, naive, euclidean = ball.mobius_sub(q, hra, 0.0), ball.mobius_add(naive, -q, 0.0), euclidean - q
        assert torch.equal(hra, euclidean)
        assert torch.equal(naive, euclidean)
    nested, chained = codes[-1], codes[0]
    for q in reversed(codes[:-1]):
        nested = ball.mobius_add(q, nested, 0.0)
    for q in codes[1:]:
        chained = ball.mobius_add(chained, q, 0.0)
    total = torch.stack(codes).sum(0)
    assert torch.equal(nested, total)
    assert torch.equal(chained, total)
    assert torch.equal(nested + hra, z)
    identity = torch.eye(dim, dtype=torch.float64)
    assert torch.equal(ball.discounted_transport(identity, total, z, 0.0), identity / 4.0)
    assert torch.equal(ball.gyration(z, g, identity, 0.0), identity)
    # The oracle's recursions agree: Eq. bg_mobius_add at c = 0 is x + y.
    rows = [exact(q) for q in codes]
    assert oracle.hra_residuals(exact(z), rows, mpf(0))[-1] == exact(hra)
    assert oracle.naive_residuals(exact(z), rows, mpf(0))[-1] == exact(naive)
    assert oracle.nested_sum(rows, mpf(0)) == oracle.chained_sum(rows, mpf(0)) == exact(total)
