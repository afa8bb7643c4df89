"""What users of other residual quantizers expect: channels first, unused codes, freezing, details, clear refusals."""

import io

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ghrq import ResidualQuantizer, ball
from ghrq.geometry.nearest import code_table, sample
from ghrq.quantizer import KINDS, DepthDropout, kmeans_start
from ghrq.system.progress import PlainProgress

D, K, N = 6, 16, 4


def quantizer(**settings):
    return ResidualQuantizer(D, K, N, **settings)


def state(rq):
    return {name: tensor.clone() for name, tensor in rq.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


# --- channels first ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, D, 5), (3, D, 4, 5), (7, D)])
def test_channels_first_is_the_same_quantizer(shape):
    first, last = quantizer(channel_dim=1).eval(), quantizer().eval()
    last.load_state_dict(first.state_dict())
    z = torch.randn(shape)
    moved = z.movedim(1, -1)
    found, expected = first(z), last(moved)
    assert found.z_hat.shape == z.shape
    assert torch.equal(found.z_hat.movedim(1, -1), expected.z_hat)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.loss, expected.loss)
    assert torch.equal(first.encode(z), expected.codes)
    assert torch.equal(first.decode(found.codes), last.decode(found.codes).movedim(-1, 1))
    assert torch.equal(first.prefixes(found.codes), last.prefixes(found.codes))
    assert torch.equal(first.distance(z, found.codes), last.distance(moved, found.codes))
    assert first.diagnose(z) == last.diagnose(moved)
    for a, b in zip(first.stage_losses(z), last.stage_losses(moved), strict=True):
        assert torch.equal(a, b)


def test_channels_first_with_a_mask():
    rq, z = quantizer(channel_dim=1), torch.randn(2, D, 5)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    z_hat, codes, _ = rq(z, mask)
    assert codes.shape == (2, 5, N)
    assert not z_hat[1, :, 2:].any()
    assert z_hat[0].any()


# --- unused codes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_minus_one_is_a_stage_that_is_not_used(kind):
    rq = quantizer(kind=kind)
    codes = torch.randint(K, (50, N))
    cut = torch.randint(1, N + 1, (50,))
    short = torch.where(torch.arange(N) < cut.unsqueeze(1), codes, -1)
    expected = torch.stack([rq.decode(row[:depth]) for row, depth in zip(codes, cut.tolist(), strict=True)])
    torch.testing.assert_close(rq.decode(short), expected, rtol=1e-6, atol=1e-7)
    assert not rq.decode(torch.full((1, N), -1)).any()


# --- details, freezing -------------------------------------------------------------------------------------------


def test_details_come_without_a_second_pass():
    rq = quantizer(codebook_update="gradient", depth_dropout=DepthDropout([1, 3]), revive_below=0.0)
    z = torch.randn(8, 5, D)
    details = rq(z, details=True)
    assert details.depths.shape == (8, 5)
    assert set(details.depths.flatten().tolist()) <= {1, 3}
    assert (details.depths == details.depths[:, :1]).all()
    total = details.codebook_loss.sum() + 0.25 * details.commitment_loss.sum()
    torch.testing.assert_close(total, details.loss)
    cut = torch.where(torch.arange(N) < details.depths.unsqueeze(-1), details.codes, -1)
    torch.testing.assert_close(rq.decode(cut), details.z_hat, rtol=1e-5, atol=1e-6)
    assert rq.eval()(z, details=True).depths is None


@pytest.mark.parametrize("update", ["gradient", "ema"])
def test_a_frozen_quantizer_learns_nothing_but_passes_gradients(update):
    rq, z = quantizer(codebook_update=update, centre=True), torch.randn(300, D)
    rq(z)
    rq.freeze()
    before, leaf = state(rq), z.clone().requires_grad_()
    output = rq(leaf)
    (output.loss + output.z_hat.square().sum()).backward()
    assert same(before, state(rq))
    assert rq.codebooks.grad is None
    assert leaf.grad.abs().sum() > 0
    rq.freeze(False)
    rq(z)
    assert not same(before, state(rq))
    assert rq.codebooks.requires_grad == (update == "gradient")


@pytest.mark.parametrize("kind", ["calibrated", "naive", "euclidean"])
def test_codes_can_be_drawn_in_training(kind):
    z = torch.randn(4000, D) * 0.3
    rq = quantizer(kind=kind, temperature=1.0, revive_below=0.0, codebook_update="gradient")
    rq.generator = torch.Generator().manual_seed(0)
    drawn = rq(z).codes
    assert not torch.equal(rq(z).codes, drawn)
    rq.generator = torch.Generator().manual_seed(0)
    assert torch.equal(rq(z).codes, drawn)
    rq.temperature = 1e-6
    assert (rq(z).codes[:, 0] == rq.encode(z)[:, 0]).float().mean() > 0.999
    rq.temperature = 1.0
    assert torch.equal(rq.eval()(z).codes, rq.encode(z))


