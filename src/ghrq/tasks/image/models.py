"""The models of the image task: pictures to codes and back, and what grids of codes look like."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.convolutional import ImageDecoder, ImageEncoder
from ghrq.nets.rq_transformer import RQTransformer
from ghrq.quantizer import ResidualQuantizer, ball_units
from ghrq.tasks.image.recipe import ImageRecipe


def as_floats(pixels: Tensor) -> Tensor:
    """Bytes ``(B, C, H, W)`` as numbers from 0 to 1."""
    return pixels.float() / 255.0


class ImageTokenizer(nn.Module):
    """Encoder, quantizer and decoder. Pictures are ``(B, C, H, W)`` bytes, codes ``(B, h, w, num_stages)``.

    The loss is the mean squared error of pixels from 0 to 1 plus ``quantizer_weight`` times the quantizer's loss in
    the units of the ball, see :func:`ghrq.quantizer.config.ball_units`.
    """

    def __init__(
        self,
        encoder: ImageEncoder,
        quantizer: ResidualQuantizer,
        decoder: ImageDecoder,
        quantizer_weight: float,
        symmetric: bool,
    ) -> None:
        super().__init__()
        self.encoder, self.quantizer, self.decoder = encoder, quantizer, decoder
        self.quantizer_weight, self.symmetric = quantizer_weight, symmetric

    def vectors(self, x: Tensor) -> Tensor:
        """What the quantizer sees of pictures ``(B, C, H, W)`` of numbers from 0 to 1: ``(B, h, w, dim)``."""
        return self.encoder(2.0 * x - 1.0 if self.symmetric else x)

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """The losses of ``pixels``."""
        x = as_floats(pixels)
        quantized = self.quantizer(self.vectors(x))
        reconstruction = F.mse_loss(self.decoder(quantized.z_hat, tuple(x.shape[2:])), x)
        quantizer = ball_units(self.quantizer) * quantized.loss
        loss = reconstruction + self.quantizer_weight * quantizer
        return {"loss": loss, "reconstruction": reconstruction, "quantizer": quantizer}

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """The codes of ``pixels``."""
        return self.quantizer.encode(self.vectors(as_floats(pixels)))

    @torch.no_grad()
    def decode(self, codes: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """The pictures that codes ``(B, h, w, depth)`` stand for, as numbers from 0 to 1: ``(B, C, 4h, 4w)``.

        Or of ``size``, if that was no multiple of 4.
        """
        return self.decoder(self.quantizer.decode(codes), size)


def make_tokenizer(recipe: ImageRecipe, channels: int) -> ImageTokenizer:
    """An untrained one for pictures with so many channels."""
    q, dim = recipe.quantizer, recipe.tokenizer.dim
    quantizer = q.build(dim)
    symmetric = recipe.tokenizer.pixel_range == "symmetric"
    return ImageTokenizer(ImageEncoder(channels, dim), quantizer, ImageDecoder(channels, dim), q.weight, symmetric)


class GridPrior(nn.Module):
    """An :class:`RQTransformer` that sees codes through the eyes of the quantizer they come from.

    The quantizer is not trained and not saved here: the tokenizer's is.
    """

    def __init__(self, prior: RQTransformer, quantizer: ResidualQuantizer) -> None:
        super().__init__()
        self.prior = prior
        self._quantizer = [quantizer]  # in a list, so that it is no part of this model

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss of ``codes (B, T, N)`` with ``labels (B,)``, and that of each depth."""
        losses = self.losses(batch["codes"].long(), batch["labels"])
        return {"loss": losses.mean(), **{f"depth_{i}": loss for i, loss in enumerate(losses.unbind(), start=1)}}

    def losses(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of each depth, ``(N,)``."""
        prefixes = self._quantizer[0].prefixes(codes)
        return self.prior(prefixes, codes, labels if self.prior.classes else None)
