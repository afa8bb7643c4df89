"""An inverted file: items grouped by the first codes of their IDs, which is the trie of IDs cut at one depth."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.ids.tuples import tuple_keys
from ghrq.search.decoder import Codes, Decoder

# Lists are split by one more code as long as they have this many items on average.
_ITEMS_A_LIST = 256

# Distances between queries and lists in memory at once.
_PAIRS = 2**24


@dataclass(frozen=True)
class Lists:
    """``n`` items in ``L`` lists; those of list l are the rows ``starts[l]`` to before ``starts[l + 1]``."""

    codes: Codes
    """``(n, N)`` in the smallest type, sorted by their first ``depth`` codes."""
    numbers: npt.NDArray[np.int64]
    """``(n,)`` the number of each item: its place in the order in which items were given."""
    names: Any
    """``(n,)`` an Arrow array of the items' ids."""
    norms: npt.NDArray[np.float32] | None
    """``(n,)`` the squared norms of the decoded vectors, for look-up tables; ``None`` if there are none."""
    starts: npt.NDArray[np.int64]
    """``(L + 1,)``."""
    depth: int
    """Number of first codes that all items of a list share."""

    @classmethod
    def of(cls, codes: Codes, numbers: npt.NDArray[np.int64], names: Any, decoder: Decoder) -> "Lists":
        """Sort items into lists. Within a list they stay in their order."""
        depth = _depth(codes, decoder.quantizer.sizes)
        keys = tuple_keys(codes[:, :depth], decoder.quantizer.sizes[:depth]).numpy()
        order = keys.argsort(kind="stable")
        keys, codes = keys[order], np.ascontiguousarray(codes[order])
        starts = np.append(np.flatnonzero(np.diff(keys, prepend=-1)), len(keys))
        norms = None if decoder.sum is None else _norms(codes, decoder)
        return cls(codes, numbers[order], names.take(order), norms, starts, depth)

    def __len__(self) -> int:
        """The number of lists."""
        return len(self.starts) - 1

    def centroids(self, decoder: Decoder) -> Tensor:
        """The decoded first codes of each list: ``(L, d)``, around the decoder's centre."""
        return decoder(self.codes[self.starts[:-1], : self.depth])

    def nearest(self, queries: Tensor, centroids: Tensor, probes: int) -> Tensor:
        """The ``probes`` lists nearest to each of ``queries (m, d)``, nearest first: ``(m, probes)`` int64."""
        norms = centroids.square().sum(1)
        parts = [
            torch.addmm(norms, part, centroids.T, alpha=-2.0).topk(probes, dim=1, largest=False).indices
            for part in queries.split(max(1, _PAIRS // len(centroids)))
        ]
        return torch.cat(parts)

    def chosen(self, keep: npt.NDArray[np.bool_]) -> tuple[Codes, npt.NDArray[np.int64], Any]:
        """Codes, numbers and names of some items, ``keep (n,)``, in the order of their numbers."""
        rows = np.flatnonzero(keep)
        rows = rows[self.numbers[rows].argsort()]
        return self.codes[rows], self.numbers[rows], self.names.take(rows)


def _depth(codes: Codes, sizes: tuple[int, ...]) -> int:
    """As many first codes as leave enough items for a list."""
    depth = 1
    while depth < len(sizes) and len(codes) >= _ITEMS_A_LIST * math.prod(sizes[: depth + 1]):
        depth += 1
    return depth


def _norms(codes: Codes, decoder: Decoder) -> npt.NDArray[np.float32]:
    norms = np.empty(len(codes), dtype=np.float32)
    for first in range(0, len(codes), 2**16):
        rows = slice(first, first + 2**16)
        norms[rows] = decoder(codes[rows]).square().sum(1).numpy()
    return norms
