"""Images to grids of codes and back."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.convolutional import ImageDecoder, ImageEncoder
from ghrq.quantizer import QuantizerConfig, ball_units
from ghrq.system.checks import is_tensor
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.progress import Progress
from ghrq.system.settings import Positive, Section, Share

# Images encoded or decoded at a time.
_BATCH = 500


def as_floats(pixels: Tensor) -> Tensor:
    """Bytes as floats from 0 to 1."""
    return pixels.float() / 255.0


def as_bytes(images: Tensor) -> Tensor:
    """Floats from 0 to 1 as bytes."""
    return (255.0 * images).round().byte()


class ImageTokenizerConfig(Section):
    """What makes an :class:`ImageTokenizer`."""

    channels: Positive
    """1 for grey, 3 for colour."""
    dim: Positive = 8
    """Of the vectors that are quantized."""
    pixel_range: Literal["unit", "symmetric"] = "unit"
    """What the encoder sees: pixels from 0 to 1, or from -1 to 1."""
    quantizer: QuantizerConfig = QuantizerConfig()
    test_error: Share | None = None
    """Its mean squared error on test images, pixels from 0 to 1; ``None`` if unknown, as of models of ghrq 0.2.0."""


class ImageTokenizer(nn.Module, Pretrained):
    """Encoder, quantizer and decoder: a tuple of codes for each square of 4 × 4 pixels.

    Examples:
        >>> tokenizer = ghrq.models.ImageTokenizer(ghrq.models.ImageTokenizer.Config(channels=3)).eval()
        >>> pixels = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
        >>> codes = tokenizer.encode(pixels)
        >>> codes.shape, tokenizer.decode(codes[..., :2]).shape  # any depth
        (torch.Size([2, 8, 8, 4]), torch.Size([2, 3, 32, 32]))

    """

    Config = ImageTokenizerConfig
    config: ImageTokenizerConfig
    _format = Format("ghrq-image-tokenizer", "image tokenizer")

    def __init__(self, config: ImageTokenizerConfig) -> None:
        super().__init__()
        self.config = config
        quantizer = config.quantizer.build(config.dim)
        self.encoder = ImageEncoder(config.channels, config.dim)
        self.quantizer = quantizer
        self.decoder = ImageDecoder(config.channels, config.dim)

    def vectors(self, images: Tensor) -> Tensor:
        """What the quantizer sees of ``images (B, channels, H, W)``, floats from 0 to 1: ``(B, h, w, dim)``."""
        return self.encoder(2.0 * images - 1.0 if self.config.pixel_range == "symmetric" else images)

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """The losses of ``pixels (B, channels, H, W)`` uint8, for training.

        ``loss`` is the mean squared error of pixels from 0 to 1 plus ``config.quantizer.weight`` times the loss of the
        quantizer in the units of the ball, see :func:`ghrq.quantizer.config.ball_units`.
        """
        self._check(pixels)
        x = as_floats(pixels)
        quantized = self.quantizer(self.vectors(x))
        reconstruction = F.mse_loss(self.decoder(quantized.z_hat, tuple(x.shape[2:])), x)
        quantizer = ball_units(self.quantizer) * quantized.loss
        loss = reconstruction + self.config.quantizer.weight * quantizer
        return {"loss": loss, "reconstruction": reconstruction, "quantizer": quantizer}

    @torch.no_grad()
    def encode(self, pixels: Tensor, progress: Progress | None = None) -> Tensor:
        """The codes ``(n, h, w, num_stages)`` int64 of ``pixels (n, channels, H, W)`` uint8, on the same device."""
        self._check(pixels)
        codes = []
        with (progress or Progress()).patient_bar("encoding", len(pixels), unit="images") as bar:
            for part in pixels.split(_BATCH):
                found = self.quantizer.encode(self.vectors(as_floats(part.to(self._device))))
                codes.append(found.to(pixels.device))
                bar.advance(len(part))
        return torch.cat(codes)

    @torch.no_grad()
    def decode(self, codes: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """The images of ``codes (n, h, w, depth)``, floats from 0 to 1: ``(n, channels, 4h, 4w)``, on the same device.

        Any depth from 1 to ``num_stages``. ``size`` is the height and width of images whose sides are not multiples
        of 4.
        """
        is_tensor("codes", codes)
        parts = [self.decoder(self.quantizer.decode(part.to(self._device)), size) for part in codes.split(_BATCH)]
        return torch.cat(parts).to(codes.device)

    @torch.no_grad()
    def points(self, codes: Tensor) -> Tensor:
        """The points of the ball (or of flat space) that ``codes (n, h, w, depth)`` stand for: ``(n, h·w, dim)``."""
        is_tensor("codes", codes)
        rq = self.quantizer
        parts = [rq.points(rq.decode(part.flatten(1, 2).to(self._device))) for part in codes.split(_BATCH)]
        return torch.cat(parts).to(codes.device)

    def _check(self, pixels: Tensor) -> None:
        expected = f"uint8 pixels of shape (n, {self.config.channels}, height, width)"
        is_tensor(expected, pixels)
        if pixels.dtype != torch.uint8 or pixels.dim() != 4 or pixels.shape[1] != self.config.channels:
            raise ValueError(f"expected {expected}, got {pixels.dtype} of shape {tuple(pixels.shape)}")

    @property
    def _device(self) -> torch.device:
        return self.quantizer.codebooks.device
