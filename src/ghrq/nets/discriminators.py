"""Networks that tell decoded sound from real sound, and the losses of both sides.

Three kinds, each at several scales: on the complex STFT, on every p-th sample (multi-period), on samples at lower and
lower rates (multi-scale). Each gives the outputs of all of its layers; the last ones are its judgements, above 0 for
real.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ghrq.nets.spectra import Spectrum
from ghrq.system.settings import Positive, Section

Layers = list[Tensor]
"""What the layers of a discriminator give, the judgements last."""

_SLOPE = 0.2
_WIDEST = 1024

# Of the mean of a layer by which feature matching divides.
_LEAST = 1e-6


class DiscriminatorConfig(Section):
    """Which discriminators there are, and their sizes."""

    windows: tuple[Positive, ...] = (2048, 1024, 512, 256, 128)
    """Of the STFTs, in samples."""
    filters: Positive = 32
    """Channels of those on the STFT."""
    periods: tuple[Positive, ...] = (2, 3, 5, 7, 11)
    period_channels: Positive = 32
    """Of the first layer; later ones have up to 32 times as many, at most 1024."""
    scales: int = 3
    """Rates: that of the samples, half of it, a quarter of it …"""
    scale_channels: Positive = 32
    """Of the first layer; later ones have up to 64 times as many, at most 1024."""


class _Stack(nn.Module):
    """Convolutions with activations in between; gives the outputs of all."""

    def __init__(self, convolutions: list[nn.Module]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(weight_norm(each) for each in convolutions)

    def forward(self, x: Tensor) -> Layers:
        layers: Layers = []
        for convolution in self.convolutions[:-1]:
            x = F.leaky_relu(convolution(x), _SLOPE)
            layers.append(x)
        return [*layers, self.convolutions[-1](x)]


class SpectrumDiscriminator(nn.Module):
    """On the complex STFT of samples ``(B, T)``, with real and imaginary parts as channels."""

    def __init__(self, window: int, filters: int) -> None:
        super().__init__()
        self.spectrum = Spectrum(window)
        inner: list[nn.Module] = [
            nn.Conv2d(filters, filters, (3, 9), stride=(1, 2), dilation=(d, 1), padding=(d, 4)) for d in (1, 2, 4)
        ]
        first, last = nn.Conv2d(2, filters, (3, 9), padding=(1, 4)), nn.Conv2d(filters, 1, 3, padding=1)
        self.stack = _Stack([first, *inner, nn.Conv2d(filters, filters, 3, padding=1), last])

    def forward(self, wave: Tensor) -> Layers:
        """Judge every piece of time and frequency."""
        return self.stack(torch.view_as_real(self.spectrum(wave)).permute(0, 3, 2, 1))  # (B, 2, frames, frequencies)


class PeriodDiscriminator(nn.Module):
    """On samples ``(B, T)`` laid out in rows of ``period``: it compares those that are a multiple of it apart."""

    def __init__(self, period: int, channels: int) -> None:
        super().__init__()
        self.period = period
        widths = [1, *(min(_WIDEST, channels * factor) for factor in (1, 4, 16, 32))]
        stack: list[nn.Module] = [
            nn.Conv2d(given, made, (5, 1), stride=(3, 1), padding=(2, 0)) for given, made in pairwise(widths)
        ]
        stack += [nn.Conv2d(widths[-1], widths[-1], (5, 1), padding=(2, 0))]
        self.stack = _Stack([*stack, nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0))])

    def forward(self, wave: Tensor) -> Layers:
        """Judge every piece of each column."""
        padded = F.pad(wave, (0, -wave.shape[-1] % self.period))
        return self.stack(padded.unflatten(-1, (-1, self.period)).unsqueeze(1))


class ScaleDiscriminator(nn.Module):
    """On samples ``(B, T)``, averaged to a rate ``2^halvings`` times lower."""

    def __init__(self, halvings: int, channels: int) -> None:
        super().__init__()
        self.halvings = halvings
        widths = [min(_WIDEST, channels * factor) for factor in (1, 4, 16, 64)]
        stack: list[nn.Module] = [nn.Conv1d(1, widths[0], 15, padding=7)]
        for given, made in pairwise([*widths, widths[-1]]):
            groups = max(1, given // 4)  # of 4 channels each
            stack.append(nn.Conv1d(given, made, 41, stride=4, padding=20, groups=groups if given % 4 == 0 else 1))
        stack += [nn.Conv1d(widths[-1], widths[-1], 5, padding=2), nn.Conv1d(widths[-1], 1, 3, padding=1)]
        self.stack = _Stack(stack)

    def forward(self, wave: Tensor) -> Layers:
        """Judge every piece of time."""
        x = wave.unsqueeze(1)
        for _ in range(self.halvings):
            x = F.avg_pool1d(x, 4, 2, padding=2)
        return self.stack(x)


class Discriminators(nn.Module):
    """All of them: samples ``(B, T)`` -> the layers of each."""

    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        every: list[nn.Module] = [SpectrumDiscriminator(window, config.filters) for window in config.windows]
        every += [PeriodDiscriminator(period, config.period_channels) for period in config.periods]
        every += [ScaleDiscriminator(halvings, config.scale_channels) for halvings in range(config.scales)]
        if not every:
            raise ValueError("there must be at least one discriminator: windows, periods and scales are all empty")
        self.every = nn.ModuleList(every)

    def forward(self, wave: Tensor) -> list[Layers]:
        """Judge by each."""
        return [each(wave) for each in self.every]


def discriminator_loss(real: list[Layers], fake: list[Layers]) -> Tensor:
    """The hinge loss ``max(0, 1 - D(x)) + max(0, 1 + D(x̂))``, the mean over judgements and discriminators."""
    each = [F.relu(1.0 - r[-1]).mean() + F.relu(1.0 + f[-1]).mean() for r, f in zip(real, fake, strict=True)]
    return torch.stack(each).mean()


def adversarial_loss(fake: list[Layers]) -> Tensor:
    """The other side's: ``max(0, 1 - D(x̂))``, the mean over judgements and discriminators."""
    return torch.stack([F.relu(1.0 - layers[-1]).mean() for layers in fake]).mean()


def feature_loss(real: list[Layers], fake: list[Layers]) -> Tensor:
    """How different inner layers are: mean ``|D_l(x) - D_l(x̂)|`` relative to the mean ``|D_l(x)|``, over all layers.

    No gradient reaches what ``real`` was made from.
    """
    pairs = [(r.detach(), f) for of, to in zip(real, fake, strict=True) for r, f in zip(of[:-1], to[:-1], strict=True)]
    return torch.stack([F.l1_loss(f, r) / r.abs().mean().clamp_min(_LEAST) for r, f in pairs]).mean()
