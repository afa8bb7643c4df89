"""SEANet, the encoder and decoder of the paper's audio codec: strided convolutions and an LSTM in the middle.

Two things differ from the usual form, so that any length is possible and pieces of a recording give what the whole
gives: there are zeros outside of the signal, not its reflection, and the LSTM begins anew after every ``memory``
frames, counted from the start of the recording. By default that is the length of the crops it is trained on.
"""

import math
from functools import reduce
from typing import NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ghrq.nets.context import Context
from ghrq.system.settings import Count, Positive, Section

_Convolution = TypeVar("_Convolution", nn.Conv1d, nn.ConvTranspose1d)


class SeanetConfig(Section):
    """The sizes of a :class:`Seanet`."""

    strides: tuple[Positive, ...] = (2, 4, 5, 6)
    """Of the encoder, the first one first. Their product is the number of samples of a frame."""
    filters: Positive = 32
    """Channels at the rate of the samples; they double with each stride."""
    kernel: Positive = 7
    """Of the first and the last convolution."""
    residual_kernel: Positive = 3
    compress: Positive = 2
    """The residual units have so many times fewer channels inside."""
    lstm_layers: Count = 2
    memory: Positive = 100
    """Frames after which the LSTM begins anew."""
    causal: bool = False
    """Whether no sample of the future is seen, beyond the end of a frame."""


class Reach(NamedTuple):
    """From the first to the last place that something depends on."""

    first: int
    last: int


class Layer(nn.Module):
    """``(B, channels, n)`` -> ``(B, channels', n')``, with the places of its input that places of its output see."""

    def reach(self, seen: Reach) -> Reach:
        """The places of the input that the places ``seen`` of the output depend on."""
        raise NotImplementedError


class Convolution(Layer):
    """A convolution of n places to n / stride, with weight norm and with zeros around the signal."""

    def __init__(self, given: int, made: int, kernel: int, stride: int = 1, *, causal: bool) -> None:
        super().__init__()
        self.inner = _started(nn.Conv1d(given, made, kernel, stride), given * kernel)
        extra = kernel - stride
        right = 0 if causal else extra // 2
        self.padding = (extra - right, right)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        return self.inner(F.pad(x, self.padding))

    def reach(self, seen: Reach) -> Reach:
        """See :class:`Layer`."""
        (kernel,), (stride,), left = self.inner.kernel_size, self.inner.stride, self.padding[0]
        return Reach(seen.first * stride - left, seen.last * stride - left + kernel - 1)


