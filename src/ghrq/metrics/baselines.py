"""Baselines of link prediction in a hierarchy, without a model.

Both rank by how often a node is an ancestor in training (equal counts: the lower index first), and both count test
pairs (u, v) with v among the first k of u's list. *Filtered* means that the training ancestors of u are first removed
from its list, since they are known and cannot be the answer.

On the closure split of WordNet 3.0 (15 % held out, mean of seeds 0 to 4, spread ±0.15, in %, k = 10):

==================  =======================  =======================  =========
closure             popularity               composition              reachable
                    unfiltered    filtered   unfiltered    filtered
==================  ==========  ===========  ==========  ===========  =========
hypernyms only            41.1         44.5        80.3         84.3       84.3
with instances            41.6         44.5        80.1         84.4       84.4
==================  ==========  ===========  ==========  ===========  =========

The figures quoted elsewhere, 41 and 80, are the unfiltered ones. Compare a filtered score with the filtered ones: lists
without the training ancestors are shorter than ten, so composition then finds all that is reachable. On the direct
split composition finds nothing: 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.closure import Edges, Ints, closure
from ghrq.system.checks import stage_sizes


class Recall(NamedTuple):
    """Fractions of the test pairs whose ancestor is found."""

    unfiltered: float
    """Among the first k of the list."""
    filtered: float
    """Among the first k of the list without the training ancestors."""
    reachable: float
    """Anywhere in the list: no k reaches more."""


def popularity_recall(train: Edges, test: Edges, k: int = 10) -> Recall:
    """The same list for every node: all ancestors in training, the most frequent first.

    ``train (M1, 2)`` and ``test (M2, 2)`` are pairs of a node and an ancestor.
    """
    size = 1 + max((int(pairs.max()) for pairs in (train, test) if len(pairs)), default=0)
    train, test = _checked(train, test, size, k)
    ranks, known = _ranks(train, size)
    nodes, rank = test[:, 0], ranks[test[:, 1]]
    listed = known[test[:, 1]]
    before = _count_before(_by_rank(train, ranks, size), nodes, rank, size)
    return _recall(listed, rank, rank - before, k)


def composition_recall(train: Edges, test: Edges, size: int, k: int = 10) -> Recall:
    """The list of u: all nodes that chains of training pairs reach from u, the most frequent ancestor first.

    ``train (M1, 2)`` and ``test (M2, 2)`` are pairs of a node and an ancestor among ``size`` nodes. The list includes
    chains of one pair, the training ancestors themselves; filtering removes them.
    """
    train, test = _checked(train, test, size, k)
    ranks, _ = _ranks(train, size)
    nodes, rank = test[:, 0], ranks[test[:, 1]]
    reached = closure(train, size)
    listed = reached.contains(nodes, test[:, 1])
    place = _count_before(_by_rank(reached.pairs(), ranks, size), nodes, rank, size)
    before = _count_before(_by_rank(train, ranks, size), nodes, rank, size)
    return _recall(listed, place, place - before, k)


def random_codes(count: int, codebook_size: int | Sequence[int], num_stages: int, seed: int) -> Tensor:
    """A distinct random tuple for each of ``count`` things, ``(count, num_stages)`` int64: codes that know nothing."""
    sizes = stage_sizes(codebook_size, num_stages)
    random, tuples = np.random.default_rng(seed), math.prod(sizes)
    if tuples < count:
        raise ValueError(f"codebook_size and num_stages allow only {tuples:,} tuples for {count:,}: raise one of them")
    numbers = np.unique(random.integers(tuples, size=2 * count))
    while len(numbers) < count:
        numbers = np.unique(np.concatenate((numbers, random.integers(tuples, size=count))))
    numbers = random.permutation(numbers)[:count]
    return torch.from_numpy(np.stack([numbers // math.prod(sizes[:i]) % size for i, size in enumerate(sizes)], axis=1))


def _recall(listed: npt.NDArray[np.bool_], place: Ints, filtered_place: Ints, k: int) -> Recall:
    """From the positions (from 0) of the test ancestors and whether they are ``listed`` at all, each ``(M2,)``."""
    return Recall(
        float((listed & (place < k)).mean()), float((listed & (filtered_place < k)).mean()), float(listed.mean())
    )


def _ranks(train: Ints, size: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The rank ``(size,)`` of each node by its frequency as an ancestor, and whether it is one at all."""
    frequency = np.bincount(train[:, 1], minlength=size)
    ranks = np.empty(size, dtype=np.int64)
    ranks[np.argsort(-frequency, kind="stable")] = np.arange(size)
    return ranks, frequency > 0


def _by_rank(pairs: Ints, ranks: Ints, size: int) -> Ints:
    """Each pair as one number, sorted by the node and then by the rank of its ancestor."""
    return np.unique(pairs[:, 0] * size + ranks[pairs[:, 1]])


def _count_before(keys: Ints, nodes: Ints, rank: Ints, size: int) -> Ints:
    """Number of ancestors of each node, in ``keys`` of :func:`_by_rank`, with a smaller rank: ``(M2,)``."""
    return np.searchsorted(keys, nodes * size + rank) - np.searchsorted(keys, nodes * size)


def _checked(train: Edges, test: Edges, size: int, k: int) -> tuple[Ints, Ints]:
    for name, pairs in (("train", train), ("test", test)):
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
            raise ValueError(f"{name} is pairs (M, 2) of a node and an ancestor, at least one, got {pairs.shape}")
        if not 0 <= pairs.min() <= pairs.max() < size:
            raise ValueError(f"nodes of {name} are 0 to {size - 1}, got {pairs.min()} to {pairs.max()}")
    if k < 1:
        raise ValueError(f"k is at least 1, got {k}")
    return train.astype(np.int64), test.astype(np.int64)
