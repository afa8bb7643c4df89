"""Pieces of recordings: random ones for training, fixed ones for validation. They are read when they are needed."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio.resample import Resampler
from ghrq.data.audio.speech import Recording
from ghrq.system.errors import UserError, require


class Crops:
    """Pieces of ``samples`` samples at ``rate`` of ``recordings``; short recordings are filled with zeros."""

    def __init__(self, recordings: Sequence[Recording], rate: int, samples: int) -> None:
        self.recordings, self.rate, self.samples = recordings, rate, samples
        seconds = np.array([recording.seconds for recording in recordings])
        if not seconds.sum() > 0.0:
            raise UserError(f"{recordings[0].path.parent} and other folders have only empty recordings: name others")
        self._chances = seconds / seconds.sum()

    def random(self, count: int, *seed: int) -> Tensor:
        """``(count, samples)``: recordings by their length, then any place in them; all as ``seed`` decides."""
        chance = np.random.default_rng(seed)
        chosen = chance.choice(len(self.recordings), count, p=self._chances)
        return torch.stack([self._piece(self.recordings[i], chance.random()) for i in chosen])

    def batches(self, size: int, seed: int, step: int = 0) -> Iterator[Tensor]:
        """Endless batches ``(size, samples)`` from ``step`` on; each depends on the seed and its step only."""
        while True:
            yield self.random(size, seed, step)
            step += 1

    def fixed(self, count: int) -> Tensor:
        """``(count, samples)``: the middle of ``count`` recordings, or of all if there are less, evenly spread."""
        places = np.linspace(0, len(self.recordings) - 1, min(count, len(self.recordings))).round().astype(int)
        return torch.stack([self._piece(self.recordings[i], 0.5) for i in places])

    def _piece(self, recording: Recording, place: float) -> Tensor:
        """A piece; ``place`` from 0, at the beginning, to 1, at the end."""
        wanted = -(-self.samples * recording.rate // self.rate)
        start = int(place * max(0, recording.frames - wanted + 1))
        soundfile = require("soundfile", "audio")
        try:
            found, _ = soundfile.read(
                recording.path, wanted, min(start, recording.frames), dtype="float32", always_2d=True
            )
        except (soundfile.SoundFileError, OSError) as error:
            raise UserError(f"{recording.path} cannot be read any more ({error}): restore it") from error
        mono = Resampler(recording.rate, self.rate, 1).push(found.mean(1, keepdims=True), last=True)[:, 0]
        if not np.isfinite(mono).all():
            raise UserError(f"{recording.path} has samples that are not finite: repair or remove it")
        piece = torch.zeros(self.samples)
        piece[: len(mono)] = torch.from_numpy(mono[: self.samples])
        return piece
