"""The convolutional tokenizer: shapes, sizes that are no multiples of 4, and that it learns."""

import pytest
import torch
import torch.nn.functional as F

from ghrq import ResidualQuantizer
from ghrq.nets.convolutional import ImageDecoder, ImageEncoder, grid_of


@pytest.mark.parametrize(("channels", "dim", "size"), [(1, 8, (28, 28)), (3, 16, (32, 32)), (1, 4, (8, 8))])
def test_a_vector_for_each_square_of_four(channels, dim, size):
    encoder, decoder = ImageEncoder(channels, dim), ImageDecoder(channels, dim)
    pictures = torch.rand(5, channels, *size)
    vectors = encoder(pictures)
    assert vectors.shape == (5, size[0] // 4, size[1] // 4, dim)
    assert vectors.is_contiguous()  # as the quantizer takes them, without a copy
    back = decoder(vectors)
    assert back.shape == pictures.shape
    assert back.is_contiguous(memory_format=torch.channels_last)
    assert 0.0 < back.min() < back.max() < 1.0


def test_the_layers_are_those_of_the_paper():
    encoder, decoder = ImageEncoder(3, 16), ImageDecoder(3, 16)
    shapes = [tuple(p.shape) for p in encoder.parameters() if p.dim() == 4]
    assert shapes == [(32, 3, 4, 4), (64, 32, 4, 4), (128, 64, 3, 3), (16, 128, 1, 1)]
    shapes = [tuple(p.shape) for p in decoder.parameters() if p.dim() == 4]
    assert shapes == [(128, 16, 1, 1), (128, 64, 4, 4), (64, 3, 4, 4)]


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (4, 6), (31, 33)])
def test_odd_sizes_are_padded_and_cut_off_again(size):
    encoder, decoder = ImageEncoder(3, 6).eval(), ImageDecoder(3, 6).eval()
    pictures = torch.rand(2, 3, *size)
    vectors = encoder(pictures)
    assert vectors.shape[1:3] == grid_of(*size)
    last = [torch.arange(4 * n).clamp(max=side - 1) for n, side in zip(grid_of(*size), size, strict=True)]
    torch.testing.assert_close(vectors, encoder(pictures[:, :, last[0]][:, :, :, last[1]]))
    back = decoder(vectors, size)
    assert back.shape == pictures.shape
    assert torch.equal(back, decoder(vectors)[:, :, : size[0], : size[1]])


def test_the_order_in_memory_makes_no_difference():
    encoder, decoder = ImageEncoder(3, 8).double(), ImageDecoder(3, 8).double()
    pictures = torch.rand(4, 3, 16, 12).double()
    plain = encoder.layers(pictures)
    torch.testing.assert_close(encoder(pictures), plain.movedim(1, 3))
    torch.testing.assert_close(decoder(plain.movedim(1, 3)), decoder.layers(plain))
    # Weights stay as safetensors wants them.
    assert all(p.is_contiguous() for p in [*encoder.parameters(), *decoder.parameters()])


@pytest.mark.slow
def test_it_learns_through_a_quantizer_and_every_parameter_takes_part():
    encoder, decoder = ImageEncoder(1, 8), ImageDecoder(1, 8)
    quantizer = ResidualQuantizer(8, codebook_size=16, num_stages=2)
    rows, columns = torch.meshgrid(torch.arange(12.0), torch.arange(8.0), indexing="ij")
    slopes = torch.rand(32, 2, 1, 1)
    pictures = torch.sigmoid(slopes[:, :1] * (rows - 6) + 3 * slopes[:, 1:] * (columns - 4))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *quantizer.parameters()], lr=3e-3)
    losses = []
    for _ in range(60):
        vectors, _, loss = quantizer(encoder(pictures))
        losses.append(F.mse_loss(decoder(vectors), pictures))
        optimizer.zero_grad()
        (losses[-1] + 0.1 * loss).backward()
        if len(losses) == 1:
            for part in (encoder, decoder):
                for name, parameter in part.named_parameters():
                    assert parameter.grad is not None, name
                    assert parameter.grad.abs().max() > 0, name
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


def test_mistakes_are_named():
    encoder, decoder = ImageEncoder(3, 8), ImageDecoder(3, 8)
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\)"):
        encoder(torch.rand(2, 1, 8, 8))
    with pytest.raises(ValueError, match=r"\(B, 3, H, W\)"):
        encoder(torch.rand(2, 3, 0, 8))
    with pytest.raises(ValueError, match="divide bytes by 255"):
        encoder(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"\(B, h, w, 8\)"):
        decoder(torch.rand(2, 8, 4, 4))
    with pytest.raises(ValueError, match=r"grid \(3, 2\)"):
        decoder(torch.rand(2, 2, 2, 8), (9, 8))
    with pytest.raises(ValueError, match="dim"):
        ImageEncoder(3, 0)
