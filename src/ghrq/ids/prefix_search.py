"""Items that share the most first codes, nearest first."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.data.arrays import ArrayRows
from ghrq.ids.trie import PrefixTrie, ranges

# Pairs of an item and a possible neighbour, and numbers of vectors, in memory at once.
_PAIRS, _NUMBERS = 2**20, 2**22


class Depth(NamedTuple):
    """All items sorted by their first m codes."""

    node: Tensor
    """``(n,)`` the prefix of each item, as its number in the trie."""
    order: Tensor
    """``(n,)`` rows in the order of their prefixes, ascending within a prefix."""
    indptr: Tensor
    """The rows of prefix p are ``order[indptr[p]:indptr[p + 1]]``."""


class PrefixSearch:
    """Neighbours among ``codes (n, num_stages)``, whose ``trie`` this is; ``points`` are their vectors, if known."""

    def __init__(self, codes: Tensor, trie: PrefixTrie, points: ArrayRows | None) -> None:
        self._codes, self._trie, self._points = codes, trie, points

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Number of neighbours (at most k) of each of the rows ``queries (B,)``, then their rows and shared lengths."""
        sizes = self._group_sizes(queries, k)
        chunks = (sizes.sum(1).cumsum(0) // _PAIRS).bincount(minlength=1).tolist()  # number of queries in each
        parts = [
            self._nearest(part, size, k) for part, size in zip(queries.split(chunks), sizes.split(chunks), strict=True)
        ]
        count, rows, shared = (torch.cat(column) for column in zip(*parts, strict=True))
        return count, rows, shared

    @cached_property
    def depths(self) -> list[Depth]:
        """For each number of codes."""
        node, depths = torch.zeros_like(self._codes[:, 0]), []
        for depth, column in enumerate(self._codes.unbind(1)):
            node, _ = self._trie.child(node, column, depth)
            ends = torch.bincount(node).cumsum(0)
            depths.append(Depth(node, node.argsort(stable=True), torch.nn.functional.pad(ends, (1, 0))))
        return depths

    def _group_sizes(self, queries: Tensor, k: int) -> Tensor:
        """How many rows of each prefix of ``queries (B,)`` may be among the k nearest: ``(B, num_stages)``.

        With vectors: all rows of a prefix, except of those shorter than the longest that k others share. Without: the
        first 2k, as these include the first k that share no longer prefix.
        """
        sizes = torch.stack([depth.indptr.diff()[depth.node[queries]] for depth in self.depths], dim=1)
        if self._points is None:
            return sizes.clamp(max=2 * k)
        enough = torch.nn.functional.pad(sizes[:, 1:] > k, (0, 1), value=False)
        return sizes.masked_fill(enough, 0)

    def _nearest(self, queries: Tensor, sizes: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """:meth:`nearest` of one chunk."""
        stages, pairs = self._codes.shape[1], []
        for shared, (depth, size) in enumerate(zip(self.depths, sizes.unbind(1), strict=True), start=1):
            owner, place = ranges(depth.indptr[depth.node[queries]], size)
            row, query = depth.order[place], queries[owner]
            fits = row != query
            if shared < stages:  # the others are among the pairs of the next depth
                deeper = self.depths[shared].node
                fits &= deeper[row] != deeper[query]
            pairs.append(torch.stack((owner, row, torch.full_like(row, shared)))[:, fits])
        found = torch.cat(pairs, dim=1)
        if self._points is not None:
            found = found[:, self._distances(queries[found[0]], found[1]).argsort(stable=True)]
        found = found[:, (found[0] * (stages + 1) - found[2]).argsort(stable=True)]
        count = torch.bincount(found[0], minlength=len(queries))
        first = count.cumsum(0) - count
        count = count.clamp(max=k)
        _, rows, shared_codes = found[:, ranges(first, count)[1]]
        return count, rows, shared_codes

    def _distances(self, first: Tensor, second: Tensor) -> Tensor:
        """Squared Euclidean distances of the vectors of rows ``first (P,)`` and ``second (P,)``."""
        assert self._points is not None
        size, parts = max(1, _NUMBERS // self._points.dim), []
        for one, other in zip(first.cpu().split(size), second.cpu().split(size), strict=True):
            x, y = (self._points.take(rows.numpy()) for rows in (one, other))
            parts.append((x - y).square().sum(1))
        return torch.cat(parts).to(first.device) if parts else torch.zeros(0, device=first.device)
