"""Spectra against numpy."""

import numpy as np
import torch

from ghrq.nets.spectra import MelSpectrum, Spectrum, amplitude, mel_filters


def test_the_spectrum_is_that_of_windowed_frames():
    wave = torch.randn(2, 1000)
    found = Spectrum(64)(wave)
    assert found.shape == (2, 33, 63)
    window = np.hanning(65)[:-1]
    frame = np.fft.rfft(wave[1, 16 * 10 - 32 : 16 * 10 + 32].numpy() * window) / 8.0
    assert np.allclose(found[1, :, 10].numpy(), frame, atol=1e-4)


def test_noise_has_the_same_level_for_every_window():
    wave = torch.randn(1, 40_000)
    levels = [float(Spectrum(window)(wave).abs().square().mean()) for window in (128, 512, 2048)]
    assert np.allclose(levels, 0.375, atol=0.03)  # the mean of a squared Hann window


def test_mel_bands_cover_all_frequencies():
    filters = mel_filters(16_000, 1024, 64)
    assert filters.shape == (64, 513)
    assert torch.allclose(filters.sum(-1), torch.ones(64), atol=1e-5)
    assert (filters >= 0).all()
    assert (mel_filters(16_000, 128, 64).sum(-1) > 0).all(), "narrow bands, too"
    peaks = filters.argmax(-1)
    assert (peaks.diff() >= 0).all()


def test_a_tone_is_in_its_band():
    time = torch.arange(16_000) / 16_000
    tone = torch.sin(2 * torch.pi * 1000 * time)
    bands = MelSpectrum(16_000, 1024)(tone).mean(-1)
    mel = 2595 * np.log10(1 + 1000 / 700) / (2595 * np.log10(1 + 8000 / 700)) * 65 - 1
    assert abs(int(bands.argmax()) - mel) <= 1


def test_the_amplitude_has_a_gradient_at_zero():
    x = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    amplitude(x).sum().backward()
    assert x.grad is not None
    assert torch.view_as_real(x.grad).isfinite().all()
