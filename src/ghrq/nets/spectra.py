"""Spectra of sound: short-time Fourier transform and mel bands."""

import torch
from torch import Tensor, nn


class Spectrum(nn.Module):
    """The short-time Fourier transform: ``(..., T)`` -> ``(..., window / 2 + 1, frames)`` complex.

    Hann window, frames at every quarter of it, zeros around the signal. It is divided by √window, so that noise has the
    same level for every window. With ``fft`` above ``window`` there are more frequencies, ``fft / 2 + 1``.
    """

    taper: Tensor

    def __init__(self, window: int, hop: int | None = None, fft: int | None = None) -> None:
        super().__init__()
        self.window, self.hop, self.fft = window, hop or window // 4, fft or window
        self.register_buffer("taper", torch.hann_window(window) / window**0.5, persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        """Samples to complex amplitudes."""
        flat = wave.reshape(-1, wave.shape[-1])
        found = torch.stft(
            flat, self.fft, self.hop, self.window, self.taper, center=True, pad_mode="constant", return_complex=True
        )
        return found.reshape(*wave.shape[:-1], *found.shape[1:])


class MelSpectrum(nn.Module):
    """Amplitudes in ``bands`` mel bands: ``(..., T)`` -> ``(..., bands, frames)``."""

    filters: Tensor

    def __init__(
        self, sample_rate: int, window: int, hop: int | None = None, bands: int = 64, fft: int | None = None
    ) -> None:
        super().__init__()
        self.spectrum = Spectrum(window, hop, fft)
        self.register_buffer("filters", mel_filters(sample_rate, self.spectrum.fft, bands), persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        """Samples to amplitudes."""
        return self.filters @ amplitude(self.spectrum(wave))


def amplitude(spectrum: Tensor, least: float = 1e-12) -> Tensor:
    """The absolute value of a complex ``spectrum``, with a gradient at 0. ``least`` is added to its square."""
    return (spectrum.real.square() + spectrum.imag.square() + least).sqrt()


def mel_filters(sample_rate: int, window: int, bands: int) -> Tensor:
    """Triangles of equal width on the mel scale, each of sum 1: ``(bands, window / 2 + 1)``.

    ``mel(f) = 2595 log₁₀(1 + f / 700)``. A band so narrow that no frequency of the transform lies inside takes the
    nearest one.
    """
    top = 2595.0 * torch.log10(torch.tensor(1.0 + sample_rate / 2 / 700.0, dtype=torch.float64))
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, 1.0, bands + 2, dtype=torch.float64) * top / 2595.0) - 1.0)
    frequencies = torch.linspace(0.0, sample_rate / 2, window // 2 + 1, dtype=torch.float64)
    low, middle, high = (edges[i : bands + i, None] for i in range(3))
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    triangles = torch.minimum(rising, falling).clamp(min=0.0)
    nearest = (frequencies - middle).abs().argmin(-1, keepdim=True)
    triangles = torch.where(
        triangles.sum(-1, keepdim=True) > 0.0, triangles, torch.zeros_like(triangles).scatter(1, nearest, 1.0)
    )
    return (triangles / triangles.sum(-1, keepdim=True)).float()
