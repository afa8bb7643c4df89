"""Encoder and decoder of speech that start as a transform codec: an MDCT, loudness companded, principal components.

Untrained they restore the waveform as well as so many principal components can. All other layers start at zero and
learn what is better.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.nets.context import Context
from ghrq.nets.mdct import Analysis, Synthesis
from ghrq.system.settings import Positive, Section, Share

MERGED = 2
"""Frames of the MDCT in one vector."""

# Added to squared norms: far below the quantization noise of 16 bits.
_SILENCE = 1e-8


class FrameCodecConfig(Section):
    """The sizes of a :class:`FrameCodec`."""

    hop: Positive = 160
    """Samples of one frame of the MDCT, and its frequencies. A vector stands for two frames."""
    encoder_blocks: tuple[int, int] = (2, 2)
    """Blocks on frames of the MDCT, and on vectors."""
    decoder_blocks: tuple[int, int] = (2, 2)
    """Blocks on vectors, and on frames of the MDCT."""
    hidden: Positive = 640
    """The inner width of a block."""
    kernel: Positive = 7
    """Frames that a block sees; odd."""
    companding: Share = 0.6
    """Frames ``x`` become ``x‖x‖^-companding``: quiet ones count more."""
    causal: bool = False
    """Whether blocks see no frames of the future. The decoder still needs the next vector for the overlap."""


class Block(nn.Module):
    """A ConvNeXt block ``(B, n, width)`` -> the same: a convolution over time, then two layers on each frame."""

    def __init__(self, width: int, hidden: int, kernel: int, causal: bool) -> None:
        super().__init__()
        self.padding = (kernel - 1, 0) if causal else ((kernel - 1) // 2, kernel // 2)
        self.over_time = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layers find."""
        around = self.over_time(F.pad(x.mT, self.padding)).mT
        return x + self.outer(F.gelu(self.inner(self.norm(around))))


class FrameEncoder(nn.Module):
    """Samples ``(B, n · 2 hop)`` -> vectors ``(B, n, dim)``."""

    def __init__(self, config: FrameCodecConfig, dim: int) -> None:
        super().__init__()
        self.companding = config.companding
        self.analysis = Analysis(config.hop)
        self.frame_blocks = _blocks(config, config.encoder_blocks[0], config.hop)
        self.merge = nn.Linear(MERGED * config.hop, dim)
        self.vector_blocks = _blocks(config, config.encoder_blocks[1], dim)

    def pairs(self, wave: Tensor) -> Tensor:
        """What is merged: ``(B, n, 2 hop)``."""
        frames = self.frame_blocks(with_power(self.analysis(wave), 1.0 - self.companding))
        return frames.reshape(frames.shape[0], -1, MERGED * frames.shape[-1])

    def forward(self, wave: Tensor) -> Tensor:
        """Samples to vectors."""
        return self.vector_blocks(self.merge(self.pairs(wave)))


class FrameDecoder(nn.Module):
    """Vectors ``(B, n, dim)`` -> samples ``(B, n · 2 hop)``."""

    def __init__(self, config: FrameCodecConfig, dim: int) -> None:
        super().__init__()
        self.companding = config.companding
        self.vector_blocks = _blocks(config, config.decoder_blocks[0], dim)
        self.split = nn.Linear(dim, MERGED * config.hop)
        self.frame_blocks = _blocks(config, config.decoder_blocks[1], config.hop)
        self.synthesis = Synthesis(config.hop)

    def forward(self, z: Tensor) -> Tensor:
        """Vectors to samples."""
        pairs = self.split(self.vector_blocks(z))
        frames = self.frame_blocks(pairs.reshape(pairs.shape[0], -1, pairs.shape[-1] // MERGED))
        return self.synthesis(with_power(frames, 1.0 / (1.0 - self.companding)))


class FrameCodec(nn.Module):
    """Encoder and decoder; see :class:`FrameCodecConfig` for the sizes. ``dim`` is that of the vectors."""

    alignment = 1
    """A piece of a recording may begin at any frame."""

    def __init__(self, config: FrameCodecConfig, dim: int) -> None:
        super().__init__()
        if dim > MERGED * config.hop:
            raise ValueError(f"dim must be at most {MERGED * config.hop}, the coefficients of two frames, got {dim}")
        self.config, self.dim, self.hop = config, dim, MERGED * config.hop
        self.encoder, self.decoder = FrameEncoder(config, dim), FrameDecoder(config, dim)

    @torch.no_grad()
    def start(self, wave: Tensor) -> None:
        """Begin as the transform codec of the principal components of ``wave (B, T)``."""
        pairs = self.encoder.pairs(F.pad(wave, (0, -wave.shape[-1] % self.hop))).flatten(0, 1).double()
        mean = pairs.mean(0)
        centred = pairs - mean
        _, directions = torch.linalg.eigh(centred.mT @ centred)
        kept = directions.flip(1)[:, : self.dim]  # the greatest variance first
        merge, split = self.encoder.merge, self.decoder.split
        merge.weight.copy_(kept.mT)
        merge.bias.copy_(-kept.mT @ mean)
        split.weight.copy_(kept)
        split.bias.copy_(mean)

    @property
    def encoder_context(self) -> Context:
        """The vectors of samples around those of its own that a vector depends on."""
        frames, vectors = (_reach(self.config, count) for count in self.config.encoder_blocks)
        # A frame overlaps with the samples of the frame before.
        left = vectors.left - (-(frames.left + 1) // MERGED)
        return Context(left, vectors.right - (-frames.right // MERGED))

    @property
    def decoder_context(self) -> Context:
        """The vectors around its own that a vector's samples depend on."""
        vectors, frames = (_reach(self.config, count) for count in self.config.decoder_blocks)
        # The last samples overlap with the first frame of the next vector.
        return Context(vectors.left - (-frames.left // MERGED), vectors.right + frames.right // MERGED + 1)


def with_power(x: Tensor, power: float) -> Tensor:
    """Vectors ``(..., d)`` with norms raised to ``power``."""
    return x * (x.square().sum(-1, keepdim=True) + _SILENCE) ** (0.5 * (power - 1.0))


def _blocks(config: FrameCodecConfig, count: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(Block(width, config.hidden, config.kernel, config.causal) for _ in range(count)))


def _reach(config: FrameCodecConfig, blocks: int) -> Context:
    """What so many blocks see around a frame."""
    around = config.kernel - 1
    return (
        Context(blocks * around, 0)
        if config.causal
        else Context(blocks * (around // 2), blocks * (around - around // 2))
    )
