"""Speech and other sound to codes and back."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from ghrq.data.audio.files import HIGHEST_RATE, LOUDEST, LOWEST_RATE
from ghrq.models.code_tables import CodeTables
from ghrq.models.compact import compact, expand
from ghrq.nets.context import Context
from ghrq.nets.frame_codec import MERGED, FrameCodec, FrameCodecConfig
from ghrq.nets.seanet import Seanet, SeanetConfig
from ghrq.quantizer import QuantizerConfig
from ghrq.system.checks import at_least, has_values, is_tensor, largest_size
from ghrq.system.pretrained import Format, Pretrained, digest, save
from ghrq.system.settings import Positive, Section

if TYPE_CHECKING:
    from ghrq.models.audio_stream import Streams

Architecture = Literal["frame", "seanet"]

MOST_STAGES, LONGEST_HOP, MOST_CODES = 64, 2**16 - 1, 2**16
"""What a file of codes can hold, see :mod:`ghrq.models.bitstream`."""

SHIPPED_CODECS = Path(__file__).parent / "shipped"
"""The folder of the codecs that come with ghrq, by name."""

# Of the names of statistics from which codes learn.
_LEARNING = ("quantizer.usage.", "quantizer.midpoints.")


class AudioCodecSizes(Section):
    """What makes an :class:`AudioCodec`, without its quantizer."""

    sample_rate: Annotated[int, Field(ge=LOWEST_RATE, le=HIGHEST_RATE)] = 16_000
    architecture: Architecture = "frame"
    """``frame``: small and fast, starts as a transform codec. ``seanet``: the paper's, for a GPU."""
    dim: Positive = 64
    """Of the codes."""
    frame: FrameCodecConfig = FrameCodecConfig()
    """The sizes of the architecture ``frame``."""
    seanet: SeanetConfig = SeanetConfig()
    """The sizes of the architecture ``seanet``."""

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return math.prod(self.seanet.strides) if self.architecture == "seanet" else MERGED * self.frame.hop

    @model_validator(mode="after")
    def _fits_files(self) -> Self:
        if self.hop > LONGEST_HOP:
            raise ValueError(f"a frame of at most {LONGEST_HOP:,} samples, which its files can hold, not {self.hop:,}")
        return self


class AudioCodecConfig(AudioCodecSizes):
    """What makes an :class:`AudioCodec`."""

    quantizer: QuantizerConfig = QuantizerConfig(kind="calibrated", codebook_size=1024, num_stages=12)

    @field_validator("quantizer")
    @classmethod
    def _named_by_files(cls, quantizer: QuantizerConfig) -> QuantizerConfig:
        if not isinstance(quantizer.codebook_size, int):
            raise ValueError(
                f"codebook_size={quantizer.codebook_size}: the stages of an audio codec have one size, which its files "
                "name"
            )
        for key, most in (("num_stages", MOST_STAGES), ("codebook_size", MOST_CODES)):
            if getattr(quantizer, key) > most:
                raise ValueError(f"{key}={getattr(quantizer, key)}: files of codes hold {most:,} at most")
        return quantizer

    @property
    def codes(self) -> int:
        """Codes of each stage."""
        return largest_size(self.quantizer.codebook_size)


