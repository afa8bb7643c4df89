"""Exactly the gradients of the design's table, each against its closed form."""

import pytest
import torch
from torch.func import jacrev

from ghrq import ball
from ghrq.geometry.nearest import code_table
from ghrq.quantizer import KINDS, ResidualQuantizer
from ghrq.quantizer.cascade import aggregate, residual
from ghrq.quantizer.depth import RowWeights
from ghrq.quantizer.routes import attached_route, transport_route

D, N, K = 5, 4, 16


def points(n=64, radius=0.8, dtype=torch.float64):
    directions = torch.nn.functional.normalize(torch.randn(n, D, dtype=torch.float64), dim=-1)
    return (directions * radius * torch.rand(n, 1, dtype=torch.float64).sqrt()).to(dtype)


def quantizer(kind, **settings):
    given = {"revive_below": 0.0, "codebook_update": "gradient", "scale_control": False, **settings}
    return ResidualQuantizer(D, K, N, kind=kind, **given).double()


def even_rows(n):
    return RowWeights(torch.full((n,), 1.0 / n, dtype=torch.float64), None)


def gradients(output, *inputs):
    found = torch.autograd.grad(output, inputs, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)]


# --- the closed form of the route against its definition -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("c", [0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("aggregation", ["nested", "chained"])
@pytest.mark.parametrize("discount", [True, False])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize(("commitment", "unit"), [("first", 1.0), ("discounted", 4.0)])
def test_the_closed_form_is_the_definition(c, aggregation, discount, uneven, commitment, unit):
    z = (points() / (c or 1.0) ** 0.5).requires_grad_()
    codebooks = (points(N * K, 0.6).view(N, K, D) / (c or 1.0) ** 0.5).requires_grad_()
    rows = even_rows(64)
    if uneven:
        weights = torch.rand(64, dtype=torch.float64)
        rows = RowWeights(weights / weights.sum(), torch.randint(1, N + 1, (64,)))
    settings = {"aggregation": aggregation, "commitment": commitment, "discount": discount, "unit": unit}
    given = z, ball.gap(z.detach(), c), codebooks, code_table(codebooks, c), c, rows
    fast = transport_route(*given, **settings)
    slow = attached_route(*given, gradient="transport" if c > 0.0 else "identity", **settings)
    assert torch.equal(fast.codes, slow.codes)
    torch.testing.assert_close(fast.point, slow.point, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(fast.codebook_loss, slow.codebook_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(fast.commitment_loss, slow.commitment_loss, rtol=1e-12, atol=0)
    toward = torch.randn_like(z)
    stage_weights = torch.rand(N, dtype=torch.float64)
    for one, other in (
        (fast.point * toward, slow.point * toward),
        (fast.codebook_loss * stage_weights, slow.codebook_loss * stage_weights),
        (fast.commitment_loss * stage_weights, slow.commitment_loss * stage_weights),
    ):
        for a, b in zip(gradients(one.sum(), z, codebooks), gradients(other.sum(), z, codebooks), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_in_float32_near_the_boundary_the_gradients_keep_their_digits():
    torch.manual_seed(1)
    z = ball.project(torch.nn.functional.normalize(points(256), dim=-1).float() * 0.9999)
    codebooks = points(N * K, 0.9).view(N, K, D).float()
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf, books = z.to(dtype).requires_grad_(), codebooks.to(dtype).requires_grad_()
        rows = RowWeights(torch.full((256,), 1 / 256, dtype=dtype), None)
        settings = {"aggregation": "nested", "commitment": "first", "discount": True}
        routed = transport_route(leaf, ball.gap(z).to(dtype), books, code_table(books, 1.0), 1.0, rows, **settings)
        loss = routed.codebook_loss.sum() + routed.commitment_loss.sum()
        results.append((routed, *gradients(loss, leaf, books), *gradients(routed.point.sum(), leaf)))
    (narrow, *low), (wide, *high) = results
    assert torch.equal(narrow.codes, wide.codes)
    for a, b in zip(low, high, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-5


# --- kind by kind ------------------------------------------------------------------------------------------------


def cascade_of(z, codes, codebooks, c, aggregation):
    """The residuals r_0 … r_N and codes q_1 … q_N of one vector."""
    parts = [codebooks[i, code] for i, code in enumerate(codes.tolist())]
    residuals = [z]
    for q in parts:
        residuals.append(residual(residuals[-1], q, c, aggregation))
    return residuals, parts


def leak(r, q, c, aggregation):
    """A_i of appendix B.3, from the two differentials of ⊕ with the straight-through Jacobian J = I."""
    if aggregation == "chained":
        first, second = jacrev(ball.mobius_add, argnums=(0, 1))(r, -q, c)
        return first - second
    first, second = jacrev(ball.mobius_add, argnums=(0, 1))(-q, r, c)
    return second - first


@pytest.mark.parametrize("kind", ["naive", "hra-only"])
@pytest.mark.parametrize("c", [0.5, 1.0])
def test_the_leaking_kinds_send_what_appendix_b3_says(kind, c):
    rq = quantizer(kind, curvature=c, commitment_weight=1.0)
    z = (points(1) / c**0.5).requires_grad_()
    toward = torch.randn(D, dtype=torch.float64)
    point, codes, loss = rq.quantize(z)
    reconstruction = (point @ toward).sum() + point.square().sum()
    residuals, parts = cascade_of(z[0].detach(), codes[0], rq.codebooks.detach(), c, rq.aggregation)

    def loss_of_codes(*q):
        total = aggregate(q, c, rq.aggregation).point
        return total @ toward + total.square().sum()

    to_codes = jacrev(loss_of_codes, argnums=tuple(range(N)))(*parts)
    path, expected, committed = torch.eye(D, dtype=torch.float64), 0.0, 0.0
    for i in range(N):
        expected = expected + path.T @ to_codes[i]
        pull = jacrev(lambda r, q=parts[i]: ball.distance(r, q, c).square())(residuals[i])
        committed = committed + path.T @ pull
        path = leak(residuals[i], parts[i], c, rq.aggregation) @ path
    torch.testing.assert_close(gradients(reconstruction, z)[0][0], expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradients(loss, z)[0][0], committed, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["ghrq", "dhste-only"])
@pytest.mark.parametrize("discount", [True, False])
def test_the_transporting_kinds_make_one_hop(kind, discount):
    rq = quantizer(kind, curvature=0.7, discount=discount)
    z = points().requires_grad_()
    point, _codes, _loss = rq.quantize(z)
    g = torch.randn_like(point)
    expected = ball.discounted_transport(g, point.detach(), z.detach(), 0.7)
    if not discount:
        expected = expected * ball.conformal_factor(z.detach(), 0.7).square()
        gyrated = ball.gyration(z.detach(), -point.detach(), g, 0.7)
        ratio = ball.conformal_factor(z.detach(), 0.7) / ball.conformal_factor(point.detach(), 0.7)
        torch.testing.assert_close(expected, ratio * gyrated, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients((point * g).sum(), z)[0], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["ghrq", "dhste-only"])
def test_only_the_first_commitment_reaches_the_encoder(kind):
    rq = quantizer(kind, commitment_weight=0.3)
    z = points().requires_grad_()
    _, codes, loss = rq.quantize(z)
    first = rq.codebooks.detach()[0, codes[:, 0]]
    x = z.detach().requires_grad_()
    commitment = 0.3 * ball.distance(x, first).square().mean()
    torch.testing.assert_close(gradients(loss, z)[0], gradients(commitment, x)[0], rtol=1e-10, atol=1e-14)


def test_the_first_commitment_pulls_along_its_closed_form():
    z, q = points(), points()
    alpha, beta = ball.gap(z), ball.gap(q)
    delta, u = z - q, (z - q).square().sum(-1, keepdim=True) / (alpha * beta)
    expected = 8 * u.sqrt().asinh() / u.sqrt() / ((1 + u).sqrt() * alpha * beta)
    expected = expected * (delta + delta.square().sum(-1, keepdim=True) * z / alpha)
    leaf = z.clone().requires_grad_()
    torch.testing.assert_close(
        gradients(ball.distance(leaf, q).square().sum(), leaf)[0], expected, rtol=1e-10, atol=1e-12
    )


def test_euclidean_gradients_are_the_textbook_ones():
    rq = quantizer("euclidean", commitment_weight=0.3)
    z = points(radius=3.0).requires_grad_()
    point, codes, loss = rq.quantize(z)
    parts = [rq.codebooks.detach()[i, codes[:, i]] for i in range(N)]
    torch.testing.assert_close(point, sum(parts))
    g = torch.randn_like(point)
    assert torch.equal(gradients((point * g).sum(), z)[0], g)
    torch.testing.assert_close(gradients(loss, z)[0], 0.3 * 2 * (z.detach() - parts[0]) / len(z), rtol=1e-12, atol=0)
    r = z.detach()
    total = 0.0
    for q in parts:
        total = total + 1.3 * (r - q).square().sum(-1).mean()
        r = r - q
    torch.testing.assert_close(loss, total)


def test_in_flat_space_the_identity_route_closes_the_cascade_by_itself():
    # Attached, with commitment everywhere: the leak matrices are 0, so all but the first term cancel.
    z = points(radius=3.0).requires_grad_()
    codebooks = points(N * K).view(N, K, D)
    settings = {"aggregation": "chained", "gradient": "identity", "discount": True}
    given = z, ball.gap(z.detach(), 0.0), codebooks, code_table(codebooks, 0.0), 0.0, even_rows(64)
    every = attached_route(*given, commitment="every", **settings)
    first = attached_route(*given, commitment="first", **settings)
    for one, other in ((every.commitment_loss, first.commitment_loss), (every.point, first.point)):
        assert torch.equal(gradients(one.sum(), z)[0], gradients(other.sum(), z)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("curvature", [0.0, 1.0])
def test_codebooks_learn_from_the_codebook_loss_alone(kind, curvature):
    rq = quantizer(kind, curvature=curvature)
    z = points().requires_grad_()
    point, codes, loss = rq.quantize(z)
    assert not gradients(point.square().sum(), rq.codebooks)[0].any()
    r, total = z.detach(), 0.0
    leaf = rq.codebooks.detach().requires_grad_()
    for i in range(N):
        q = leaf[i, codes[:, i]]
        distance = ball.distance(r, q, rq.curvature) if rq.curvature else (r - q).norm(dim=-1)
        total = total + distance.square().mean()
        r = residual(r, q.detach(), rq.curvature, rq.aggregation)
    if rq.units == "encoder" and rq.curvature:
        total = total / 4
    torch.testing.assert_close(gradients(loss, rq.codebooks)[0], gradients(total, leaf)[0], rtol=1e-9, atol=1e-12)


def test_at_zero_curvature_all_kinds_are_the_euclidean_quantizer_exactly():
    reference = quantizer("euclidean")
    z = points(radius=2.0)
    expected = None
    for kind in KINDS:
        rq = quantizer(kind, curvature=0.0)
        rq.load_state_dict(reference.state_dict())
        leaf = z.clone().requires_grad_()
        output = rq(leaf)
        found = (*output, *gradients(output.loss + output.z_hat.square().sum(), leaf, rq.codebooks))
        expected = expected or found
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("commitment", ["first", "every"])
@pytest.mark.parametrize("gradient", ["transport", "identity"])
def test_the_axes_can_be_chosen_one_by_one(gradient, commitment):
    rq = quantizer("ghrq", gradient=gradient, commitment=commitment)
    z = points().requires_grad_()
    _, _codes, loss = rq.quantize(z)
    codebook_loss, commitment_loss = rq.stage_losses(ball.logmap0(z))
    reaches = [bool(gradients(commitment_loss[i], z)[0].any()) for i in range(N)]
    assert reaches == [True] + [commitment == "every"] * (N - 1)
    torch.testing.assert_close(codebook_loss.sum() + 0.25 * commitment_loss.sum(), loss)


def test_coincident_points_and_codes_have_finite_gradients():
    for kind in KINDS:
        rq = quantizer(kind)
        z = rq.codebooks.detach()[0].clone().requires_grad_()
        point, _, loss = rq.quantize(z)
        for g in gradients(loss + point.sum(), z, rq.codebooks):
            assert g.isfinite().all()
