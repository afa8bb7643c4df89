"""Standardisation: the mean of every feature, and one scale for all of them."""

from typing import Any

import torch
from torch import Tensor, nn

from ghrq.data.arrays import ArrayRows
from ghrq.system.progress import Bar


class Standard(nn.Module):
    """Subtracts the mean of each feature, and divides by one common scale: the root of their mean variance.

    One scale for all features keeps angles, neighbours and clusters of embeddings; a separate scale for each would
    amplify directions that contain only noise. (For columns of different units, such as prices and weights, use
    scikit-learn's ``StandardScaler`` first.) Constant features become 0; if all are constant, the scale is 1.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    @torch.no_grad()
    def learn(self, rows: ArrayRows, bar: Bar) -> None:
        """Compute mean and scale of all rows in one pass, in float64, relative to the mean of the first chunk."""
        shift, sums, square, precision = None, torch.zeros_like(self.mean), torch.zeros_like(self.scale), 0.0
        for _, x in rows.chunks():
            precision = torch.finfo(x.dtype).eps
            shift = x.double().mean(0) if shift is None else shift
            x = x.double() - shift
            sums += x.sum(0)
            square += torch.linalg.vector_norm(x).square()
            bar.advance(len(x))
        assert shift is not None  # a table has rows
        middle = sums / rows.count
        self.mean.copy_(shift + middle)
        variance = (square / rows.count - middle.square().sum()).clamp(min=0.0) / rows.dim
        # Equal rows leave a variance of rounding errors, which is no scale.
        noise = precision * self.mean.square().mean().sqrt()
        self.scale.copy_(torch.where(variance.sqrt() > 4.0 * noise, variance.sqrt(), 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """``x (n, d)``, float32 or float64 -> ``(n, d)`` float32."""
        return ((x - self.mean.to(x.dtype)) / self.scale.to(x.dtype)).float()

    def undo(self, z: Tensor) -> Tensor:
        """The inverse of :meth:`forward`: ``z (..., d)`` -> ``(..., d)`` float32."""
        return torch.addcmul(self.mean.float(), z, self.scale.float())

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        if not self.scale > 0.0:
            raise ValueError(f"standard.scale is {float(self.scale)}, not above 0")