class AudioCodec(nn.Module, Pretrained):
    """Encoder, quantizer and decoder of one channel: a tuple of codes for each frame of ``hop`` samples.

    Examples:
        >>> codec = ghrq.models.AudioCodec.from_pretrained("speech-16k")  # ships with ghrq
        >>> wave = torch.randn(16_000)  # (T,) at codec.config.sample_rate
        >>> codes = codec.encode(wave)
        >>> codes.shape, codec.decode(codes[:, :4], length=len(wave)).shape  # four stages: the coarse version
        (torch.Size([50, 12]), torch.Size([16000]))

    """

    Config = AudioCodecConfig
    config: AudioCodecConfig
    _format = Format("ghrq-audio-codec", "audio codec")
    _shipped = SHIPPED_CODECS

    def __init__(self, config: AudioCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.network: FrameCodec | Seanet
        if config.architecture == "seanet":
            self.network = Seanet(config.seanet, config.dim)
        else:
            self.network = FrameCodec(config.frame, config.dim)
        self.quantizer = config.quantizer.build(config.dim)
        self.tables = CodeTables(config.quantizer.num_stages, config.codes)
        """Of the entropy coder."""

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return self.config.hop

    @property
    def frame_rate(self) -> float:
        """Frames of a second."""
        return self.config.sample_rate / self.hop

    @property
    def context(self) -> Context:
        """The frames around a frame that its codes depend on, or that its samples depend on, whichever are more."""
        return self.network.encoder_context.around(self.network.decoder_context)

    @property
    def alignment(self) -> int:
        """A piece of a recording gives what the whole gives if it begins at a multiple of so many frames."""
        return self.network.alignment

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all that decides what codes mean: files name the model by it."""
        return digest(self._format.name, self._lasting())

    def frames(self, samples: int) -> int:
        """How many frames so many samples have."""
        at_least("samples", samples, 0, whole=True)
        return -(-samples // self.hop)

    def latents(self, wave: Tensor) -> Tensor:
        """What the quantizer sees of ``wave (B, T)``: ``(B, frames, latent)``. The last frame is filled with zeros."""
        _check(wave, (2,))
        missing = self.frames(wave.shape[-1]) * self.hop - wave.shape[-1]
        return self.network.encoder(F.pad(wave, (0, missing)) if missing else wave)

    def waveform(self, z_hat: Tensor) -> Tensor:
        """The sound of ``z_hat (B, frames, latent)``: ``(B, frames · hop)``."""
        return self.network.decoder(z_hat)

    @torch.no_grad()
    def encode(self, wave: Tensor, stages: int | None = None, beam: int = 4) -> Tensor:
        """The codes of ``wave (T,)`` or ``(B, T)``: ``(..., frames, stages)`` int64, on the same device.

        All at once: :meth:`stream` is for long recordings. ``beam`` as in
        :meth:`ghrq.quantizer.coder.Coder.encode`; 1 is the fastest.
        """
        check_samples(wave, (1, 2))
        stages = check_stages(self, stages)
        at_least("beam", beam, 1, whole=True)
        if not wave.numel():
            frames = self.frames(wave.shape[-1])
            return torch.zeros(*wave.shape[:-1], frames, stages, dtype=torch.int64, device=wave.device)
        z = self.latents(wave.to(self._device, torch.float32).reshape(-1, wave.shape[-1]))
        codes = self.quantizer.encode(z, stages, beam).to(wave.device)
        return codes if wave.dim() == 2 else codes[0]

    @torch.no_grad()
    def decode(self, codes: Tensor, length: int | None = None) -> Tensor:
        """The sound of ``codes (..., frames, depth)``: ``(..., length)``, by default ``frames · hop`` samples.

        Any depth from 1 to ``num_stages``.
        """
        is_tensor("codes", codes)
        if codes.dim() not in (2, 3):
            raise ValueError(f"expected codes of shape (frames, depth) or (B, frames, depth), got {tuple(codes.shape)}")
        frames = codes.shape[-2]
        length = frames * self.hop if length is None else length
        if self.frames(length) != frames:
            raise ValueError(f"{frames} frames of {self.hop} samples do not give length={length}")
        if frames == 0:
            return torch.zeros(*codes.shape[:-2], 0, device=codes.device)
        z_hat = self.quantizer.decode(codes.to(self._device))
        wave = self.waveform(z_hat if codes.dim() == 3 else z_hat.unsqueeze(0))[:, :length].to(codes.device)
        return wave if codes.dim() == 3 else wave[0]

    def save_compact(self, folder: str | Path) -> None:
        """As ``save_pretrained``, much smaller: one byte a weight, and nothing that only training needs.

        The model in the folder is a slightly different one, with another fingerprint.
        """
        save(Path(folder), self._format, self._saved_config(), compact(self._lasting()))

    def _lasting(self) -> dict[str, Tensor]:
        """All weights, without the statistics from which codes learn."""
        return {name: part for name, part in self.state_dict().items() if not name.startswith(_LEARNING)}

    def _unpacked(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compact weights; statistics of learning that are not there begin with the codebooks."""
        found = expand(weights)
        codebooks = found.get("quantizer.codebooks")
        if self.quantizer.midpoints is not None and codebooks is not None:
            self.quantizer.midpoints.restart(codebooks)
        return {name: part for name, part in self.state_dict().items() if name.startswith(_LEARNING)} | found

    def stream(self, batch: int = 1, *, stages: int | None = None, beam: int = 4, block: int = 1) -> "Streams":
        """A stream of samples to codes and one back, for ``batch`` channels in real time; see its module."""
        from ghrq.models.audio_stream import DecodeStream, EncodeStream, Streams

        encoder = EncodeStream(self, batch, stages=stages, beam=beam, block=block)
        return Streams(encoder, DecodeStream(self, batch, depth=stages, block=block))

    @property
    def _device(self) -> torch.device:
        return self.quantizer.codebooks.device


def check_stages(codec: AudioCodec, wanted: int | None) -> int:
    """The number of stages: ``wanted``, or all."""
    most = codec.quantizer.num_stages
    if wanted is None:
        return most
    at_least("stages", wanted, 1, whole=True)
    if wanted > most:
        raise ValueError(f"stages must be at most {most}, those of the codec, got {wanted}")
    return wanted


def check_samples(wave: Tensor, dimensions: tuple[int, ...]) -> None:
    """Raise an error if ``wave`` is no sound: of another shape or type, not finite, or far above full scale."""
    _check(wave, dimensions)
    if not wave.numel() or not has_values(wave):
        return
    peak = float(wave.detach().abs().max())
    if not peak <= LOUDEST:  # not so for NaN
        raise ValueError(f"expected samples from -1 to 1, the largest is {peak:g}: scale or repair the sound first")


def _check(wave: Tensor, dimensions: tuple[int, ...]) -> None:
    shapes = " or ".join({1: "(T,)", 2: "(B, T)"}[count] for count in dimensions)
    expected = f"samples from -1 to 1 of shape {shapes}"
    is_tensor(expected, wave)
    if not wave.dtype.is_floating_point or wave.dim() not in dimensions:
        raise ValueError(f"expected {expected}, got {wave.dtype} of shape {tuple(wave.shape)}")
