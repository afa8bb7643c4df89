"""The convolutional encoder and decoder of the paper: images to grids of vectors, a quarter as high and wide.

Convolutions run in channels-last memory format, which is also the layout of the quantizer's vectors. On a CPU a
training step is 14 to 20 % faster than with channels first.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.system.checks import at_least, is_tensor

STRIDE = 4
"""Pixels per vector of the grid, vertically and horizontally."""


class ImageEncoder(nn.Module):
    """Images ``(B, channels, H, W)`` of floats from 0 to 1 to vectors ``(B, ⌈H/4⌉, ⌈W/4⌉, dim)``.

    ``conv 4×4 ↓2 → 32, conv 4×4 ↓2 → 64, conv 3×3 → 128``, each with a batch norm and relu, then ``conv 1×1 → dim``
    with neither. An image whose sides are not multiples of 4 is padded by repeating its last row and column; the
    decoder crops it to the given size.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        at_least("channels", channels, 1, whole=True)
        at_least("dim", dim, 1, whole=True)
        self.channels, self.dim = channels, dim
        # A batch norm would cancel a bias before it.
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 4, stride=2, padding=1, bias=False),
            *_norm(32),
            nn.Conv2d(32, 64, 4, stride=2, padding=1, bias=False),
            *_norm(64),
            nn.Conv2d(64, 128, 3, padding=1, bias=False),
            *_norm(128),
            nn.Conv2d(128, dim, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        """``(B, channels, H, W)`` -> ``(B, ⌈H/4⌉, ⌈W/4⌉, dim)``."""
        is_tensor("images", images)
        if images.dim() != 4 or images.shape[1] != self.channels or 0 in images.shape:
            raise ValueError(
                f"expected images of shape (B, {self.channels}, H, W), none of them 0, got shape {tuple(images.shape)}"
            )
        if not images.dtype.is_floating_point:
            raise ValueError(f"expected images as floats from 0 to 1, got {images.dtype}: divide bytes by 255")
        below, beside = (-side % STRIDE for side in images.shape[2:])
        if below or beside:
            images = F.pad(images, (0, beside, 0, below), mode="replicate")
        # Not .contiguous(): with one channel it changes nothing, and all layers would run with channels first.
        channels_last = torch.empty_like(images, memory_format=torch.channels_last).copy_(images)
        return self.layers(channels_last).permute(0, 2, 3, 1)


class ImageDecoder(nn.Module):
    """Vectors ``(B, h, w, dim)`` to images ``(B, channels, 4h, 4w)`` of floats from 0 to 1.

    ``conv 1×1 → 128, deconv 4×4 ↑2 → 64``, each with a batch norm and relu, then ``deconv 4×4 ↑2 → channels`` and a
    sigmoid.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        at_least("channels", channels, 1, whole=True)
        at_least("dim", dim, 1, whole=True)
        self.channels, self.dim = channels, dim
        self.layers = nn.Sequential(
            nn.Conv2d(dim, 128, 1, bias=False),
            *_norm(128),
            nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1, bias=False),
            *_norm(64),
            nn.ConvTranspose2d(64, channels, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, vectors: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """``(B, h, w, dim)`` -> ``(B, channels, 4h, 4w)``, or cropped to ``size`` (H, W)."""
        is_tensor("vectors", vectors)
        if vectors.dim() != 4 or vectors.shape[3] != self.dim or 0 in vectors.shape:
            raise ValueError(
                f"expected vectors of shape (B, h, w, {self.dim}), none of them 0, got shape {tuple(vectors.shape)}"
            )
        grid = vectors.shape[1:3]
        if size is not None and grid_of(*size) != tuple(grid):
            raise ValueError(f"images of size {size} have a grid {grid_of(*size)}, got vectors {tuple(grid)}")
        height, width = size or (STRIDE * grid[0], STRIDE * grid[1])
        channels_last = vectors.contiguous().permute(0, 3, 1, 2)
        return self.layers(channels_last)[:, :, :height, :width]


def grid_of(height: int, width: int) -> tuple[int, int]:
    """The height and width of the grid of an image of this size."""
    return -(-height // STRIDE), -(-width // STRIDE)


def _norm(channels: int) -> tuple[nn.Module, nn.Module]:
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
