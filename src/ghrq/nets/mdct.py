"""The modified discrete cosine transform (MDCT) as convolutions."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mdct_basis(hop: int) -> Tensor:
    """The MDCT with a sine window: ``(hop, 2 hop)``, one row for each frequency.

    ``w(n) √(2/hop) cos(π/hop (n + ½ + hop/2)(k + ½))`` with ``w(n) = sin(π (n + ½) / (2 hop))``. Frames that overlap by
    half give an orthogonal transform: its inverse is its transpose.
    """
    n, k = torch.arange(2 * hop, dtype=torch.float64), torch.arange(hop, dtype=torch.float64)
    window = torch.sin(math.pi * (n + 0.5) / (2 * hop))
    angles = math.pi / hop * (n + 0.5 + hop / 2) * (k.unsqueeze(1) + 0.5)
    return (math.sqrt(2.0 / hop) * window * torch.cos(angles)).float()


class Analysis(nn.Module):
    """A convolution that starts as the MDCT: ``(B, n hop)`` samples -> ``(B, n, hop)`` coefficients.

    Frame i sees the samples from ``(i - 1) hop`` to ``(i + 1) hop``, zeros before the first.
    """

    def __init__(self, hop: int) -> None:
        super().__init__()
        self.hop = hop
        self.weight = nn.Parameter(mdct_basis(hop))

    def forward(self, wave: Tensor) -> Tensor:
        """Samples to coefficients."""
        padded = F.pad(wave, (self.hop, 0)).unsqueeze(1)
        return F.conv1d(padded, self.weight.unsqueeze(1), stride=self.hop).mT


class Synthesis(nn.Module):
    """A transposed convolution that starts as the inverse MDCT: ``(B, n, hop)`` -> ``(B, n hop)`` samples.

    Samples from ``i hop`` to ``(i + 1) hop`` are those of the frames i and i + 1. After the last frame there is none:
    the last ``hop`` samples of a signal fade out.
    """

    def __init__(self, hop: int) -> None:
        super().__init__()
        self.hop = hop
        self.weight = nn.Parameter(mdct_basis(hop))

    def forward(self, coefficients: Tensor) -> Tensor:
        """Coefficients to samples."""
        wave = F.conv_transpose1d(coefficients.mT, self.weight.unsqueeze(1), stride=self.hop)
        return wave.squeeze(1)[:, self.hop :]
