"""SEANet: its shapes, how far it looks around, and pieces against the whole."""

import pytest
import torch

from ghrq.nets.seanet import Recurrence, Seanet, SeanetConfig


def small(**settings):
    torch.manual_seed(1)
    sizes = {"strides": (2, 3), "filters": 4, "memory": 8}
    return Seanet(SeanetConfig(**sizes | settings), 6).double()


def test_the_default_is_the_papers():
    net = Seanet(SeanetConfig(), 32)
    assert net.hop == 240
    z = net.encoder(torch.zeros(1, 720))
    assert z.shape == (1, 3, 32)
    assert net.decoder(z).shape == (1, 720)
    widths = [layer.inner.out_channels for layer in net.encoder.layers if hasattr(layer, "inner")]
    assert widths == [32, 64, 128, 256, 512, 512]
    assert net.encoder.project.in_features == net.decoder.project.out_features == 512


def test_without_a_projection_the_codes_have_the_width_of_the_network():
    net = Seanet(SeanetConfig(strides=(2, 3), filters=4), 16)
    assert isinstance(net.encoder.project, torch.nn.Identity)
    assert net.encoder(torch.zeros(1, 12)).shape == (1, 2, 16)


@pytest.mark.parametrize("frames", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_frames(frames, causal):
    net = small(causal=causal)
    z = net.encoder(torch.randn(2, frames * net.hop).double())
    assert z.shape == (2, frames, 6)
    assert net.decoder(z).shape == (2, frames * net.hop)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lstm_layers", [0, 2])
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_context_is_what_a_frame_depends_on(part, causal, lstm_layers):
    """By the gradient, at each place relative to where the LSTM begins anew: the furthest of them is the context."""
    net, frames = small(causal=causal, lstm_layers=lstm_layers), 60
    module, context = getattr(net, part), getattr(net, f"{part}_context")
    lefts, rights = [], []
    for middle in range(30, 30 + net.alignment):
        given = torch.randn(1, frames * net.hop if part == "encoder" else frames, *([6] if part == "decoder" else []))
        given = given.double().requires_grad_()
        made = module(given)
        (made[:, middle] if part == "encoder" else made.unflatten(1, (frames, net.hop))[:, middle]).sum().backward()
        seen = given.grad.abs().reshape(frames, -1).sum(-1).nonzero().flatten()
        lefts.append(middle - int(seen.min()))
        rights.append(int(seen.max()) - middle)
    assert (max(lefts), max(rights)) == tuple(context)
    if causal:
        assert context.right == 0


@pytest.mark.parametrize("causal", [False, True])
def test_aligned_pieces_with_context_give_what_the_whole_gives(causal):
    net, frames = small(causal=causal), 57
    wave = torch.randn(1, frames * net.hop).double()
    z = net.encoder(wave)
    heard = net.decoder(z)

    def piece(start, stop, context):
        first = max(0, start - context.left)
        return first - first % net.alignment, min(frames, stop + context.right)

    for start in range(0, frames, 10):
        stop = min(start + 10, frames)
        first, last = piece(start, stop, net.encoder_context)
        part = net.encoder(wave[:, first * net.hop : last * net.hop])
        assert torch.allclose(part[:, start - first : stop - first], z[:, start:stop], atol=1e-12)
        first, last = piece(start, stop, net.decoder_context)
        part = net.decoder(z[:, first:last])[:, (start - first) * net.hop : (stop - first) * net.hop]
        assert torch.allclose(part, heard[:, start * net.hop : stop * net.hop], atol=1e-12)


def test_the_lstm_begins_anew_and_sees_nothing_before():
    torch.manual_seed(0)
    layer, x = Recurrence(4, 2, memory=5).double(), torch.randn(2, 4, 13).double()
    each = [x[..., i : i + 5] + layer.lstm(x[..., i : i + 5].mT)[0].mT for i in (0, 5, 10)]
    assert torch.allclose(layer(x), torch.cat(each, -1), atol=1e-14)


def test_it_starts_with_vectors_of_mean_0_and_mean_squared_norm_1():
    net, wave = small(), 0.1 * torch.randn(4, 600).double()
    net.start(wave)
    z = net.encoder(wave).detach().flatten(0, 1)
    assert torch.allclose(z.mean(0), torch.zeros(6).double(), atol=1e-9)
    assert float(z.square().sum(-1).mean()) == pytest.approx(1.0)
    covariance = z.mT @ z / len(z)
    assert torch.allclose(covariance, covariance.diag().diag(), atol=1e-9), "principal components"
    assert covariance.diag().tolist() == sorted(covariance.diag().tolist(), reverse=True)
