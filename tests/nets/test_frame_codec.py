"""The frame codec: its start as a transform codec, and how far it looks around."""

import pytest
import torch

from ghrq.nets.frame_codec import FrameCodec, FrameCodecConfig, with_power


def small(causal=False, **settings):
    torch.manual_seed(1)
    sizes = {"hop": 8, "hidden": 12, "kernel": 5, "encoder_blocks": (2, 1), "decoder_blocks": (1, 3)}
    codec = FrameCodec(FrameCodecConfig(causal=causal, **sizes | settings), 6).double()
    for parameter in codec.parameters():  # no block is zero, as after training
        parameter.data += 0.2 * torch.randn_like(parameter)
    return codec


def test_with_all_components_it_starts_as_the_identity():
    wave = torch.randn(2, 20 * 32) * 0.1
    codec = FrameCodec(FrameCodecConfig(hop=16, hidden=8), 32)
    codec.start(wave)
    restored = codec.decoder(codec.encoder(wave))
    assert torch.allclose(restored[:, :-16], wave[:, :-16], atol=1e-4)


def test_it_starts_with_the_components_of_greatest_variance():
    wave = torch.randn(1, 400 * 32) * 0.1
    wave = torch.nn.functional.avg_pool1d(wave, 9, 1, 4)  # low frequencies only
    errors = []
    for dim in (2, 8, 24):
        codec = FrameCodec(FrameCodecConfig(hop=16, hidden=8, companding=0.0), dim)
        codec.start(wave)
        left = codec.decoder(codec.encoder(wave)).detach() - wave
        errors.append(float(left.square().mean() / wave.square().mean()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_companding_and_its_inverse():
    x = torch.randn(5, 7, dtype=torch.float64)
    small_norms = with_power(x, 0.4)
    assert torch.allclose(small_norms.norm(dim=-1), x.norm(dim=-1) ** 0.4, atol=1e-6)
    assert torch.allclose(with_power(small_norms, 2.5), x, atol=1e-6)
    assert with_power(torch.zeros(1, 4), 0.4).isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_context_is_what_a_frame_depends_on(part, causal):
    """By the gradient: exactly so many frames to the left and right have an influence, no more and no less."""
    codec, frames, middle = small(causal), 60, 30
    module, context = getattr(codec, part), getattr(codec, f"{part}_context")
    given = torch.randn(1, frames * codec.hop if part == "encoder" else frames, *([6] if part == "decoder" else []))
    given = given.double().requires_grad_()
    made = module(given)
    (made[:, middle] if part == "encoder" else made.unflatten(1, (frames, codec.hop))[:, middle]).sum().backward()
    weights = given.grad.abs().reshape(frames, -1).sum(-1)
    seen = weights.nonzero().flatten()
    assert (middle - int(seen.min()), int(seen.max()) - middle) == tuple(context)
    if causal:
        assert context.right == (0 if part == "encoder" else 1)


@pytest.mark.parametrize("causal", [False, True])
def test_chunks_with_context_give_what_the_whole_gives(causal):
    codec, frames = small(causal), 57
    wave = torch.randn(1, frames * codec.hop).double()
    z = codec.encoder(wave)
    heard = codec.decoder(z)
    for start in range(0, frames, 10):
        stop = min(start + 10, frames)
        left, right = codec.encoder_context
        first, last = max(0, start - left), min(frames, stop + right)
        part = codec.encoder(wave[:, first * codec.hop : last * codec.hop])
        assert torch.allclose(part[:, start - first : stop - first], z[:, start:stop], atol=1e-12)
        left, right = codec.decoder_context
        first, last = max(0, start - left), min(frames, stop + right)
        part = codec.decoder(z[:, first:last])[:, (start - first) * codec.hop : (stop - first) * codec.hop]
        assert torch.allclose(part, heard[:, start * codec.hop : stop * codec.hop], atol=1e-12)


def test_more_components_than_coefficients_are_refused():
    with pytest.raises(ValueError, match="at most 16"):
        FrameCodec(FrameCodecConfig(hop=8), 17)
