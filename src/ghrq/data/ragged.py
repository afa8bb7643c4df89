"""Rows of different lengths in one flat array: row i has the places ``starts[i]`` to before ``starts[i + 1]``."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def starts(counts: Ints) -> Ints:
    """Where each row starts, and where the last one ends: ``counts (n,)`` -> ``(n + 1,)``."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


def ranges(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The numbers ``start[i] … start[i] + count[i] - 1`` for each i, concatenated; first, the i of each."""
    owner = np.repeat(np.arange(len(start)), count)
    return owner, np.arange(len(owner)) + (start - (np.cumsum(count) - count))[owner]
