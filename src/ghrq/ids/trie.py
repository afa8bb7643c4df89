"""All prefixes of the code tuples of a catalogue, as sorted tensors."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.ids.tuples import Codes
from ghrq.system.checks import at_least, check_codes


class Items(NamedTuple):
    """The items of ``B`` tuples: those of tuple b are ``items[indptr[b]:indptr[b + 1]]``."""

    indptr: Tensor
    """``(B + 1,)`` int64."""
    items: Tensor
    """int64: rows of the trie's codes, ascending for each tuple."""


class PrefixTrie:
    """All prefixes of the code tuples of ``n`` items, as sorted tensors.

    A node of depth m is a distinct prefix of m codes; the nodes of one depth are numbered from 0 in the order of their
    tuples, and the root is node 0 of depth 0. Each depth keeps one sorted tensor ``parent·size + code``, so a child is
    found by binary search and the children of a node are adjacent. Memory is at most about ``8·n·(num_stages + 1)``
    bytes.

    Args:
        codes: ``(n, num_stages)`` integers from 0 to below ``codebook_size``, a tensor or an array; several items
            may share a tuple.
        codebook_size: number of codes of each stage: one int for all, or one for each (an appended token has its own).

    Attributes:
        sizes: number of codes of each stage.
        codebook_size: the largest of them.

    """

    def __init__(self, codes: Codes, codebook_size: int | Sequence[int]) -> None:
        codes = torch.as_tensor(codes)
        if codes.dim() != 2 or 0 in codes.shape:
            raise ValueError(
                f"expected codes of shape (n, num_stages), neither of them 0, got shape {tuple(codes.shape)}"
            )
        self.num_items, self.num_stages = codes.shape
        self.sizes = tuple(codebook_size) if isinstance(codebook_size, Sequence) else (codebook_size,) * self.num_stages
        if len(self.sizes) != self.num_stages:
            raise ValueError(f"expected a codebook_size for each of {self.num_stages} stages, got {self.sizes}")
        for stage, size in enumerate(self.sizes):
            at_least("codebook_size", size, 1, whole=True)
            try:
                check_codes(codes[:, stage : stage + 1], 1, size)
            except ValueError as error:
                hint = "" if isinstance(codebook_size, Sequence) else "; or give a codebook_size for each stage"
                raise ValueError(f"stage {stage + 1} of {self.num_stages}: {error}{hint}") from error
        self.codebook_size = max(self.sizes)
        self._edges: list[Tensor] = []
        node = codes.new_zeros(self.num_items, dtype=torch.int64)
        for column, size in zip(codes.unbind(1), self.sizes, strict=True):
            edges, node = torch.unique(node * size + column, return_inverse=True)
            self._edges.append(edges)
        self._items = node.argsort(stable=True)
        self._indptr = torch.nn.functional.pad(torch.bincount(node).cumsum(0), (1, 0))

    @property
    def num_tuples(self) -> int:
        """Number of distinct tuples."""
        return len(self._edges[-1])

    def to(self, device: torch.device | str) -> "PrefixTrie":
        """The same trie on another device."""
        moved = copy.copy(self)
        moved._edges = [edges.to(device) for edges in self._edges]
        moved._items, moved._indptr = self._items.to(device), self._indptr.to(device)
        return moved

    def children(self, nodes: Tensor, depth: int) -> Tensor:
        """Which codes follow ``nodes (...)`` of ``depth``: ``(..., sizes[depth])`` bool."""
        edges, size = self._edges[depth], self.sizes[depth]
        low = nodes.flatten() * size
        first = torch.searchsorted(edges, low)
        count = torch.searchsorted(edges, low + size) - first
        owner, place = ranges(first, count)
        result = torch.zeros(len(low), size, dtype=torch.bool, device=low.device)
        result[owner, edges[place] - low[owner]] = True
        return result.view(*nodes.shape, size)

    def child(self, nodes: Tensor, codes: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The children of ``nodes (...)`` of ``depth`` under ``codes (...)``, and whether they exist (bool).

        Where a child does not exist, its node number is arbitrary.
        """
        edges, size = self._edges[depth], self.sizes[depth]
        wanted = nodes * size + codes
        place = torch.searchsorted(edges, wanted).clamp_(max=len(edges) - 1)
        # A code out of range would match another node's child.
        return place, (edges[place] == wanted) & (codes >= 0) & (codes < size)

    def walk(self, prefixes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes of ``prefixes (..., m)``, m from 0 to num_stages, and whether they exist: both ``(...)``."""
        if prefixes.dim() == 0 or prefixes.shape[-1] > self.num_stages:
            raise ValueError(
                f"expected prefixes of shape (..., m), m up to {self.num_stages}, got shape {tuple(prefixes.shape)}"
            )
        node = torch.zeros(prefixes.shape[:-1], dtype=torch.int64, device=prefixes.device)
        known = torch.ones_like(node, dtype=torch.bool)
        for depth, codes in enumerate(prefixes.unbind(-1)):
            node, found = self.child(node, codes, depth)
            known &= found
        return node, known

    def allowed_tokens(self, prefixes: Tensor) -> Tensor:
        """Which codes may follow ``prefixes (B, m)``, m below num_stages: ``(B, sizes[m])`` bool.

        All False after a prefix that no item has.
        """
        depth = prefixes.shape[-1]
        if depth >= self.num_stages:
            raise ValueError(f"no code follows a whole tuple: expected prefixes of less than {self.num_stages} codes")
        node, known = self.walk(prefixes)
        return self.children(node, depth) & known.unsqueeze(-1)

    def count(self, tuples: Tensor) -> Tensor:
        """Number of items of each of ``tuples (..., num_stages)``: ``(...)`` int64."""
        return self._leaves(tuples)[1]

    def items(self, tuples: Tensor) -> Items:
        """The items of each of ``tuples (B, num_stages)``."""
        start, count = self._leaves(tuples)
        indptr = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        return Items(indptr, self._items[ranges(start, count)[1]])

    def _leaves(self, tuples: Tensor) -> tuple[Tensor, Tensor]:
        """Where the items of each of ``tuples (..., num_stages)`` start, and how many there are: both ``(...)``."""
        if tuples.dim() == 0 or tuples.shape[-1] != self.num_stages:
            raise ValueError(f"expected tuples of shape (..., {self.num_stages}), got shape {tuple(tuples.shape)}")
        leaf, known = self.walk(tuples)
        return self._indptr[leaf], (self._indptr[leaf + 1] - self._indptr[leaf]) * known


def ranges(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers ``start[i] … start[i] + count[i] - 1`` for each i, concatenated; first, the i of each."""
    owner = torch.repeat_interleave(count)
    return owner, torch.arange(len(owner), device=owner.device) + (start - (count.cumsum(0) - count))[owner]
