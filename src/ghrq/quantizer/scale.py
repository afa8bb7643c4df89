"""Encoder-scale control: one multiplier that keeps encoder outputs off the boundary of the ball."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ghrq.geometry import numerics
from ghrq.system import distributed

TARGET_RADIUS = 0.5
DECAY = 0.99

# Longer vectors count as this long: the multiplier and its inverse are float32.
_LONGEST = 1e30

# Of a saved scale: no smaller one comes of vectors that count as at most that long; the weight is that of an average.
_LEAST, _HEAVIEST = 1e-35, 1.001


class EncoderScale(nn.Module):
    """A multiplier ``s`` on tangent vectors such that their median radius on the ball is 0.5.

    Encoder outputs have norms of order √d, which the exponential map puts onto the boundary. ``s`` follows
    ``artanh(0.5) / (√c · median‖v‖)`` by an exponential moving average (0.99) that starts at the first batch. It
    carries no gradient, changes only in training mode and is saved with the model. Without any update it is 1.
    """

    total: Tensor
    weight: Tensor

    def __init__(self, curvature: float) -> None:
        super().__init__()
        self.target = math.atanh(TARGET_RADIUS) / math.sqrt(curvature or 1.0)
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))

    @torch.no_grad()
    def update(self, v: Tensor, weights: Tensor | None) -> None:
        """Update from a batch of tangent vectors ``v (n, d)``; rows of weight 0 are ignored."""
        norms = torch.linalg.vector_norm(v.detach().float(), dim=-1)
        if not numerics.below(norms, 1e15):  # the squares may overflow in float32
            norms = numerics.norm(v.detach()).squeeze(-1).clamp(max=_LONGEST).float()
        if weights is not None:
            norms = torch.where(weights > 0, norms, torch.nan)
        median = norms.nanmedian()
        batch = torch.stack((self.target / median, torch.ones_like(median)))
        batch = torch.where((median > 0.0) & batch[0].isfinite(), batch, 0.0)
        distributed.sum_(batch)
        # No update if no process has a nonzero vector.
        seen = batch[1].clamp(max=1.0)
        keep = 1.0 - (1.0 - DECAY) * seen
        self.total.mul_(keep).add_((1.0 - DECAY) * batch[0] / batch[1].clamp(min=1.0))
        self.weight.mul_(keep).add_((1.0 - DECAY) * seen)

    @torch.no_grad()
    def restart(self, v: Tensor) -> None:
        """Restart the average from this batch."""
        self.total.zero_()
        self.weight.zero_()
        self.update(v, None)

    def forward(self) -> Tensor:
        """The multiplier, shape ``()``."""
        return torch.where(self.weight > 0.0, self.total / self.weight.clamp(min=1e-12), 1.0)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        if not self.total.is_meta and not (self.forward() > _LEAST and 0.0 <= self.weight <= _HEAVIEST):
            raise ValueError(
                f"the encoder scale is {float(self.forward()):.3g}, its weight {float(self.weight):.3g}: not those of "
                "an average, all vectors would be one point"
            )
