"""The transitive closure of a hierarchy, its splits for link prediction, and negative sampling.

A hierarchy is a set of edges ``(E, 2)``, rows of child and parent, over the nodes ``0 … size-1``. There may
be many roots, and a node may have several parents, but there must be no cycle.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ghrq.data.ragged import ranges, starts
from ghrq.data.wordnet import Nouns

Ints = npt.NDArray[np.int64]
Edges = npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Closure:
    """The ancestors of each node (parents included, itself not) as compressed sparse rows."""

    indptr: Ints
    """``(size+1,)``: the ancestors of node i are ``indices[indptr[i]:indptr[i+1]]``."""
    indices: Ints
    """``(M,)`` sorted within each row."""

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    def pairs(self) -> Ints:
        """All pairs ``(M, 2)`` of a node and an ancestor, sorted."""
        return np.stack((np.repeat(np.arange(self.size), np.diff(self.indptr)), self.indices), axis=1)

    def contains(self, nodes: npt.ArrayLike, ancestors: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each of ``ancestors (...)`` is an ancestor of its node in ``nodes (...)``; the shapes broadcast."""
        nodes, ancestors = np.asarray(nodes), np.asarray(ancestors)
        for given in (nodes, ancestors):
            if given.size and not 0 <= given.min() <= given.max() < self.size:
                raise ValueError(f"nodes are 0 to {self.size - 1}, got {given.min()} to {given.max()}")
        return _among(nodes.astype(np.int64) * self.size + ancestors, self._keys)

    @cached_property
    def _keys(self) -> Ints:
        return _keys(self.pairs(), self.size)


def wordnet_closure(nouns: Nouns, instances: bool = True) -> Closure:
    """The closure of WordNet's nouns: 743,241 pairs with the instances, 663,508 without them."""
    return closure(nouns.hypernyms(instances), len(nouns.names))


