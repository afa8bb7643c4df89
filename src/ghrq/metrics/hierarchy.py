"""Codes and a hierarchy: how many things share a tuple, and how alike those that do are.

An average over groups that share a tuple says little by itself: what counts is how far it is above groups of the same
sizes drawn at random, and how many groups there are. :func:`group_similarity` gives all of that for any measure of
pairs: :func:`path_similarity` and :func:`wu_palmer_similarity` in the hierarchy, :func:`cosine_similarity` of vectors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Measure = Callable[[Ints], Floats]

# Pairs worked on at a time.
_CHUNK = 2**17


# --- tuples that are shared ----------------------------------------------------------------------------------


class Groups(NamedTuple):
    """Groups of things: those of group g are ``members[indptr[g]:indptr[g + 1]]``."""

    indptr: Ints
    members: Ints


def tuple_ids(codes: npt.ArrayLike) -> Ints:
    """``codes (n, N)`` -> ``(n,)``: the same number, from 0 on, for the same tuple."""
    table = np.asarray(codes)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise ValueError(f"expected codes as integers (n, N), got {table.dtype} of shape {table.shape}")
    ids = np.zeros(len(table), dtype=np.int64)
    for column in table.T.astype(np.int64):
        # Codes are made small first, so that a product of two numbers below n never overflows.
        _, code = np.unique(column, return_inverse=True)
        _, ids = np.unique(ids * len(table) + code, return_inverse=True)
    return ids


def distinct_tuples(codes: npt.ArrayLike, subset: npt.ArrayLike | None = None) -> int:
    """How many distinct tuples all things have, or those of ``subset`` (row numbers)."""
    table = np.asarray(codes)
    return len(np.unique(tuple_ids(table if subset is None else table[np.asarray(subset)])))


def uniqueness(codes: npt.ArrayLike) -> float:
    """Distinct tuples over things: 1 if no two things share one."""
    return distinct_tuples(codes) / len(np.asarray(codes))


def colliding_groups(codes: npt.ArrayLike) -> Groups:
    """The things of every tuple that two or more share."""
    ids = tuple_ids(codes)
    sizes = np.bincount(ids)
    members = np.argsort(ids, kind="stable")
    shared = sizes[sizes > 1]
    return Groups(_starts(shared), members[sizes[ids[members]] > 1])


# --- similarity in a hierarchy -------------------------------------------------------------------------------


class Ancestry(NamedTuple):
    """Every node's ancestors, itself included, with their distances: ``n`` nodes."""

    indptr: Ints
    """``(n + 1,)`` the ancestors of node i are at ``indptr[i]:indptr[i + 1]``, in rising order."""
    ancestors: Ints
    distance: Ints
    """The edges on the shortest way up."""
    min_depth: Ints
    """``(n,)`` edges on the shortest way to a root."""
    max_depth: Ints
    """``(n,)`` edges on the longest way to a root."""
    order: Ints
    """``(n,)`` the place of each node in the order of names."""
    keys: Ints
    """``node·n + ancestor``, rising."""


