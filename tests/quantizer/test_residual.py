"""ResidualQuantizer as its users know it: codes and back, training, what training changes, what it must not."""

import copy

import pytest
import torch

from ghrq import ResidualQuantizer, ball
from ghrq.geometry import midpoints
from ghrq.geometry.kmeans import kmeans
from ghrq.geometry.nearest import nearest
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import KINDS

DIM, SIZE, STAGES = 8, 32, 4


def quantizer(kind="ghrq", **settings):
    return ResidualQuantizer(DIM, SIZE, STAGES, kind=kind, **settings)


def vectors(*shape, scale=0.3):
    return torch.randn(*shape, DIM) * scale


def state(rq):
    return {name: tensor.clone() for name, tensor in rq.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


# --- codes and back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_forward_encode_and_decode_agree(kind):
    rq, z = quantizer(kind, codebook_update="gradient"), vectors(6, 50)
    z_hat, codes, loss = rq(z)
    assert z_hat.shape == z.shape
    assert codes.shape == (6, 50, STAGES)
    assert codes.dtype == torch.int64
    assert loss.shape == ()
    rq.eval()
    assert torch.equal(rq.encode(z), codes)
    torch.testing.assert_close(rq.decode(codes), z_hat, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_depth_is_a_prefix(kind):
    rq, z = quantizer(kind).eval(), vectors(100)
    codes, prefixes = rq.encode(z), rq.prefixes(rq.encode(z))
    assert prefixes.shape == (100, STAGES, DIM)
    for depth in range(1, STAGES + 1):
        assert torch.equal(rq.encode(z, depth=depth), codes[:, :depth])
        torch.testing.assert_close(rq.decode(codes[:, :depth]), prefixes[:, depth - 1], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(rq.prefixes(codes[:, :depth]), prefixes[:, :depth], rtol=1e-6, atol=1e-7)


def test_one_vector_and_no_vector():
    rq = quantizer().eval()
    assert rq(vectors()).codes.shape == (STAGES,)
    assert rq.encode(vectors(0)).shape == (0, STAGES)
    assert rq.decode(torch.zeros(0, STAGES, dtype=torch.int64)).shape == (0, DIM)
    assert rq.train()(vectors(0)).loss.item() == 0.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [2, STAGES])
def test_a_beam_never_ends_farther_away(kind, depth):
    rq, z = quantizer(kind).eval(), vectors(3000, scale=0.5)

    def errors(codes):
        z_hat = rq.decode(codes)
        if rq.curvature == 0.0:
            return (z_hat - z).norm(dim=-1)
        return ball.distance(ball.expmap0(z_hat.double()), ball.expmap0(z.double()))

    greedy = errors(rq.encode(z, depth=depth))
    previous = greedy.mean()
    for beam in (2, 8):
        found = errors(rq.encode(z, depth=depth, beam=beam))
        assert bool((found <= greedy * (1 + 1e-5)).all())
        assert found.mean() < previous
        previous = found.mean()


@pytest.mark.parametrize("kind", ["ghrq", "naive"])
def test_a_beam_is_never_worse_at_the_boundary_either(kind):
    # Vectors of norm 8 lie at 1 - 2e-7 of the radius, where float32 points cannot tell distances.
    z = torch.randn(500, 64)
    rq = ResidualQuantizer(64, 64, 4, kind=kind).eval()
    with pytest.warns(UserWarning, match="set a radius"):
        rq.initialize(z)
    wide = copy.deepcopy(rq).double()

    def errors(codes):
        return ball.distance(ball.expmap0(wide.decode(codes)), ball.expmap0(z.double()))

    assert bool((errors(rq.encode(z, beam=8)) <= errors(rq.encode(z)) + 1e-9).all())


def test_a_wide_beam_finds_the_best_of_all_codes():
    rq = ResidualQuantizer(3, 6, 3).eval()
    z = torch.randn(50, 3)
    every = torch.cartesian_prod(*[torch.arange(6)] * 3)
    best = ball.pairwise_distance(ball.expmap0(z.double()), ball.expmap0(rq.decode(every).double())).min(1).values
    found = ball.distance(ball.expmap0(z.double()), ball.expmap0(rq.decode(rq.encode(z, beam=216)).double()))
    torch.testing.assert_close(found, best, rtol=1e-5, atol=1e-6)


def test_encode_works_in_chunks(monkeypatch):
    rq, z = quantizer().eval(), vectors(1000)
    codes, decoded = rq.encode(z), rq.decode(rq.encode(z))
    monkeypatch.setattr("ghrq.quantizer.coder.CHUNK_ROWS", 37)
    assert torch.equal(rq.encode(z), codes)
    assert torch.equal(rq.decode(codes), decoded)


# --- what training changes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"codebook_update": "ema"}, {"scale_control": True, "depth_dropout": True}])
def test_eval_mode_changes_no_state(settings):
    rq = quantizer(**settings)
    rq(vectors(500))
    rq.eval()
    before = state(rq)
    output = rq(vectors(500, scale=3.0))
    rq.encode(vectors(500))
    rq.decode(output.codes)
    rq.diagnose(vectors(500))
    assert same(before, state(rq))
    assert output.loss.item() > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_stays_on_the_ball(kind):
    rq, z = quantizer(kind, codebook_update="gradient"), vectors(2048)
    optimizer = RiemannianAdam(rq.parameters(), lr=0.01)
    rq.attach(optimizer)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = rq(z).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    if kind != "euclidean":
        assert rq.codebooks.norm(dim=-1).max().item() < 1.0


def test_nothing_is_revived_before_it_had_a_chance():
    rq = quantizer()
    before = rq.codebooks.detach().clone()
    rq(vectors(10))
    assert torch.equal(rq.codebooks, before)
    assert not rq.revived.any()


@pytest.mark.parametrize("update", ["gradient", "ema"])
def test_dead_codes_come_back_with_fresh_statistics(update):
    rq = quantizer(codebook_update=update, decay=0.9, revive_below=0.3)
    with torch.no_grad():
        rq.codebooks[1, 5:] = 0.999 / DIM**0.5  # where no residual ever is
    if rq.midpoints is not None:
        rq.midpoints.restart(rq.codebooks)
    z = vectors(1000)
    for _ in range(20):
        rq(z)
        if rq.revived.any():
            break
    assert rq.revived[1, 5:].any()
    where = rq.revived
    assert torch.equal(rq.usage.share[where], torch.ones(int(where.sum())))
    if rq.midpoints is not None:
        restarted = midpoints.from_sums(rq.midpoints.s, rq.midpoints.t)[where]
        torch.testing.assert_close(restarted.float(), rq.codebooks.detach()[where], rtol=1e-5, atol=1e-6)
    # They sit on residuals of their stage now, and get used.
    for _ in range(30):
        rq(z)
    assert (rq.usage.share[1] > 0.3).double().mean() > 0.6


def test_the_optimiser_forgets_the_moments_of_revived_codes():
    rq = quantizer(revive_below=0.0)
    optimizer = RiemannianAdam(rq.parameters(), lr=1e-3)
    rq.attach(optimizer)
    rq(vectors(500)).loss.backward()
    optimizer.step()
    moments = optimizer.state[rq.codebooks]
    used = moments["exp_avg"].abs().sum(-1) > 0
    rq.revived.copy_(used & (torch.rand_like(used, dtype=torch.float) < 0.5))
    revived, place = rq.revived.clone(), rq.codebooks.detach().clone()
    rq.codebooks.grad.zero_()
    optimizer.step()
    assert not moments["exp_avg"][revived].any()
    assert moments["exp_avg"][used & ~revived].any()
    assert torch.equal(rq.codebooks[revived], place[revived])
    assert not rq.revived.any()


def test_codes_revived_in_any_part_of_an_accumulated_step_are_remembered():
    rq = quantizer(decay=0.5, revive_below=0.9)
    seen = torch.zeros_like(rq.revived)
    for _ in range(4):
        before = rq.codebooks.detach().clone()
        rq(vectors(50))
        seen |= (rq.codebooks != before).any(-1)
    assert seen.any()
    assert torch.equal(rq.revived, seen)


def test_frozen_codebooks_stay():
    rq = quantizer(decay=0.5, revive_below=0.9).requires_grad_(False)
    before = rq.codebooks.clone()
    for _ in range(5):
        rq(vectors(50))
    assert torch.equal(rq.codebooks, before)


@pytest.mark.slow
@pytest.mark.parametrize("curvature", [0.0, 1.0, 3.0])
def test_moving_midpoints_have_the_right_fixed_point(curvature):
    rq = ResidualQuantizer(DIM, 1, 1, curvature=curvature, codebook_update="ema", decay=0.8).double()
    p = torch.nn.functional.normalize(torch.randn(200, DIM, dtype=torch.float64), dim=-1)
    p = (p * 0.95 + torch.tensor([0.04] + [0.0] * (DIM - 1))) / max(curvature, 1.0) ** 0.5
    for _ in range(200):
        rq.quantize(p)
    torch.testing.assert_close(rq.codebooks.detach()[0, 0], ball.midpoint(p, c=curvature), rtol=1e-9, atol=1e-10)
    assert not rq.codebooks.requires_grad


def test_scale_control_keeps_the_median_radius():
    rq = quantizer(scale_control=True)
    z = vectors(1000, scale=50.0)
    z_hat, _, _ = rq(z)
    scaled = ball.expmap0(z * rq.scale())
    assert abs(float(scaled.norm(dim=-1).median()) - 0.5) < 1e-3
    assert float((z_hat - z).norm() / z.norm()) < 1.0
    before = rq.scale().clone()
    rq(vectors(1000, scale=100.0))
    torch.testing.assert_close(rq.scale() / before, torch.tensor((0.99 + 0.5) / 1.99), rtol=0.05, atol=0.0)
    assert not rq.scale().requires_grad
    rq(torch.zeros(10, DIM))
    assert rq.scale().isfinite()


def test_depth_dropout_uses_every_depth_alike():
    rq = quantizer(depth_dropout=True, revive_below=0.0)
    z = vectors(4000, 2)
    z_hat, codes, _ = rq(z)
    prefixes = rq.prefixes(codes)
    depth = (prefixes - z_hat.unsqueeze(-2)).norm(dim=-1).argmin(-1) + 1
    torch.testing.assert_close(
        prefixes.gather(2, (depth - 1)[..., None, None].expand(-1, -1, 1, DIM)).squeeze(2), z_hat
    )
    assert torch.equal(depth[:, 0], depth[:, 1])  # one draw for each entry of the first dimension
    shares = depth[:, 0].bincount(minlength=STAGES + 1)[1:] / 4000
    assert bool((shares - 1 / STAGES).abs().max() < 0.03)
    rq.eval()
    torch.testing.assert_close(rq(z).z_hat, rq.decode(codes), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"codebook_update": "ema"}, {"scale_control": True}, {"codebook_dim": 4}])