class Upsampling(Layer):
    """The transpose of :class:`Convolution`: n places to n · stride, by a kernel twice as long as the stride."""

    def __init__(self, given: int, made: int, stride: int, *, causal: bool) -> None:
        super().__init__()
        self.inner = _started(nn.ConvTranspose1d(given, made, 2 * stride, stride), 2 * given)
        self.stride = stride
        self.left = 0 if causal else stride - stride // 2  # places that are cut off; the others at the end

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        return self.inner(x)[..., self.left : self.left + x.shape[-1] * self.stride]

    def reach(self, seen: Reach) -> Reach:
        """See :class:`Layer`."""
        first = -(-(seen.first + self.left - 2 * self.stride + 1) // self.stride)
        return Reach(first, (seen.last + self.left) // self.stride)


class ResidualUnit(Layer):
    """Two convolutions with fewer channels in between, and one of kernel 1 around them."""

    def __init__(self, channels: int, config: SeanetConfig) -> None:
        super().__init__()
        hidden = max(1, channels // config.compress)
        self.narrow = Convolution(channels, hidden, config.residual_kernel, causal=config.causal)
        self.widen = Convolution(hidden, channels, 1, causal=config.causal)
        self.around = Convolution(channels, channels, 1, causal=config.causal)

    def forward(self, x: Tensor) -> Tensor:
        """Add both paths."""
        return self.around(x) + self.widen(F.elu(self.narrow(F.elu(x))))

    def reach(self, seen: Reach) -> Reach:
        """See :class:`Layer`."""
        return self.narrow.reach(seen)


class Elu(Layer):
    """The activation."""

    def forward(self, x: Tensor) -> Tensor:
        """ELU."""
        return F.elu(x)

    def reach(self, seen: Reach) -> Reach:
        """Its own place."""
        return seen


class Recurrence(Layer):
    """An LSTM over time that begins anew after every ``memory`` places, added to its input."""

    def __init__(self, channels: int, layers: int, memory: int) -> None:
        super().__init__()
        self.memory = memory
        self.lstm = nn.LSTM(channels, channels, layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """All pieces at the same time."""
        batch, channels, places = x.shape
        pieces = F.pad(x, (0, -places % self.memory)).mT.reshape(-1, self.memory, channels)
        found = self.lstm(pieces)[0].reshape(batch, -1, channels).mT
        return x + found[..., :places]

    def reach(self, seen: Reach) -> Reach:
        """At most so many places to the left, as it begins anew."""
        return Reach(seen.first - self.memory + 1, seen.last)


class _Layers(nn.Sequential):
    """Layers one after another."""

    def reach(self, seen: Reach) -> Reach:
        layers = [cast(Layer, layer) for layer in self]
        return reduce(lambda seen, layer: layer.reach(seen), reversed(layers), seen)


class SeanetEncoder(nn.Module):
    """Samples ``(B, n · hop)`` -> vectors ``(B, n, dim)``."""

    def __init__(self, config: SeanetConfig, dim: int) -> None:
        super().__init__()
        width, causal = config.filters, config.causal
        layers: list[Layer] = [Convolution(1, width, config.kernel, causal=causal)]
        for stride in config.strides:
            layers += [ResidualUnit(width, config), Elu()]
            layers.append(Convolution(width, 2 * width, 2 * stride, stride, causal=causal))
            width *= 2
        layers += _recurrence(config, width)
        layers += [Elu(), Convolution(width, width, config.kernel, causal=causal)]
        self.layers = _Layers(*layers)
        self.project = nn.Identity() if dim == width else nn.Linear(width, dim)

    def forward(self, wave: Tensor) -> Tensor:
        """Samples to vectors."""
        return self.project(self.layers(wave.unsqueeze(1)).mT)


class SeanetDecoder(nn.Module):
    """Vectors ``(B, n, dim)`` -> samples ``(B, n · hop)``."""

    def __init__(self, config: SeanetConfig, dim: int) -> None:
        super().__init__()
        width, causal = config.filters * 2 ** len(config.strides), config.causal
        self.project = nn.Identity() if dim == width else nn.Linear(dim, width)
        layers: list[Layer] = [Convolution(width, width, config.kernel, causal=causal)]
        layers += _recurrence(config, width)
        for stride in reversed(config.strides):
            layers += [Elu(), Upsampling(width, width // 2, stride, causal=causal)]
            width //= 2
            layers.append(ResidualUnit(width, config))
        layers += [Elu(), Convolution(width, 1, config.kernel, causal=causal)]
        self.layers = _Layers(*layers)

    def forward(self, z: Tensor) -> Tensor:
        """Vectors to samples."""
        return self.layers(self.project(z).mT).squeeze(1)


class Seanet(nn.Module):
    """Encoder and decoder; see :class:`SeanetConfig` for the sizes. ``dim`` is that of the vectors."""

    def __init__(self, config: SeanetConfig, dim: int) -> None:
        super().__init__()
        self.config, self.dim, self.hop = config, dim, math.prod(config.strides)
        self.encoder, self.decoder = SeanetEncoder(config, dim), SeanetDecoder(config, dim)

    @torch.no_grad()
    def start(self, wave: Tensor) -> None:
        """Begin with vectors of mean 0 and mean squared norm 1 over ``wave (B, T)``, T a multiple of ``hop``.

        They are the principal components of the last layer. Those of an untrained network are nearly one constant, in
        which a quantizer finds nothing.
        """
        project = self.encoder.project
        if isinstance(project, nn.Linear):
            found = self.encoder.layers(wave.unsqueeze(1)).mT.flatten(0, 1).double()
            mean = found.mean(0)
            spread, directions = torch.linalg.eigh((found - mean).mT @ (found - mean) / len(found))
            kept = directions.flip(1)[:, : self.dim].mT / spread.flip(0)[: self.dim].sum().sqrt()
            project.weight.copy_(kept)
            project.bias.copy_(-kept @ mean)

    @property
    def alignment(self) -> int:
        """A piece of a recording gives what the whole gives if it begins at a multiple of so many frames."""
        return self.config.memory if self.config.lstm_layers else 1

    @property
    def encoder_context(self) -> Context:
        """The vectors of samples around those of its own that a vector depends on."""
        samples = self.encoder.layers.reach(Reach(0, 0))
        return Context(-(samples.first // self.hop), samples.last // self.hop)

    @property
    def decoder_context(self) -> Context:
        """The vectors around its own that a vector's samples depend on."""
        vectors = self.decoder.layers.reach(Reach(0, self.hop - 1))
        return Context(-vectors.first, vectors.last)


def _started(convolution: _Convolution, summands: int) -> _Convolution:
    """With weight norm, and with weights that keep the level of their input, of which an output sums up so many.

    By torch's default a network so deep gives a constant, from its biases, with hardly any signal in it, and codebooks
    lose sight of vectors that move together.
    """
    nn.init.normal_(convolution.weight, std=summands**-0.5)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    return weight_norm(convolution)


def _recurrence(config: SeanetConfig, width: int) -> list[Layer]:
    return [Recurrence(width, config.lstm_layers, config.memory)] if config.lstm_layers else []
