"""What an audio codec learns from: the sound that its codes give, compared with the original."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.models.audio_codec import AudioCodec
from ghrq.nets.spectra import MelSpectrum, Spectrum
from ghrq.quantizer import ball_units
from ghrq.tasks.audio.recipe import Weights

# Windows of the mel spectra, and of the complex one. Frames overlap by half.
_MEL_WINDOWS, _WINDOW = (256, 1024), 512

# Windows of the paper's mel spectra, and what it adds to amplitudes.
_SCALES, _INAUDIBLE = (64, 128, 256, 512, 1024), 1e-7

# Softer than this is silence: amplitudes of mel bands, squared ones of the complex spectrum.
_QUIET, _SILENCE = 3e-5, 1e-8


class SoundLoss(nn.Module):
    """How different two sounds ``(B, T)`` are: log mel spectra, compressed complex spectra, samples."""

    def __init__(self, sample_rate: int, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.mels = nn.ModuleList(MelSpectrum(sample_rate, window, window // 2) for window in _MEL_WINDOWS)
        self.spectrum = Spectrum(_WINDOW, _WINDOW // 2)

    def forward(self, heard: Tensor, wave: Tensor) -> dict[str, Tensor]:
        """``reconstruction``, the weighted sum, and its parts ``mel``, ``spectrum`` and ``samples``."""
        mel = torch.stack([F.l1_loss(_log(of(heard)), _log(of(wave))) for of in self.mels]).mean()
        difference = self._compressed(heard) - self._compressed(wave)
        spectrum = difference.square().sum(-1).mean()
        samples = F.l1_loss(heard, wave)
        w = self.weights
        total = w.mel * mel + w.spectrum * spectrum + w.samples * samples
        return {"reconstruction": total, "mel": mel, "spectrum": spectrum, "samples": samples}

    def _compressed(self, wave: Tensor) -> Tensor:
        """The spectrum with amplitudes to the power of ``weights.exponent``: ``(..., 2)``."""
        found = torch.view_as_real(self.spectrum(wave))
        return found * (found.square().sum(-1, keepdim=True) + _SILENCE) ** (0.5 * (self.weights.exponent - 1.0))


class MultiScaleLoss(nn.Module):
    """The paper's: 100 times the squared difference of samples, and mel spectra with windows s from 64 to 1024.

    Of each spectrum, the mean absolute difference and √(s/2) times the mean over time of the root mean square, over
    bands, of the difference of logarithms.
    """

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        self.mels = nn.ModuleList(MelSpectrum(sample_rate, s, fft=max(s, 512)) for s in _SCALES)

    def forward(self, heard: Tensor, wave: Tensor) -> dict[str, Tensor]:
        """``reconstruction``, the sum, and its parts: ``mel`` is the mean difference of logarithms."""
        samples = F.mse_loss(heard, wave)
        total, mels = 100.0 * samples, []
        for window, of in zip(_SCALES, self.mels, strict=True):
            a, b = of(heard), of(wave)
            difference = (a + _INAUDIBLE).log() - (b + _INAUDIBLE).log()
            spread = (difference.square().mean(-2) + _INAUDIBLE).sqrt().mean()
            total = total + F.l1_loss(a, b) + (window / 2) ** 0.5 * spread
            mels.append(difference.abs().mean())
        return {"reconstruction": total, "mel": torch.stack(mels).mean(), "samples": samples}


class CodecLosses(nn.Module):
    """A codec in training: ``(B, T)`` samples to losses."""

    def __init__(self, codec: AudioCodec, weights: Weights) -> None:
        super().__init__()
        rate = codec.config.sample_rate
        self.codec = codec
        self.sound = MultiScaleLoss(rate) if weights.form == "multi-scale" else SoundLoss(rate, weights)

    def forward(self, wave: Tensor) -> dict[str, Tensor]:
        """``loss`` and its parts; the loss of the quantizer in the units of the ball."""
        return self.heard(wave)[1]

    def heard(self, wave: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The sound that the codes give, and the losses."""
        quantized = self.codec.quantizer(self.codec.latents(wave))
        heard = self.codec.waveform(quantized.z_hat)[:, : wave.shape[-1]]
        parts = self.sound(heard, wave)
        quantizer = ball_units(self.codec.quantizer) * quantized.loss
        loss = parts["reconstruction"] + self.codec.config.quantizer.weight * quantizer
        return heard, {"loss": loss, **parts, "quantizer": quantizer}


class UnquantizedLosses(CodecLosses):
    """The network of a codec in training, without its quantizer."""

    def heard(self, wave: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The sound that the vectors give, and the losses."""
        heard = self.codec.waveform(self.codec.latents(wave))[:, : wave.shape[-1]]
        parts = self.sound(heard, wave)
        return heard, {"loss": parts["reconstruction"], **parts}


def _log(mel: Tensor) -> Tensor:
    return (mel + _QUIET).log()
