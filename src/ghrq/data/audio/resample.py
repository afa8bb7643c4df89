"""Sample rates: sound in blocks from one rate to another, with exact lengths."""

from typing import Any

import numpy as np

from ghrq.data.audio.files import Samples
from ghrq.system.errors import require


def resampled_length(length: int, rate: int, to: int) -> int:
    """``length`` samples at ``rate``, rounded up at the rate ``to``. There and back is never shorter."""
    return -(-length * to // rate)


class Resampler:
    """Blocks ``(n, channels)`` at ``rate`` to blocks at the rate ``to``, without delay between input and output.

    All blocks together have exactly :func:`resampled_length` samples. Equal rates leave the samples as they are.
    """

    def __init__(self, rate: int, to: int, channels: int) -> None:
        self.rate, self.to = rate, to
        self._stream: Any = None
        if rate != to:
            # VHQ: the pass band is to be flat, and the time is small against that of a network.
            self._stream = require("soxr", "audio").ResampleStream(rate, to, channels, "float32", "VHQ")
        self._given = self._returned = 0

    def push(self, block: Samples, last: bool = False) -> Samples:
        """The samples that are known after this block. After the ``last`` block, which may be empty, all are."""
        self._given += len(block)
        if self._stream is None:
            return block
        if last and not self._given:  # soxr has nothing to flush
            return block
        found: Samples = self._stream.resample_chunk(np.ascontiguousarray(block, dtype=np.float32), last=last)
        left = resampled_length(self._given, self.rate, self.to) - self._returned
        if last and len(found) < left:  # rounded down
            found = np.concatenate([found, np.zeros((left - len(found), block.shape[1]), np.float32)])
        found = found[:left]
        self._returned += len(found)
        return found