def closure(edges: Edges, size: int) -> Closure:
    """The transitive closure of ``edges (E, 2)`` over ``size`` nodes.

    Works from the roots down: once all parents of a node are done, its ancestors are its parents and their ancestors.
    """
    edges = _checked(edges, size)
    parents, children = _grouped(edges, size), _grouped(edges[:, ::-1], size)
    waiting = parents.counts.copy()  # parents of each node that are not done yet
    start, counts = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    found = np.empty(0, dtype=np.int64)  # the ancestors of the nodes that are done, in the order of processing
    level = np.flatnonzero(waiting == 0)
    while len(level):
        owner, parent = parents.take(level)
        via, above = _RaggedRows(start, counts, found).take(parent)
        keys = np.unique(np.concatenate((owner * size + parent, owner[via] * size + above)))
        counts[level] = np.bincount(keys // size, minlength=len(level))
        start[level] = len(found) + np.cumsum(counts[level]) - counts[level]
        found = np.concatenate((found, keys % size))
        child, parents_done = np.unique(children.take(level)[1], return_counts=True)
        waiting[child] -= parents_done
        level = child[waiting[child] == 0]
    if waiting.any():
        raise ValueError(f"the edges form a cycle, {_cycle(edges, waiting)}: remove one of them")
    _, indices = _RaggedRows(start, counts, found).take(np.arange(size))
    return Closure(starts(counts), indices)


class Split(NamedTuple):
    """Training and test pairs of a node and an ancestor."""

    name: str
    """``closure`` or ``direct``."""
    train: Ints
    """``(M1, 2)``."""
    test: Ints
    """``(M2, 2)``."""


def split_closure(closure: Closure, fraction: float = 0.15, seed: int = 42) -> Split:
    """Hold out a ``fraction`` of all pairs of the closure at random, as the paper does.

    Leaky by design: most held-out pairs follow from two training pairs (``ghrq.metrics.baselines`` measures how many).
    """
    _check_fraction(fraction)
    pairs = closure.pairs()
    order = np.random.default_rng(seed).permutation(len(pairs))
    cut = int(len(pairs) * (1.0 - fraction))
    return Split("closure", pairs[order[:cut]], pairs[order[cut:]])


def split_direct(edges: Edges, closure: Closure, fraction: float = 0.15, seed: int = 42) -> Split:
    """Hold out a ``fraction`` of the direct ``edges (E, 2)`` of a ``closure`` so that none leaks into training.

    Candidates are the edges (u, v) without a longer path from u to v. (A few edges of WordNet have one; they follow
    from other edges and stay in training.)

    Training pairs are the pairs (x, y) with a path from x up to y whose last edge was not held out. So (u, v) is
    missing, and so is (x, v) for all x below u that reach v only through u; otherwise v could be inferred from what
    u's children share. Pairs of u with the ancestors of v stay: without them, a leaf u would have no training pair.
    The training pairs are transitively closed, so no chain of them leads from u to v.

    An edge is put back where a node would otherwise be in no training pair, so the test set can be a little smaller.
    """
    _check_fraction(fraction)
    edges = _checked(edges, closure.size)
    if not closure.contains(edges[:, 0], edges[:, 1]).all():
        raise ValueError("the closure lacks some of the edges: give the closure of these edges")
    size, ancestors = closure.size, _RaggedRows(closure.indptr[:-1], np.diff(closure.indptr), closure.indices)
    via, above = ancestors.take(edges[:, 1])
    longer = np.unique(edges[via, 0] * size + above)
    candidates = edges[~_among(_keys(edges, size), longer)]
    order = np.random.default_rng(seed).permutation(len(candidates))
    test = candidates[order[: int(len(edges) * fraction)]]
    train = _train_without(test, edges, closure)
    lost = np.setdiff1d(edges, train)
    if len(lost):
        test = test[~np.isin(test, lost).any(axis=1)]
        train = _train_without(test, edges, closure)
    return Split("direct", train, test)


def _train_without(test: Ints, edges: Ints, closure: Closure) -> Ints:
    """The pairs with a path up whose last edge is not in ``test``."""
    size = closure.size
    kept = edges[~_among(_keys(edges, size), np.sort(_keys(test, size)))]
    pairs = closure.pairs()
    via, above = _grouped(kept, size).take(pairs[:, 1])
    keys = np.unique(np.concatenate((_keys(kept, size), pairs[via, 0] * size + above)))
    return np.stack((keys // size, keys % size), axis=1)


class Negatives(nn.Module):
    """Samples negatives of a node: uniform, with replacement, never the node itself or an ancestor.

    ``size`` is the closure's number of nodes. Descendants may be sampled. A module only so that ``to(device)`` moves
    its tables of ``size × (1 + most ancestors)`` numbers; they are not saved.
    """

    allowed: Tensor
    shifts: Tensor

    def __init__(self, closure: Closure, size: int) -> None:
        super().__init__()
        if size != closure.size:
            raise ValueError(f"the closure is over {closure.size} nodes, not size={size}: give its own number")
        nodes = np.arange(size)
        excluded = np.sort(_keys(np.concatenate((closure.pairs(), np.stack((nodes, nodes), axis=1))), size))
        row, node = excluded // size, excluded % size
        counts = np.bincount(row, minlength=size)
        place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        # The j-th excluded node e of a row has e - j allowed ones before it.
        shifts = np.full((size, int(counts.max(initial=0))), size)
        shifts[row, place] = node - place
        self.register_buffer("allowed", torch.from_numpy(size - counts), persistent=False)
        self.register_buffer("shifts", torch.from_numpy(shifts), persistent=False)

    @torch.no_grad()
    def forward(self, sources: Tensor, k: int, generator: torch.Generator | None = None) -> Tensor:
        """``k`` negatives for each of ``sources (B,)``: ``(B, k)`` int64, on the device of the sources.

        No sample is rejected: the r-th allowed node is r plus the number of excluded nodes before it.
        """
        allowed = self.allowed[sources].unsqueeze(1)
        if allowed.numel() and int(allowed.min()) < 1:
            node = int(sources[allowed.squeeze(1) < 1][0])
            raise ValueError(f"node {node} has no negative: all other nodes are its ancestors")
        # 53 random bits: rounding them to one of 82,115 ranks has no measurable bias.
        draw = torch.rand(len(sources), k, generator=generator, dtype=torch.float64, device=sources.device)
        rank = (draw * allowed).long()
        return rank + torch.searchsorted(self.shifts.index_select(0, sources), rank, right=True)

    @torch.no_grad()
    def allows(self, sources: Tensor, nodes: Tensor) -> Tensor:
        """Whether ``nodes (B, k)`` may be negatives of ``sources (B,)``: ``(B, k)`` bool."""
        shifts = self.shifts.index_select(0, sources)
        excluded = shifts + torch.arange(shifts.shape[1], device=shifts.device)
        place = torch.searchsorted(excluded, nodes.contiguous()).clamp_(max=shifts.shape[1] - 1)
        return excluded.gather(1, place) != nodes


class _RaggedRows(NamedTuple):
    """Rows of different lengths: row i is ``values[starts[i] : starts[i] + counts[i]]``."""

    starts: Ints
    counts: Ints
    values: Ints

    def take(self, rows: Ints) -> tuple[Ints, Ints]:
        """The values of ``rows (R,)``, row after row; first, the position in ``rows`` that each belongs to."""
        owner, place = ranges(self.starts[rows], self.counts[rows])
        return owner, self.values[place]


def _grouped(edges: Ints, size: int) -> _RaggedRows:
    """The second column of ``edges``, grouped by the first."""
    counts = np.bincount(edges[:, 0], minlength=size)
    return _RaggedRows(np.cumsum(counts) - counts, counts, edges[np.argsort(edges[:, 0], kind="stable"), 1])


def _keys(pairs: Ints, size: int) -> Ints:
    """Each pair as one number, in lexicographic order."""
    return pairs[:, 0] * size + pairs[:, 1]


def _among(wanted: Ints, keys: Ints) -> npt.NDArray[np.bool_]:
    """Whether each of ``wanted (...)`` is in the ascending ``keys``."""
    if not len(keys):
        return np.zeros(wanted.shape, dtype=bool)
    return keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted


def _checked(edges: Edges, size: int) -> Ints:
    """The edges as int64, sorted, without duplicates."""
    edges = np.asarray(edges)
    if edges.ndim != 2 or edges.shape[1] != 2 or not np.issubdtype(edges.dtype, np.integer):
        raise ValueError(f"edges are integers (E, 2), child and parent, got {edges.dtype} {edges.shape}")
    if edges.size and not 0 <= edges.min() <= edges.max() < size:
        raise ValueError(f"edges join nodes 0 to {size - 1}, got {edges.min()} to {edges.max()}: is size={size} right?")
    keys = np.unique(_keys(edges.astype(np.int64), size))
    return np.stack((keys // max(size, 1), keys % max(size, 1)), axis=1)


def _check_fraction(fraction: float) -> None:
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"the fraction held out is between 0 and 1, got {fraction}")


def _cycle(edges: Ints, waiting: Ints) -> str:
    """One cycle among the nodes that are not done, for the message: each of them has a parent that is not done."""
    stuck = edges[waiting[edges[:, 1]] > 0]
    parent_of = dict(stuck.tolist())
    path = [int(stuck[0, 0])]
    while path.count(path[-1]) < 2:
        path.append(parent_of[path[-1]])
    return " -> ".join(map(str, path[path.index(path[-1]) :]))
