"""The calibrated kind: Euclidean at the origin in the encoder's own units, both gradients by one rule."""

import pytest
import torch
from tests import oracle

from ghrq import ball
from ghrq.geometry.midpoints import from_sums
from ghrq.quantizer import DepthDropout, ResidualQuantizer
from ghrq.quantizer.codebook import MovingMidpoints

D, K, N = 6, 16, 3


def calibrated(**settings):
    given = {"revive_below": 0.0, "codebook_update": "gradient", **settings}
    return ResidualQuantizer(D, K, N, "calibrated", **given).double()


def vectors(n=200, norm=1.0):
    return torch.randn(n, D, dtype=torch.float64) * norm / D**0.5


def backward(rq, z, weight=0.7):
    """The outputs, and the gradients by the vectors and the codebooks of a loss of both outputs."""
    leaf = z.clone().requires_grad_()
    z_hat, codes, loss = rq(leaf)
    total = (z_hat * torch.linspace(-1, 1, D, dtype=z.dtype)).sum() + z_hat.square().sum() + weight * loss
    return z_hat, codes, loss, *torch.autograd.grad(total, (leaf, rq.codebooks))


# --- its definition ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [0.5, 1.0])
def test_both_gradients_to_the_encoder_are_the_oracles(c):
    torch.manual_seed(0)
    rq = calibrated(curvature=c, scale_control=False, commitment_weight=0.3)
    z = (torch.nn.functional.normalize(vectors(4), dim=-1) * torch.tensor([[0.2], [0.5], [0.9], [0.99]])) / c**0.5
    point, codes, loss = rq.quantize(z.requires_grad_())
    g = torch.randn_like(point)
    hop = torch.autograd.grad((point * g).sum(), z, retain_graph=True)[0]
    pull = torch.autograd.grad(loss, z)[0]
    curvature = oracle.mpf(c)
    for i in range(len(z)):
        parts = [oracle.exact(rq.codebooks[n, codes[i, n]]) for n in range(N)]
        own, total = oracle.exact(z[i]), oracle.nested_sum(parts, curvature)
        expected = oracle.scale(oracle.mpf(4), oracle.discounted_transport(oracle.exact(g[i]), total, own, curvature))
        assert oracle.relative_error(hop[i], expected) < 1e-12
        # β/n of a quarter of the squared distance, by its Riemannian gradient in the metric (λ/2)².
        squared = oracle.gradient(lambda x, q=parts[0]: oracle.distance(x, q, curvature) ** 2, own)
        factor = oracle.mpf(0.3) / len(z) / 4 * oracle.gap(own, curvature) ** 2
        assert oracle.relative_error(pull[i], oracle.scale(factor, squared)) < 1e-11


def test_the_loss_is_a_quarter_of_the_squared_distances_over_the_scale():
    rq, z = calibrated(), vectors(norm=20.0)
    _, codes, loss = rq(z)
    r, total = rq.points(z), 0.0
    for n in range(N):
        q = rq.codebooks.detach()[n, codes[:, n]]
        total = total + 1.25 * ball.distance(r, q).square().mean()
        r = ball.mobius_sub(q, r)
    torch.testing.assert_close(loss, total / (4 * rq.scale().double().square()), rtol=1e-6, atol=0)


# --- Euclidean at the origin -------------------------------------------------------------------------------------


def test_small_curvatures_converge_to_the_euclidean_quantizer():
    torch.manual_seed(1)
    z = vectors(norm=0.5)
    flat = calibrated(curvature=0.0)
    expected = backward(flat, z)
    errors = []
    for c in (1e-2, 1e-4, 1e-6):
        rq = calibrated(curvature=c, scale_control=False)
        rq.codebooks.data.copy_(flat.codebooks)
        found = backward(rq, z)
        assert c > 1e-4 or torch.equal(found[1], expected[1])
        errors.append(max(float((a - b).detach().abs().max()) for a, b in zip(found[2:], expected[2:], strict=True)))
    # The difference is proportional to c.
    assert errors[1] < 1e-3
    assert errors[2] == pytest.approx(errors[1] / 100, rel=0.1)


def test_a_small_radius_converges_to_the_euclidean_quantizer():
    torch.manual_seed(1)
    z = vectors(norm=5.0)
    flat = calibrated(curvature=0.0)
    flat.codebooks.data.mul_(6.0)
    expected = backward(flat, z)
    rq = calibrated(radius=1e-4)
    rq.initialize(z)  # sets the scale
    rq.codebooks.data.copy_(ball.expmap0(flat.codebooks * rq.scale().double()))
    found = backward(rq, z)
    assert torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[2], expected[2], rtol=1e-6, atol=0)
    torch.testing.assert_close(found[3], expected[3], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1e4])
