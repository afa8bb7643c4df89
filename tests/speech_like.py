"""A signal that PESQ and STOI take for speech: a voice of harmonics with syllables, without any file."""

import math

import torch
from torch import Tensor


def speech_like(seconds: float, rate: int, seed: int = 0) -> Tensor:
    """Float32 ``(seconds · rate,)``, at most 0.5: harmonics of a gliding pitch, formed by formants, with pauses."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    pitch = 120.0 + 20.0 * torch.sin(2 * math.pi * 0.7 * time + seed)
    phase = 2 * math.pi * pitch.cumsum(0) / rate
    voice = torch.zeros_like(time)
    for harmonic in range(1, 31):
        frequency = harmonic * 120.0
        formants = sum(math.exp(-(((frequency - f) / 200.0) ** 2)) for f in (500.0, 1500.0, 2500.0))
        voice += (formants + 0.02) * torch.sin(harmonic * phase)
    syllables = torch.sin(2 * math.pi * 2.0 * time).clamp_min(0.0) ** 0.5
    noise = torch.randn(len(time), generator=generator, dtype=torch.float64)
    signal = syllables * voice / voice.abs().max() + 1e-4 * noise
    return (0.5 * signal / signal.abs().max()).float()
