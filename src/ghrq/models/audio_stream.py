"""Sound to codes and back piece by piece: any length at constant memory, or in real time.

A stream computes a block of frames at a time together with the frames around it that they depend on, the codec's
``context``. So the pieces are those of the whole: zeros stand only before the first and after the last sample.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.models.audio_codec import AudioCodec, check_samples, check_stages
from ghrq.system.checks import at_least, check_codes, is_tensor

# Frames computed at a time: those around them are a small part of the work then, and the memory is some 100 MB.
BLOCK = 500


class StreamState(NamedTuple):
    """What a stream remembers between two calls: to go on later, in another process or on another machine."""

    kept: Tensor
    """The last input, of which some is still needed: samples ``(B, n)``, or codes ``(B, n, depth)``."""
    before: int
    """Frames at its beginning that are done, and only there as context."""


torch.serialization.add_safe_globals([StreamState])  # so that torch.load reads what torch.save wrote


class _Stream:
    """Input in pieces, computed in blocks of frames. The input has ``unit`` elements for each frame."""

    def __init__(self, codec: AudioCodec, empty: Tensor, unit: int, block: int, state: StreamState | None) -> None:
        at_least("block", block, 1, whole=True)
        at_least("batch", empty.shape[0], 1, whole=True)
        self.codec, self.block = codec, block
        self._unit, self._empty = unit, empty
        if state is not None and (state.kept.dtype != empty.dtype or not self._fits(state.kept)):
            raise ValueError(
                f"state is that of another stream: expected {empty.dtype} of shape {self._shape}, "
                f"got {state.kept.dtype} of shape {tuple(state.kept.shape)}"
            )
        self._kept, self._before = state or StreamState(empty, 0)

    @property
    def state(self) -> StreamState:
        """What to give to a new stream that goes on from here."""
        return StreamState(self._kept, self._before)

    def _take(self, given: Tensor | None) -> list[Tensor]:
        """The results of all blocks that are complete with this input; at the end (``None``), of all that is left."""
        (left, right), step = self.codec.context, self.codec.alignment
        ended, found = given is None, list[Tensor]()
        if given is not None:
            is_tensor(f"a piece of shape {self._shape}", given)
            if not self._fits(given):
                raise ValueError(f"expected a piece of shape {self._shape}, got {tuple(given.shape)}")
            self._check(given)
            given = given.to(self._empty.dtype)
            self._kept = torch.cat((self._kept, given), dim=1) if self._kept.shape[1] else given
        while True:
            # A started frame is complete at the end only, where zeros follow.
            there = -(-self._kept.shape[1] // self._unit) if ended else self._kept.shape[1] // self._unit
            ready = there - self._before - (0 if ended else right)
            if ready < (1 if ended else self.block):
                break
            stop = self._before + min(ready, self.block)
            seen = self._kept[:, : (stop + right) * self._unit]
            found.append(self._compute(seen, self._before, stop))
            first = max(0, stop - left) // step * step
            self._kept, self._before = self._kept[:, first * self._unit :], stop - first
        if ended:
            self._kept, self._before = self._empty, 0
        else:
            self._kept = self._kept.clone() if found else self._kept  # not a view of a long input
        return found

    @property
    def _shape(self) -> str:
        return f"({', '.join(map(str, (self._empty.shape[0], 'n', *self._empty.shape[2:])))})"

    def _fits(self, given: Tensor) -> bool:
        return given.dim() == self._empty.dim() and given[:, :0].shape == self._empty.shape

    def _check(self, given: Tensor) -> None:
        """Raise an error if the values are wrong: before they are kept, so that the stream can go on without them."""
        raise NotImplementedError

    def _compute(self, seen: Tensor, start: int, stop: int) -> Tensor:
        raise NotImplementedError


class EncodeStream(_Stream):
    """Samples to codes.

    >>> stream = EncodeStream(codec)
    >>> parts = [stream.push(piece) for piece in pieces]  # (1, n) at the codec's rate -> (1, frames, stages), maybe 0
    >>> codes = torch.cat([*parts, stream.finish()], dim=1)  # those of codec.encode of the whole

    Args:
        codec: the model.
        batch: channels or recordings side by side.
        stages: codes of a frame, by default all.
        beam: as in :meth:`AudioCodec.encode`.
        block: frames computed at a time. 1 has the least delay, and is the slowest.
        state: of a stream with the same settings, to go on from there.

    """

    def __init__(
        self,
        codec: AudioCodec,
        batch: int = 1,
        *,
        stages: int | None = None,
        beam: int = 4,
        block: int = BLOCK,
        state: StreamState | None = None,
    ) -> None:
        super().__init__(codec, torch.zeros(batch, 0), codec.hop, block, state)
        at_least("beam", beam, 1, whole=True)
        self.stages, self.beam = check_stages(codec, stages), beam

    @property
    def latency(self) -> int:
        """Samples from the first one of a frame until its codes are there, at most."""
        return (self.block + self.codec.context.right) * self.codec.hop

    def push(self, wave: Tensor) -> Tensor:
        """Codes ``(B, frames, stages)`` that are complete with these samples ``(B, n)``."""
        return torch.cat([self._none, *self._take(wave)], dim=1)

    def finish(self) -> Tensor:
        """The last codes. The stream is as new afterwards."""
        return torch.cat([self._none, *self._take(None)], dim=1)

    @property
    def _none(self) -> Tensor:
        return torch.zeros(self._empty.shape[0], 0, self.stages, dtype=torch.int64)

    def _check(self, given: Tensor) -> None:
        check_samples(given, (2,))

    @torch.no_grad()
    def _compute(self, seen: Tensor, start: int, stop: int) -> Tensor:
        device = self.codec.quantizer.codebooks.device
        z = self.codec.latents(seen.to(device))[:, start:stop]
        return self.codec.quantizer.encode(z, self.stages, self.beam).cpu()


class DecodeStream(_Stream):
    """Codes to samples; the arguments are those of :class:`EncodeStream`, ``depth`` is the number of codes of a frame.

    >>> stream = DecodeStream(codec, depth=4)
    >>> parts = [stream.push(codes) for codes in pieces]  # (1, n, 4) -> (1, samples), maybe 0
    >>> wave = torch.cat([*parts, stream.finish()], dim=1)  # that of codec.decode of the whole
    """

    def __init__(
        self,
        codec: AudioCodec,
        batch: int = 1,
        *,
        depth: int | None = None,
        block: int = BLOCK,
        state: StreamState | None = None,
    ) -> None:
        empty = torch.zeros(batch, 0, check_stages(codec, depth), dtype=torch.int64)
        super().__init__(codec, empty, 1, block, state)

    @property
    def latency(self) -> int:
        """Samples of codes that must follow those of a frame until its samples are there, at most."""
        return (self.block - 1 + self.codec.context.right) * self.codec.hop

    def push(self, codes: Tensor) -> Tensor:
        """Samples ``(B, n)`` that are complete with these codes ``(B, frames, depth)``."""
        return torch.cat([self._none, *self._take(codes)], dim=1)

    def finish(self) -> Tensor:
        """The last samples, up to a whole number of frames. The stream is as new afterwards."""
        return torch.cat([self._none, *self._take(None)], dim=1)

    @property
    def _none(self) -> Tensor:
        return torch.zeros(self._empty.shape[0], 0)

    def _check(self, given: Tensor) -> None:
        check_codes(given, self.codec.quantizer.num_stages, self.codec.config.codes, unused=True)

    @torch.no_grad()
    def _compute(self, seen: Tensor, start: int, stop: int) -> Tensor:
        hop, device = self.codec.hop, self.codec.quantizer.codebooks.device
        z_hat = self.codec.quantizer.decode(seen.to(device))
        return self.codec.waveform(z_hat)[:, start * hop : stop * hop].cpu()


class Streams(NamedTuple):
    """Both ways, as :meth:`AudioCodec.stream` gives them."""

    encoder: EncodeStream
    decoder: DecodeStream