def test_it_does_not_depend_on_the_units_of_the_encoder(factor):
    torch.manual_seed(2)
    z = vectors()
    rq, other = calibrated(), calibrated()
    other.codebooks.data.copy_(rq.codebooks)
    z_hat, codes, loss, to_z, to_codes = backward(rq, z)
    leaf = (z * factor).requires_grad_()
    found = other(leaf)
    assert torch.equal(found.codes, codes)
    torch.testing.assert_close(found.z_hat / factor, z_hat, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.loss / factor**2, loss, rtol=1e-5, atol=0)
    # The loss of the vectors in their first units, so that all gradients follow by the chain rule.
    first = found.z_hat / factor
    total = (
        (first * torch.linspace(-1, 1, D, dtype=z.dtype)).sum() + first.square().sum() + 0.7 * found.loss / factor**2
    )
    grads = torch.autograd.grad(total, (leaf, other.codebooks))
    torch.testing.assert_close(grads[0] * factor, to_z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grads[1], to_codes, rtol=1e-4, atol=1e-5)


# --- radius, scale and centre ------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.1, 0.25, 0.9])
def test_the_radius_is_kept(radius):
    rq = ResidualQuantizer(D, K, N, "calibrated", radius=radius)
    for norm in (3.0, 4.0, 30.0, 30.0, 30.0):
        z = vectors(norm=norm).float()
        for _ in range(20):
            rq(z)
    assert rq.diagnose(z).radius["median"] == pytest.approx(radius, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"radius": 0.0}, "radius must be a number above 0 and below 1, got 0.0"),
        ({"radius": 1}, "radius must be a number above 0 and below 1, got 1"),
        ({"radius": "big"}, "got 'big'"),
        ({"scale_control": 0.3}, "scale_control must be True or False, got 0.3"),
        ({"radius": 0.5, "scale_control": False}, "needs scale control"),
        ({"curvature": 2.0, "radius": 0.5}, "the curvature follows the data"),
        ({"depth_dropout": 0.5}, "depth_dropout must be True, False, a list"),
        ({"depth_dropout": 2}, "depth_dropout must be True, False, a list"),
        ({"depth_dropout": [1, 9]}, "depths from 1 to num_stages=3"),
        ({"depth_dropout": []}, "depths from 1 to num_stages=3"),
        ({"depth_dropout": DepthDropout(full=1.5)}, "full of depth_dropout"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ResidualQuantizer(D, K, N, "calibrated", **settings)


def test_the_papers_kinds_have_no_scale_control_by_default():
    assert ResidualQuantizer(D, K, N, "ghrq").scale is None
    assert ResidualQuantizer(D, K, N, "ghrq", scale_control=True).radius == 0.5
    assert ResidualQuantizer(D, K, N, "ghrq", radius=0.7).scale.radius == 0.7
    assert ResidualQuantizer(D, K, N, "calibrated", curvature=0.0).scale is None


def test_centred_vectors_are_quantized_around_their_mean():
    torch.manual_seed(3)
    offset = torch.full((D,), 50.0)
    z = vectors(2000).float()
    plain, shifted = (ResidualQuantizer(D, K, N, "calibrated", centre=centre) for centre in (False, True))
    errors = []
    for rq, x in ((plain, z), (shifted, z + offset)):
        torch.manual_seed(0)
        rq.initialize(x)
        rq.eval()
        errors.append(float((rq(x).z_hat - x).square().mean()))
        torch.testing.assert_close(rq.decode(rq.encode(x)), rq(x).z_hat, rtol=1e-5, atol=1e-5)
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    # The offset takes up no room on the ball.
    torch.testing.assert_close(shifted.scale(), plain.scale(), rtol=1e-2, atol=0)
    assert shifted.diagnose(z + offset).radius["median"] == pytest.approx(0.15, abs=0.01)


def test_the_mean_and_all_settings_are_saved(tmp_path):
    rq = ResidualQuantizer(
        D, K, N, "calibrated", radius=0.4, centre=True, depth_dropout=DepthDropout([1, 3], 0.5, "all")
    )
    rq(vectors(300).float() + 7.0)
    rq.save_pretrained(tmp_path / "rq")
    loaded = ResidualQuantizer.from_pretrained(tmp_path / "rq")
    assert (loaded.radius, loaded.depth_dropout) == (0.4, rq.depth_dropout)
    z = vectors(50).float() + 7.0
    assert torch.equal(loaded.eval()(z).z_hat, rq.eval()(z).z_hat)


# --- depth dropout -----------------------------------------------------------------------------------------------


def test_depths_come_from_the_list_and_the_generator():
    rq = ResidualQuantizer(D, K, 8, "calibrated", depth_dropout=[2, 5], revive_below=0.0)
    draws = []
    for seed in (1, 1, 2):
        rq.generator = torch.Generator().manual_seed(seed)
        draws.append(rq.depth_dropout.draw(1000, 8, torch.device("cpu"), rq.generator))
    assert set(draws[0].tolist()) == {2, 5}
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_share_of_the_rows_keeps_full_depth():
    drawn = DepthDropout([1], full=0.3).draw(10_000, 8, torch.device("cpu"), torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {1, 8}
    assert float((drawn == 8).double().mean()) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("update", ["gradient", "ema"])
def test_all_rows_can_teach_all_stages(update):
    torch.manual_seed(4)
    z = vectors(500).float()
    results = {}
    for learning in ("used", "all"):
        rq = ResidualQuantizer(
            D,
            K,
            N,
            "calibrated",
            codebook_update=update,
            revive_below=0.0,
            depth_dropout=DepthDropout([1], learning=learning),
        )
        before = rq.codebooks.detach().clone()
        z_hat, codes, loss = rq(z)
        torch.testing.assert_close(z_hat, rq.eval().decode(codes[:, :1]) if update == "gradient" else z_hat)
        if update == "gradient":
            loss.backward()
        moved = rq.codebooks.grad if update == "gradient" else rq.codebooks.detach() - before
        results[learning] = [bool(stage.abs().max() > 1e-6) for stage in moved]
    assert results == {"used": [True, False, False], "all": [True, True, True]}


def test_a_revived_code_has_the_mass_of_its_stage():
    torch.manual_seed(5)
    rq = ResidualQuantizer(D, K, 4, "calibrated", depth_dropout=True, revive_below=0.0)
    z = vectors(4000).float()
    rq.initialize(z)
    for _ in range(600):
        rq(z)
    settled = rq.midpoints.t.mean(1).squeeze(-1)
    dead = torch.zeros(4, K, dtype=torch.bool)
    dead[:, 0] = True
    rows = rq._rows(z, None)
    rq.midpoints.restart(rq.codebooks, dead, rows.stages(4).sum(1))
    ratio = rq.midpoints.t[:, 0, 0] / settled
    assert (ratio - 1.0).abs().max() < 0.3, ratio


def test_a_quantizer_that_an_older_version_saved_stays_what_it_was():
    saved = {"dim": D, "codebook_size": K, "num_stages": N, "kind": "ghrq", "curvature": 1.0, "scale_control": False}
    old = ResidualQuantizer._from_config(saved | {"codebook_update": "gradient", "depth_dropout": False})
    assert (old.kind, old.units, old.commitment, old.scale, old.midpoints) == ("ghrq", "ball", "first", None, None)
    assert ResidualQuantizer(D, K, N).kind == "calibrated"


@pytest.mark.parametrize(("factor", "lasting"), [(30.0, False), (1000.0, False), (0.001, False), (1000.0, True)])
def test_batches_out_of_scale_do_not_spoil_the_codes(factor, lasting):
    torch.manual_seed(0)
    rq = ResidualQuantizer(8, 16, 3)
    rq.initialize(torch.randn(512, 8))
    for step in range(140):
        z = torch.randn(64, 8) * (factor if step == 20 or (lasting and step > 20) else 1.0)
        rq(z)
    rq.eval()
    z = torch.randn(500, 8) * (factor if lasting else 1.0)
    assert float((rq(z).z_hat - z).norm() / z.norm()) < 0.6


def relative_error(rq, z):
    return float((rq.eval()(z).z_hat - z).square().sum() / z.square().sum())


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_silence_and_empty_background_do_not_send_the_others_to_the_boundary(share):
    torch.manual_seed(0)
    z = torch.randn(2000, 8) * torch.where(torch.rand(2000, 1) < share, 0.01, 1.0)
    errors = {}
    for kind in ("calibrated", "euclidean"):
        rq = ResidualQuantizer(8, 32, 3, kind)
        rq.initialize(z)
        errors[kind] = relative_error(rq, z)
    assert errors["calibrated"] < 1.1 * errors["euclidean"] < 0.15, errors


def test_a_row_that_is_masked_does_not_count_for_the_scale():
    z = torch.randn(200, 8) * torch.where(torch.arange(200).unsqueeze(1) < 190, 0.01, 1.0)
    scales = []
    for rest in (z[:0], 1e3 * torch.randn(2000, 8)):
        rq = ResidualQuantizer(8, 16, 3)
        rows = torch.cat((z, rest))
        rq.initialize(rows, mask=torch.arange(len(rows)) < 200)
        rq(rows, mask=torch.arange(len(rows)) < 200)
        scales.append(float(rq.scale()))
    assert scales[0] == pytest.approx(scales[1], rel=1e-5)


@pytest.mark.parametrize("radius", [0.15, 0.5])
def test_one_long_row_in_every_batch_does_not_destroy_the_codes(radius):
    torch.manual_seed(0)
    rq = ResidualQuantizer(8, 32, 3, radius=radius)
    rq.initialize(torch.randn(512, 8))
    for _ in range(150):
        z = torch.randn(256, 8)
        z[0] *= 100.0
        rq(z)
    z = torch.randn(500, 8)
    assert relative_error(rq, z) < 0.22
    assert min(rq.diagnose(z).perplexity) > 16.0


def test_a_start_with_many_vectors_at_the_boundary_warns():
    torch.manual_seed(0)
    z = torch.randn(1000, 8) * torch.where(torch.rand(1000, 1) < 0.6, 0.01, 1.0)
    with pytest.warns(UserWarning, match=r"\d\d% of these vectors lie beyond radius 0.99 of .*: set a lower radius"):
        ResidualQuantizer(8, 32, 3, radius=0.75).initialize(z)


def test_rounding_errors_of_equal_vectors_are_no_scale():
    rq = ResidualQuantizer(8, 16, 3, centre=True)
    rq(torch.randn(1, 8))
    assert rq.data_curvature == 1.0
    z = torch.randn(64, 8)
    rq(z)
    assert 1e-4 < rq.data_curvature < 1.0


def test_the_limit_of_a_step_does_not_outlive_it():
    rq = ResidualQuantizer(8, 16, 3)
    rq.initialize(torch.randn(100, 8))
    small = ResidualQuantizer(8, 16, 3)
    small.initialize(1e-3 * torch.randn(100, 8))
    rq.load_state_dict(small.state_dict())
    assert rq.data_curvature == small.data_curvature


# --- a curvature that follows the data moves no code -------------------------------------------------------------


def in_units_of_the_encoder(rq):
    return ball.logmap0(rq.codebooks.detach()) / rq.scale().double()


@pytest.mark.parametrize("factor", [0.2, 1.5, 40.0])
def test_codes_stay_where_they_are_when_the_curvature_changes(factor):
    rq, z = calibrated(), vectors()
    rq(z)
    before, scale = in_units_of_the_encoder(rq), float(rq.scale())
    rq(factor * z)
    assert abs(float(rq.scale()) / scale - 1.0) > 0.03
    torch.testing.assert_close(in_units_of_the_encoder(rq), before, rtol=1e-6, atol=1e-12)


def test_the_first_vectors_set_the_curvature_and_move_no_code():
    rq = calibrated()
    drawn = rq.codebooks.detach().clone()
    rq(vectors(norm=1000.0))
    assert torch.equal(rq.codebooks, drawn)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_moving_midpoints_are_stretched_as_codes_are(factor):
    points = ball.expmap0(vectors(N * K).view(N, K, D) * torch.logspace(-4, 0.3, K, dtype=torch.float64).unsqueeze(-1))
    points[0, 0] = 0.0
    midpoints = MovingMidpoints(points, (K,) * N, 1.0, 0.9)
    wanted = ball.expmap0(factor * ball.logmap0(points))
    midpoints.stretch(torch.tensor(factor))
    torch.testing.assert_close(from_sums(midpoints.s, midpoints.t), wanted, rtol=1e-7, atol=1e-12)
    # The weights are the old ones, too: the next batch moves codes as far as before.
    expected = MovingMidpoints(wanted, (K,) * N, 1.0, 0.9)
    torch.testing.assert_close(midpoints.t, expected.t, rtol=1e-7, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, 0.1, 0.01])
def test_vectors_do_not_run_away_from_codes_that_follow_them(weight):
    """An autoencoder whose biases drift at first: commitment has to hold the vectors, as it does in flat space."""
    from sklearn.datasets import load_digits

    x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    errors = {}
    for kind in ("calibrated", "euclidean"):
        torch.manual_seed(0)
        encoder = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
        decoder = torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
        rq = ResidualQuantizer(16, 32, 4, kind, codebook_update="ema")
        rq.initialize(encoder(x).detach())
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
        for _ in range(400):
            batch = x[torch.randint(len(x), (64,))]
            z_hat, _, loss = rq(encoder(batch))
            error = torch.nn.functional.mse_loss(decoder(z_hat), batch)
            optimizer.zero_grad()
            (error + weight * loss).backward()
            optimizer.step()
        rq.eval()
        errors[kind] = torch.nn.functional.mse_loss(decoder(rq(encoder(x)).z_hat), x).item()
    assert errors["calibrated"] < 1.1 * errors["euclidean"]


def test_codes_that_a_smaller_batch_stretches_stay_inside(recwarn):
    rq = ResidualQuantizer(8, 16, 3, codebook_update="gradient")
    rq.initialize(torch.randn(256, 8))
    for _ in range(20):
        rq(torch.randn(256, 8) * 1e-2)
    assert not [warning for warning in recwarn if "outside the ball" in str(warning.message)]
