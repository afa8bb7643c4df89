"""Rows of different lengths in one flat array: row i has the places ``starts[i]`` to before ``starts[i + 1]``."""

from dataclasses import dataclass
from functools import cached_property

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


@dataclass(frozen=True, eq=False)
class Ragged:
    """``n`` rows of whole numbers, one after the other."""

    values: Tensor
    """int64 ``(total,)``."""
    lengths: Tensor
    """int64 ``(n,)``."""

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.lengths)

    @cached_property
    def _starts(self) -> Ints:
        return starts(self.lengths.numpy())

    @classmethod
    def of(cls, filled: Tensor) -> "Ragged":
        """The rows of ``filled (n, width)``, without its negative numbers."""
        there = filled >= 0
        return cls(filled[there], there.sum(1))

    def without_negative(self) -> "Ragged":
        """The same rows without their negative numbers."""
        there = self.values >= 0
        owner = torch.repeat_interleave(torch.arange(len(self)), self.lengths)
        return Ragged(self.values[there], torch.bincount(owner[there], minlength=len(self)))

    def take(self, rows: Tensor) -> "Ragged":
        """The rows ``rows``, int64 ``(k,)``."""
        lengths = self.lengths[rows]
        _, place = ranges(self._starts[rows.numpy()], lengths.numpy())
        return Ragged(self.values[torch.from_numpy(place)], lengths)

    def left_filled(self) -> Tensor:
        """int64 ``(n, longest)``: the rows, filled with -1 from the left; one wide at least."""
        return last_of_each(self.values, self.lengths, max(1, int(self.lengths.max())) if len(self) else 1)

    def pieces(self, most: int, cells: int) -> list[Tensor]:
        """The places of all rows, int64, in pieces of about equal length, the shortest rows first.

        A piece has at most ``most`` rows, and filled to its longest row at most ``cells`` numbers; a longer row is a
        piece of its own.
        """
        order = self.lengths.argsort(stable=True)
        ascending, pieces, start = self.lengths[order].tolist(), [], 0
        while start < len(order):
            stop = min(start + most, len(order))
            while stop - start > 1 and (stop - start) * ascending[stop - 1] > cells:
                stop -= 1
            pieces.append(order[start:stop])
            start = stop
        return pieces


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