def test_padding_teaches_nothing(settings):
    mask = torch.arange(20) < torch.randint(5, 20, (30, 1))
    z = vectors(30, 20)
    rq = quantizer(**settings)
    other = copy.deepcopy(rq)
    padded = torch.where(mask.unsqueeze(-1), z, float("nan")).requires_grad_()
    alone = z[mask].requires_grad_()
    one, two = rq(padded, mask=mask), other(alone)
    (one.loss + one.z_hat.square().sum()).backward()
    (two.loss + two.z_hat.square().sum()).backward()
    assert torch.equal(one.codes[mask], two.codes)
    losses = copy.deepcopy(rq).eval().stage_losses(padded.detach(), mask), rq.eval().stage_losses(alone.detach())
    torch.testing.assert_close(*losses)
    rq.train()
    torch.testing.assert_close(one.loss, two.loss)
    torch.testing.assert_close(one.z_hat[mask], two.z_hat)
    assert not one.z_hat[~mask].any()
    torch.testing.assert_close(padded.grad[mask], alone.grad, rtol=1e-5, atol=1e-7)
    assert not padded.grad[~mask].any()
    for (name, a), (_, b) in zip(rq.state_dict().items(), other.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


# --- where training starts ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_initialize_beats_a_random_start(kind):
    z = vectors(4000)
    rq = quantizer(kind, scale_control=True).eval()
    before = rq.diagnose(z)
    rq.initialize(z)
    after = rq.diagnose(z)
    assert after.residual_error[0] < before.residual_error[0]
    assert after.residual_error[-1] < before.residual_error[-1]
    assert all(usage > 0.9 for usage in after.usage)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_kmeans_ends_where_midpoints_stay(c):
    centres = torch.randn(10, 3) * 0.3
    x = (centres[torch.randint(10, (2000,))] + 0.01 * torch.randn(2000, 3)).clamp(-0.5, 0.5)
    found = kmeans(x, 10, c, iterations=30)
    index = nearest(x, found, c)
    for i in range(10):
        torch.testing.assert_close(found[i], ball.midpoint(x[index == i], c=c), rtol=1e-3, atol=1e-4)
    assert len(index.unique()) == 10


def test_initial_codes_are_well_inside_the_ball():
    for curvature in (0.25, 1.0, 9.0):
        codebooks = ResidualQuantizer(16, 512, 4, curvature=curvature).codebooks.detach()
        radius = curvature**0.5 * codebooks.norm(dim=-1)
        assert float(radius.max()) <= 0.5 + 1e-6
        assert float(radius.min()) > 0.0


def test_initialize_starts_the_scale_afresh():
    rq = quantizer(scale_control=True)
    rq.initialize(vectors(100))
    rq.initialize(vectors(100, scale=30.0))
    assert rq.diagnose(vectors(1000, scale=30.0)).radius["median"] == pytest.approx(0.5, abs=0.05)


# --- diagnosis -------------------------------------------------------------------------------------------------


def test_diagnose_measures_what_it_says():
    rq, z = quantizer().eval(), vectors(2000, scale=0.5)
    found = rq.diagnose(z)
    codes, p = rq.encode(z), ball.expmap0(z).double()
    for depth in range(1, STAGES + 1):
        error = ball.distance(ball.expmap0(rq.decode(codes[:, :depth]).double()), p).square().mean()
        assert found.residual_error[depth - 1] == pytest.approx(float(error), rel=1e-4)
    assert found.telescoping_error < 1e-20
    counts = codes[:, 1].bincount(minlength=SIZE).double()
    assert found.usage[1] == pytest.approx(float((counts > 0).double().mean()))
    share = counts[counts > 0] / counts.sum()
    assert found.perplexity[1] == pytest.approx(float((-(share * share.log()).sum()).exp()))
    assert found.radius["median"] == pytest.approx(float(p.norm(dim=-1).median()), rel=1e-5)
    assert found.boundary_fraction == pytest.approx(float((p.norm(dim=-1) > 0.99).double().mean()))
    assert "telescoping" in str(found)
    assert set(found.to_dict()) >= {"residual_error", "telescoping_error", "usage", "perplexity"}


def test_only_the_nested_rule_telescopes():
    z = vectors(500, scale=0.6)
    assert quantizer("naive").diagnose(z).telescoping_error > 0.1
    assert quantizer("hra-only").diagnose(z).telescoping_error < 1e-20
    assert quantizer("euclidean").diagnose(z).telescoping_error < 1e-20


@pytest.mark.parametrize("masked", [False, True])
def test_float64_is_float64_to_the_end(masked):
    """60 rows: their share in a mean is a number that float32 does not have."""
    rq = ResidualQuantizer(6, 12, 1, "ghrq", revive_below=0.0).double()
    z = (0.3 * torch.randn(60, 6, dtype=torch.float64)).requires_grad_()
    _, codes, loss = rq(z, torch.ones(60, dtype=torch.bool) if masked else None)
    found = torch.autograd.grad(loss, (z, rq.codebooks))
    point, code = ball.expmap0(z), rq.codebooks[0][codes[:, 0]]
    plain = (ball.distance(point.detach(), code) ** 2).mean() + 0.25 * (ball.distance(point, code.detach()) ** 2).mean()
    for one, other in zip(found, torch.autograd.grad(plain, (z, rq.codebooks)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)