def ancestry(edges: npt.ArrayLike, size: int, names: Sequence[str] | None = None) -> Ancestry:
    """From ``edges (E, 2)``, rows of child and parent, over ``size`` nodes without a circle.

    ``names`` are needed for one thing only: Wu–Palmer similarity takes the first by name of equally deep common
    ancestors, as NLTK does. Without them, it is the one with the lowest number.
    """
    child, parent = np.unique(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=0).T
    if len(child) and not 0 <= min(child.min(), parent.min()) <= max(child.max(), parent.max()) < size:
        raise ValueError(f"edges must join nodes from 0 to {size - 1}")
    if names is not None and len(names) != size:
        raise ValueError(f"expected {size} names, one for each node, got {len(names)}")
    parents = np.bincount(child, minlength=size)
    start = _starts(parents)
    min_depth, max_depth = np.full(size, -1), np.zeros(size, dtype=np.int64)
    keys = np.arange(size) * (size + 1)
    levels = []
    # Level d: all (node, ancestor) with a way of exactly d edges. A pair's first level is its distance.
    while len(keys):
        levels.append(keys)
        node, ancestor = keys // size, keys % size
        if len(levels) > 1 and (node == ancestor).any():
            raise ValueError(f"the edges go round in a circle through node {node[node == ancestor][0]}: remove one")
        max_depth[node] = len(levels) - 1
        arrived = node[parents[ancestor] == 0]
        min_depth[arrived] = np.where(min_depth[arrived] < 0, len(levels) - 1, min_depth[arrived])
        owner, place = _ranges(start[ancestor], parents[ancestor])
        keys = np.unique(node[owner] * size + parent[place])
    every = np.concatenate(levels)
    level = np.repeat(np.arange(len(levels)), [len(found) for found in levels])
    keys, first = np.unique(every, return_index=True)
    order = np.arange(size) if names is None else np.argsort(np.argsort(np.asarray(names), kind="stable"))
    indptr = _starts(np.bincount(keys // size, minlength=size))
    return Ancestry(indptr, keys % size, level[first], min_depth, max_depth, order, keys)


def path_distance(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """Edges on the shortest way up from one node of ``pairs (P, 2)`` and down to the other; infinity without any."""

    def nearest(a: Ints, b: Ints) -> Floats:
        start, _, _, distance = _common(tree, a, b)
        return np.minimum.reduceat(distance, start)

    return _by_chunks(nearest, pairs)


def path_similarity(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """``1 / (1 + path distance)`` of ``pairs (P, 2)``, as NLTK's; NaN where there is no common ancestor."""
    distance = path_distance(tree, pairs)
    return np.where(np.isinf(distance), np.nan, 1.0 / (1.0 + distance))


def wu_palmer_similarity(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """``2·depth / (way of a + way of b + 2·depth)`` of ``pairs (P, 2)``; NaN where there is no common ancestor.

    As NLTK's ``wup_similarity``: the subsumer is the common ancestor with the largest *shortest* way to a root (of
    several, the first of the pair if it is one of them, else the first by name), its depth is the *longest* way to
    a root plus 1, and the ways are path distances to it. So it is not always symmetric.
    """

    def similarity(a: Ints, b: Ints) -> Floats:
        start, owner, ancestor, distance = _common(tree, a, b)
        size = len(tree.order)
        preference = np.where(ancestor == a[owner], size, size - 1 - tree.order[ancestor])
        value = np.where(np.isinf(distance), -1, tree.min_depth[ancestor] * (size + 1) + preference)
        best = np.maximum.reduceat(value, start)
        exists, preference = best >= 0, best % (size + 1)
        subsumer = np.where(preference == size, a, np.argsort(tree.order)[np.minimum(size - 1 - preference, size - 1)])
        subsumer = np.where(exists, subsumer, a)
        depth = tree.max_depth[subsumer] + 1
        ways = sum(path_distance(tree, np.stack((end, subsumer), axis=1)) for end in (a, b))
        return np.where(exists, 2.0 * depth / (ways + 2.0 * depth), np.nan)

    return _by_chunks(similarity, pairs)


def cosine_similarity(vectors: npt.ArrayLike, pairs: npt.ArrayLike) -> Floats:
    """The cosine of the vectors ``(n, d)`` of ``pairs (P, 2)``; NaN where one is NaN or 0."""
    table = np.asarray(vectors, dtype=np.float64)
    length = np.sqrt((table * table).sum(1, keepdims=True))
    unit = np.divide(table, length, out=np.full_like(table, np.nan), where=length > 0)
    return _by_chunks(lambda a, b: np.einsum("pd,pd->p", unit[a], unit[b]), pairs)


# --- groups against random groups ----------------------------------------------------------------------------


class Similarity(NamedTuple):
    """Averages of a measure over pairs of things that are in one group."""

    pooled: float
    """Over all pairs, where large groups dominate; NaN without any."""
    by_group: float
    """Over groups, of the averages within them."""
    groups: int
    """How many groups have a pair that could be measured."""
    pairs: int
    """How many pairs were measured."""
    skipped: int
    """How many could not be: no common ancestor, no known word."""


class GroupSimilarity(NamedTuple):
    """Groups that share a tuple, and groups of the same sizes drawn at random."""

    shared: Similarity
    random: Similarity


def group_similarity(codes: npt.ArrayLike, measure: Measure, limit: int = 50, seed: int = 42) -> GroupSimilarity:
    """How alike things are that share a tuple of ``codes (n, N)``, by a ``measure`` of pairs ``(P, 2) -> (P,)``.

    All pairs within a group count, of at most ``limit`` members, drawn at random. The reference cuts a random order
    of all things into groups of the same sizes.
    """
    groups = colliding_groups(codes)
    chance = np.random.default_rng(seed)
    random = Groups(groups.indptr, chance.permutation(len(np.asarray(codes)))[: len(groups.members)])
    return GroupSimilarity(*(_average(measure, *group_pairs(g, limit, chance)) for g in (groups, random)))


def group_pairs(groups: Groups, limit: int, chance: np.random.Generator) -> tuple[Ints, Ints]:
    """All pairs ``(P, 2)`` within groups of at most ``limit`` members, drawn at random, and the groups ``(P,)``."""
    if limit < 2:
        raise ValueError(f"limit must be at least 2, a pair, got {limit}")
    sizes = np.diff(groups.indptr)
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((chance.random(len(group)), group))
    place = np.arange(len(group)) - groups.indptr[group]
    members, group, place = (values[place < limit] for values in (groups.members[order], group, place))
    # A member at place p goes with the p members before it.
    second, first = _ranges(np.arange(len(group)) - place, place)
    return np.stack((members[first], members[second]), axis=1), group[second]


def _average(measure: Measure, pairs: Ints, group: Ints) -> Similarity:
    values = np.asarray(measure(pairs), dtype=np.float64)
    known = ~np.isnan(values)
    values, group = values[known], group[known]
    if not len(values):
        return Similarity(np.nan, np.nan, 0, 0, len(known))
    _, group = np.unique(group, return_inverse=True)
    counts = np.bincount(group)
    means = np.bincount(group, values) / counts
    return Similarity(float(values.mean()), float(means.mean()), len(counts), len(values), int((~known).sum()))


# --- rows of different lengths -------------------------------------------------------------------------------


def _starts(counts: Ints) -> Ints:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))


def _ranges(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """All numbers from ``start`` on, ``count`` of each, one range after the other; first, which range each is of."""
    owner = np.repeat(np.arange(len(start)), count)
    return owner, np.arange(len(owner)) + (start - (np.cumsum(count) - count))[owner]


def _common(tree: Ancestry, a: Ints, b: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """The ancestors of ``a (P,)``, pair after pair, and their distances from a and b together.

    Where each pair starts (none is empty), the pair of each, the ancestor, and the distance: infinity if b lacks it.
    """
    size, count = len(tree.order), np.diff(tree.indptr)[a]
    owner, place = _ranges(tree.indptr[a], count)
    ancestor = tree.ancestors[place]
    wanted = b[owner] * size + ancestor
    other = np.minimum(np.searchsorted(tree.keys, wanted), len(tree.keys) - 1)
    distance = np.where(tree.keys[other] == wanted, tree.distance[place] + tree.distance[other], np.inf)
    return np.cumsum(count) - count, owner, ancestor, distance


def _by_chunks(function: Callable[[Ints, Ints], Floats], pairs: npt.ArrayLike) -> Floats:
    table = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    parts = [function(*table[i : i + _CHUNK].T) for i in range(0, len(table), _CHUNK)]
    return np.concatenate(parts) if parts else np.empty(0)