def test_codes_are_drawn_by_their_distance():
    codes = torch.tensor([[0.1, 0.0], [0.0, 0.3], [-0.5, 0.0]], dtype=torch.float64)
    x = torch.tensor([[0.2, 0.1]], dtype=torch.float64).expand(200_000, 2)
    drawn = sample(x, x.square().sum(-1, keepdim=True), ball.gap(x), code_table(codes, 1.0), 1.0, 0.7).chosen
    squared = ball.pairwise_distance(x[:1], codes).square()
    expected = (-squared / (0.7 * squared.min())).softmax(-1)[0]
    found = drawn.bincount(minlength=3).double() / len(drawn)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)


# --- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_is_refused(reentrant):
    rq, z = quantizer(), torch.randn(20, D, requires_grad=True)
    output = checkpoint(lambda x: rq(x).z_hat, z, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match="exclude it from gradient checkpointing"):
        output.sum().backward()
    rq.eval()
    checkpoint(lambda x: rq(x).z_hat, z, use_reentrant=reentrant).sum().backward()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num_quantizers", "unknown argument num_quantizers=4: use num_stages"),
        ("threshold_ema_dead_code", "use revive_below"),
        ("kmeans_init", r"use rq\.initialize"),
        ("num_stage", "did you mean 'num_stages'"),
        ("zzz", "unknown argument zzz=4"),
    ],
)
def test_arguments_of_other_libraries_get_a_hint(name, message):
    with pytest.raises(TypeError, match=message):
        ResidualQuantizer(D, **{name: 4})


# --- health ------------------------------------------------------------------------------------------------------


def test_diagnose_works_in_parts(monkeypatch):
    rq, z = quantizer().eval(), torch.randn(1000, D)
    whole = rq.diagnose(z)
    monkeypatch.setattr("ghrq.quantizer.coder.CHUNK_ROWS", 77)
    parts = rq.diagnose(z)
    assert parts.usage == whole.usage
    for name in ("residual_error", "perplexity", "code_radius", "residual_radius", "offset", "telescoping_error"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-12)


def test_a_collapsed_encoder_is_told():
    rq = quantizer()
    z = torch.randn(500, D) * 0.01 + 1.0
    rq.initialize(z)
    found = rq.diagnose(z)
    assert found.offset > 0.95
    assert "nearly one constant" in str(found)
    assert rq.diagnose(z - 1.0).offset < 0.2


def test_a_start_with_few_codes_in_use_is_told():
    rq = ResidualQuantizer(D, 40, 2)
    z = torch.randn(3, D).repeat(50, 1)  # three points
    with pytest.warns(UserWarning, match=r"less than a tenth of the 40 codes is in use \(perplexity of stage 1: 3\.0"):
        perplexity = rq.initialize(z)
    assert perplexity[0] == pytest.approx(3.0)
    assert any("less than a tenth" in warning for warning in rq.diagnose(z).warnings())


@pytest.mark.parametrize("kind", ["calibrated", "euclidean"])
@pytest.mark.parametrize("dim", [64, 128, 768])
def test_a_start_in_many_dimensions_uses_all_codes(kind, dim):
    torch.manual_seed(0)
    rq = ResidualQuantizer(dim, 64, 3, kind)
    assert min(rq.initialize(torch.randn(1000, dim))) > 32


@pytest.mark.parametrize("dim", [2, 8, 32])
@pytest.mark.parametrize("norm", [0.1, 1.7, 5.0])
def test_the_default_start_does_not_depend_on_the_norm(dim, norm):
    torch.manual_seed(0)
    rq = ResidualQuantizer(dim, 16, 3, "calibrated")
    assert min(rq.initialize(torch.randn(1600, dim) * norm / dim**0.5)) > 8


def test_equal_vectors_are_named_as_the_reason_for_few_codes():
    with pytest.warns(UserWarning, match=r"stage 3: 1\.0\): only 1 of the vectors differ; .* or use fewer codes$"):
        ResidualQuantizer(8, 16, 3, kind="euclidean").initialize(torch.ones(100, 8))


def test_commands_tell_warnings_of_kmeans_as_notes(recwarn):
    stream = io.StringIO()
    kmeans_start(ResidualQuantizer(8, 16, 3), torch.ones(100, 8), PlainProgress(stream))
    assert stream.getvalue().startswith("note: less than a tenth of the 16 codes is in use")
    assert not list(recwarn)
