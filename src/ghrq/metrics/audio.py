"""Scores of decoded speech against the original, and the entropy of its codes.

- **PESQ** wide-band (ITU-T P.862.2), at 16 kHz; other rates are resampled.
- **STOI**, at the rate of the files.
- **SI-SDR** in dB, of signals without their mean.
- **mel**: the mean distance ``|ln A - ln B|`` of mel spectra, see :func:`log_mel`.

Each is computed for a file at a time, so files may have any lengths. A score that is not defined for a file (PESQ finds
no speech in it, or the original is silence) is NaN, and :func:`means` leaves it out.
"""

import math
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ghrq.nets.spectra import MelSpectrum
from ghrq.system.errors import require
from ghrq.system.progress import Progress

EXTRA = "audio"
"""The extra of ghrq with what these metrics need."""

PESQ_RATE = 16_000
PESQ_LOWEST = 0.999 + 4.0 / (1.0 + math.exp(1.3669 * 0.5 + 3.8224))
"""The lowest score of P.862.2, 1.04: its mapping of -0.5."""
FFT, HOP, MELS = 1024, 256, 64

# Of amplitudes: the noise of samples rounded to 16 bits.
_FLOOR = 1e-5


class Pair(NamedTuple):
    """A file and what a codec made of it, float ``(T,)`` each, of the same length."""

    original: Tensor
    decoded: Tensor


def scores(
    pairs: Iterable[Pair], rate: int, progress: Progress | None = None, total: int | None = None
) -> dict[str, Tensor]:
    """``pesq``, ``stoi``, ``si_sdr`` and ``mel`` of each pair, float64 ``(n,)`` each.

    ``total`` is n, for the progress.
    """
    rows = []
    for pair in (progress or Progress()).track(pairs, total, "scores"):
        original, decoded = _checked(*pair)
        rows.append(
            {
                "pesq": pesq(original, decoded, rate),
                "stoi": stoi(original, decoded, rate),
                "si_sdr": float(si_sdr(original, decoded)),
                "mel": mel_distance(original, decoded, rate),
            }
        )
    names = ("pesq", "stoi", "si_sdr", "mel")
    return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in names}


def means(values: dict[str, Tensor]) -> dict[str, float]:
    """The mean of each score over the files for which it is defined; NaN if there is none."""
    return {name: float(value.nanmean()) for name, value in values.items()}


def pesq(original: Tensor, decoded: Tensor, rate: int) -> float:
    """PESQ-wb of two signals ``(T,)``, from 1.04 to 4.64.

    NaN where it finds no speech in the original, or under a quarter second. Of decoded silence it is the lowest score.
    """
    package = require("pesq", EXTRA)
    a, b = (_at(signal, rate, PESQ_RATE) for signal in (original, decoded))
    if a.any() and not b.any():  # PESQ brings both to the same level: silence has none
        return PESQ_LOWEST
    score = package.pesq(PESQ_RATE, a, b, "wb", on_error=package.PesqError.RETURN_VALUES)
    return float(score) if score >= 0 else math.nan  # -1 is its code for an error


def stoi(original: Tensor, decoded: Tensor, rate: int) -> float:
    """STOI of two signals ``(T,)``, up to 1; NaN if there are fewer than 30 frames of speech, about 0.4 s."""
    package = require("pystoi", EXTRA)
    if not original.any():
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(package.stoi(_array(original), _array(decoded), rate))
        except (RuntimeWarning, ValueError):  # too short, or nothing but silence
            return math.nan


def si_sdr(original: Tensor, decoded: Tensor) -> Tensor:
    """The scale-invariant signal-to-distortion ratio in dB of signals ``(..., T)``, float64 ``(...)``.

    ``10 log10(‖αs‖² / ‖αs - ŝ‖²)`` with ``α = ⟨s, ŝ⟩/‖s‖²``, of signals without their mean. NaN if the original is
    silence, -inf if only the decoded one is.
    """
    s, estimate = (signal.double() - signal.double().mean(-1, keepdim=True) for signal in (original, decoded))
    target = (s * estimate).sum(-1, keepdim=True) / s.square().sum(-1, keepdim=True) * s
    signal, distortion = target.square().sum(-1), (target - estimate).square().sum(-1)
    return torch.where(signal > 0.0, 10.0 * (signal / distortion).log10(), signal.log10())  # the log of 0 is -inf


def mel_distance(original: Tensor, decoded: Tensor, rate: int) -> float:
    """The mean over frames and bands of the distance of two log-mel spectra, in units of ln: 0.115 is 1 dB."""
    return float((log_mel(original, rate) - log_mel(decoded, rate)).abs().mean())


def log_mel(signal: Tensor, rate: int) -> Tensor:
    """``ln`` of the mel spectrum of amplitudes of a signal ``(T,)``: ``(64, frames)``, one frame for 256 samples.

    STFT of 1024 samples, as :class:`ghrq.nets.spectra.Spectrum` has it. What 16 bits do not resolve counts as silence.
    """
    return _spectrum(rate).to(signal.device)(signal.float()).clamp_min(_FLOOR).log()


@lru_cache
def _spectrum(rate: int) -> MelSpectrum:
    return MelSpectrum(rate, FFT, HOP, MELS)


def entropies(codes: Tensor, size: int) -> Tensor:
    """The zero-order entropy of each stage of ``codes (..., stages)`` below ``size``, in bits: float64 ``(stages,)``.

    It is that of the codes given, so of few codes it is too low: at most log2 of their number. Times the frames a
    second, summed over the stages used, it is a bitrate.
    """
    flat = codes.reshape(-1, codes.shape[-1])
    result = []
    for stage in flat.unbind(1):
        share = torch.bincount(stage, minlength=size).double() / len(flat)
        result.append(-torch.special.xlogy(share, share).sum() / np.log(2.0))
    return torch.stack(result)


def _checked(original: Tensor, decoded: Tensor) -> tuple[Tensor, Tensor]:
    if original.dim() != 1 or original.shape != decoded.shape or not len(original):
        raise ValueError(f"expected two signals (T,), got {tuple(original.shape)} and {tuple(decoded.shape)}")
    if not (original.isfinite().all() and decoded.isfinite().all()):
        raise ValueError("a signal has samples that are not finite")
    return original, decoded


def _array(signal: Tensor) -> NDArray[np.float64]:
    return signal.detach().double().cpu().numpy()


def _at(signal: Tensor, rate: int, wanted: int) -> NDArray[np.float64]:
    array = _array(signal)
    return array if rate == wanted else require("soxr", EXTRA).resample(array, rate, wanted)
