"""Rows of different lengths in one flat array: row i has the places ``starts[i]`` to before ``starts[i + 1]``."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]


def starts(counts: Ints) -> Ints:
    """Where each row starts, and where the last one ends: ``counts (n,)`` -> ``(n + 1,)``."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


def ranges(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The numbers ``start[i] … start[i] + count[i] - 1`` for each i, concatenated; first, the i of each."""
    owner = np.repeat(np.arange(len(start)), count)
    return owner, np.arange(len(owner)) + (start - (np.cumsum(count) - count))[owner]


def last_of_each(values: Tensor, lengths: Tensor, width: int) -> Tensor:
    """The last ``width`` numbers of each row, int64 ``(n, width)``, filled with -1 from the left.

    ``values (total,)`` are the rows one after the other, ``lengths (n,)`` their lengths.
    """
    ends = lengths.cumsum(0)
    place = ends.unsqueeze(1) - torch.arange(width, 0, -1)
    inside = place >= (ends - lengths).unsqueeze(1)
    # An entry more, so that there is one even if all rows are empty.
    padded = torch.cat((values, values.new_full((1,), -1)))
    return torch.where(inside, padded[place.clamp(min=0)], -1)
