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
    found by binary search and the children of a node are adjacent. Memory is at most about ``24·n·(num_stages + 1)``
    bytes.

    Examples:
        >>> trie = ghrq.ids.PrefixTrie(torch.tensor([[0, 1], [0, 2], [3, 1]]), codebook_size=4)
        >>> trie.num_items, trie.num_stages, trie.sizes
        (3, 2, (4, 4))

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
        self._codes: list[Tensor] = []  # the last code of each node
        self._starts: list[Tensor] = []  # the items of a node are _items[start : start of the next node]
        node = codes.new_zeros(self.num_items, dtype=torch.int64)
        for column, size in zip(codes.unbind(1), self.sizes, strict=True):
            edges, node = torch.unique(node * size + column, return_inverse=True)
            self._edges.append(edges)
            self._codes.append(edges % size)
            self._starts.append(torch.nn.functional.pad(torch.bincount(node).cumsum(0), (1, 0)))
        self._items = node.argsort(stable=True)
        self._mask: Tensor | None = None
        self._alive: list[Tensor] = []  # of a restricted trie: which nodes have an item

    @property
    def num_tuples(self) -> int:
        """Number of distinct tuples."""
        return len(self._edges[-1])

    def to(self, device: torch.device | str) -> "PrefixTrie":
        """The same trie on another device."""
        moved = copy.copy(self)
        moved._edges, moved._codes, moved._starts, moved._alive = (
            [tensor.to(device) for tensor in tensors]
            for tensors in (self._edges, self._codes, self._starts, self._alive)
        )
        moved._items = self._items.to(device)
        moved._mask = None if self._mask is None else self._mask.to(device)
        return moved

    def restrict(self, mask: Tensor) -> "PrefixTrie":
        """The same trie without some items: a prefix is there only if one of its items is.

        Nodes keep their numbers, and ``num_items`` and ``num_tuples`` stay those of the whole trie.

        Args:
            mask: bool, which items are allowed: ``(n,)``, or ``(B, n)`` for B requests, each with its own items. Then
                the first dimension of all nodes and tuples must be B.

        """
        if mask.dtype != torch.bool or mask.dim() not in (1, 2) or mask.shape[-1] != self.num_items:
            raise ValueError(
                f"expected a bool mask of shape ({self.num_items},) or (B, {self.num_items}), one value for each item, "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        restricted = copy.copy(self)
        mask = mask.to(self._items.device)
        restricted._mask = mask if self._mask is None else mask & self._mask
        before = restricted._mask[..., self._items].cumsum(-1, dtype=torch.int32)
        before = torch.nn.functional.pad(before, (1, 0))
        restricted._alive = [before[..., starts].diff(dim=-1) > 0 for starts in self._starts]
        return restricted

    def span(self, nodes: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The children of ``nodes (...)`` of ``depth``, in the whole trie: the first one, and how many; both ``(...)``.

        The children of a node have consecutive numbers.
        """
        edges, low = self._edges[depth], nodes * self.sizes[depth]
        first = torch.searchsorted(edges, low)
        return first, torch.searchsorted(edges, low + self.sizes[depth]) - first

    def last_code(self, nodes: Tensor, depth: int) -> Tensor:
        """The last code of the prefixes ``nodes (...)`` of ``depth``, 1 or more: ``(...)`` int64."""
        return self._codes[depth - 1][nodes]

    def num_nodes(self, depth: int) -> int:
        """Number of distinct prefixes of ``depth`` codes."""
        return len(self._edges[depth - 1]) if depth else 1

    def children(self, nodes: Tensor, depth: int) -> Tensor:
        """Which codes follow ``nodes (...)`` of ``depth``: ``(..., sizes[depth])`` bool."""
        size, flat = self.sizes[depth], nodes.flatten()
        owner, place = ranges(*self.span(flat, depth))
        result = torch.zeros(len(flat), size, dtype=torch.bool, device=flat.device)
        result[owner, self._codes[depth][place]] = self.has_items(
            place, owner // self._requests(nodes.shape), depth + 1
        )
        return result.view(*nodes.shape, size)

    def child(self, nodes: Tensor, codes: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The children of ``nodes (...)`` of ``depth`` under ``codes (...)``, and whether they exist (bool).

        Where a child does not exist, its node number is arbitrary.
        """
        edges, size = self._edges[depth], self.sizes[depth]
        wanted = nodes * size + codes
        place = torch.searchsorted(edges, wanted).clamp_(max=len(edges) - 1)
        # A code out of range would match another node's child.
        found = (edges[place] == wanted) & (codes >= 0) & (codes < size)
        if self._mask is not None:
            owner = torch.arange(place.numel(), device=place.device) // self._requests(place.shape)
            found &= self.has_items(place.flatten(), owner, depth + 1).view(place.shape)
        return place, found

    def has_items(self, nodes: Tensor, requests: Tensor, depth: int) -> Tensor:
        """Which of ``nodes (R,)`` of ``depth``, 1 or more, have an item: ``(R,)`` bool; all, unless it is restricted.

        ``requests (R,)`` int64: the request that each node is of, if each request has its own items.
        """
        if self._mask is None:
            return torch.ones_like(nodes, dtype=torch.bool)
        alive = self._alive[depth - 1]
        return alive[nodes] if alive.dim() == 1 else alive[requests, nodes]

    def _requests(self, shape: torch.Size) -> int:
        """How many nodes of ``shape`` there are for each request."""
        if self._mask is not None and self._mask.dim() == 2 and shape[:1] != self._mask.shape[:1]:
            count = len(self._mask)
            raise ValueError(f"the trie is restricted for {count} requests, got nodes of shape {tuple(shape)}")
        return max(1, shape[1:].numel())

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

    def path(self, tuples: Tensor) -> Tensor:
        """The nodes of all prefixes of ``tuples (..., num_stages)``, which must be in the trie.

        ``(..., num_stages + 1)`` int64: the root first, the whole tuples last.
        """
        node = torch.zeros(tuples.shape[:-1], dtype=torch.int64, device=tuples.device)
        nodes = [node]
        for depth, codes in enumerate(tuples.unbind(-1)):
            node, found = self.child(node, codes, depth)
            if not found.all():
                raise ValueError(f"{int((~found).sum())} of {found.numel()} tuples are not in the trie")
            nodes.append(node)
        return torch.stack(nodes, dim=-1)

    def first_item(self, leaves: Tensor) -> Tensor:
        """The first item of whole tuples, given as their nodes ``(...)``: ``(...)`` int64."""
        return self._items[self._starts[-1][leaves]]

    def count(self, tuples: Tensor) -> Tensor:
        """Number of items of each of ``tuples (..., num_stages)``: ``(...)`` int64."""
        if self._mask is not None:
            return self.items(tuples.flatten(0, -2)).indptr.diff().view(tuples.shape[:-1])
        return self._leaves(tuples)[1]

    def items(self, tuples: Tensor) -> Items:
        """The items of each of ``tuples (B, num_stages)``."""
        start, count = self._leaves(tuples)
        owner, place = ranges(start, count)
        items = self._items[place]
        if self._mask is not None:
            kept = self._mask[items] if self._mask.dim() == 1 else self._mask[owner, items]
            items, count = items[kept], torch.bincount(owner[kept], minlength=len(tuples))
        return Items(torch.nn.functional.pad(count.cumsum(0), (1, 0)), items)

    def _leaves(self, tuples: Tensor) -> tuple[Tensor, Tensor]:
        """Where the items of each of ``tuples (..., num_stages)`` start, and how many there are: both ``(...)``."""
        if tuples.dim() == 0 or tuples.shape[-1] != self.num_stages:
            raise ValueError(f"expected tuples of shape (..., {self.num_stages}), got shape {tuple(tuples.shape)}")
        leaf, known = self.walk(tuples)
        starts = self._starts[-1]
        return starts[leaf], (starts[leaf + 1] - starts[leaf]) * known


def ranges(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers ``start[i] … start[i] + count[i] - 1`` for each i, concatenated; first, the i of each."""
    owner = torch.repeat_interleave(count)
    return owner, torch.arange(len(owner), device=owner.device) + (start - (count.cumsum(0) - count))[owner]
