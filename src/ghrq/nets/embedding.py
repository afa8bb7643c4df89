"""A table of vectors, optionally followed by a small network."""

import torch
from torch import Tensor, nn

from ghrq.system.checks import at_least


class Embedding(nn.Module):
    """The vectors of ``size`` items, all at once: ``(size, dim)``, tangent vectors at the origin of the ball.

    Args:
        size: number of items.
        dim: of their vectors.
        initial_scale: vectors start as N(0, 1) times this.
        hidden: 0 for a table of the vectors themselves; otherwise a table of this width and a fully-connected network
            ``hidden → hidden → dim`` behind it, whose output layer starts at ``initial_scale``.

    """

    def __init__(self, size: int, dim: int, initial_scale: float = 1.0, hidden: int = 0) -> None:
        super().__init__()
        for name, value, least in (("size", size, 1), ("dim", dim, 1), ("hidden", hidden, 0)):
            at_least(name, value, least, whole=True)
        at_least("initial_scale", initial_scale, 0)
        self.table = nn.Parameter(torch.randn(size, hidden or dim) * (1.0 if hidden else initial_scale))
        self.network: nn.Module = nn.Identity()
        if hidden:
            inner, outer = nn.Linear(hidden, hidden), nn.Linear(hidden, dim)
            nn.init.normal_(inner.weight, std=(2.0 / hidden) ** 0.5)  # relu halves the variance
            nn.init.normal_(outer.weight, std=initial_scale * hidden**-0.5)
            nn.init.zeros_(outer.bias)
            self.network = nn.Sequential(inner, nn.ReLU(), outer)

    def forward(self) -> Tensor:
        """All vectors ``(size, dim)``."""
        return self.network(self.table)
