"""Codes compared with a hierarchy: how many items share a tuple, and how similar those items are.

An average over groups that share a tuple means little alone: compare it with random groups of the same sizes, and
look at the number of groups. :func:`group_similarity` gives all of that for any measure of pairs:
:func:`path_similarity` and :func:`wu_palmer_similarity` in the hierarchy, :func:`cosine_similarity` of vectors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ghrq.data.ragged import ranges, starts
from ghrq.ids.tuples import count_distinct, tuple_ids

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Measure = Callable[[Ints], Floats]

# Pairs processed at once.
_CHUNK = 2**17


# --- shared tuples -------------------------------------------------------------------------------------------


class Groups(NamedTuple):
    """Groups of items: those of group g are ``members[indptr[g]:indptr[g + 1]]``."""

    indptr: Ints
    members: Ints


def distinct_tuples(codes: npt.ArrayLike, subset: npt.ArrayLike | None = None) -> int:
    """Number of distinct tuples of all items, or of the rows ``subset``."""
    table = _integers(codes)
    return count_distinct(table if subset is None else table[np.asarray(subset)])


def uniqueness(codes: npt.ArrayLike) -> float:
    """Distinct tuples divided by items: 1 if no two items share one."""
    return distinct_tuples(codes) / len(np.asarray(codes))


def colliding_groups(codes: npt.ArrayLike) -> Groups:
    """The items of every tuple that two or more share."""
    ids = tuple_ids(_integers(codes))
    sizes = np.bincount(ids)
    members = np.argsort(ids, kind="stable")
    shared = sizes[sizes > 1]
    return Groups(starts(shared), members[sizes[ids[members]] > 1])


def _integers(codes: npt.ArrayLike) -> npt.NDArray[np.integer]:
    table = np.asarray(codes)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise ValueError(f"expected codes as integers (n, N), got {table.dtype} of shape {table.shape}")
    return table


# --- similarity in a hierarchy -------------------------------------------------------------------------------


class Ancestry(NamedTuple):
    """Every node's ancestors, itself included, with their distances: ``n`` nodes."""

    indptr: Ints
    """``(n + 1,)`` the ancestors of node i are at ``indptr[i]:indptr[i + 1]``, ascending."""
    ancestors: Ints
    distance: Ints
    """Edges on the shortest path up."""
    min_depth: Ints
    """``(n,)`` edges on the shortest path to a root."""
    max_depth: Ints
    """``(n,)`` edges on the longest path to a root."""
    order: Ints
    """``(n,)`` the rank of each node by name."""
    keys: Ints
    """``node·n + ancestor``, ascending."""


def ancestry(edges: npt.ArrayLike, size: int, names: Sequence[str] | None = None) -> Ancestry:
    """From ``edges (E, 2)``, rows of child and parent, over ``size`` nodes without a cycle.

    ``names`` break ties in the Wu–Palmer similarity, which takes the first by name of equally deep common ancestors, as
    NLTK does; without them, the one with the lowest number.
    """
    child, parent = np.unique(np.asarray(edges, dtype=np.int64).reshape(-1, 2), axis=0).T
    if len(child) and not 0 <= min(child.min(), parent.min()) <= max(child.max(), parent.max()) < size:
        raise ValueError(f"edges must join nodes from 0 to {size - 1}")
    if names is not None and len(names) != size:
        raise ValueError(f"expected {size} names, one for each node, got {len(names)}")
    parents = np.bincount(child, minlength=size)
    start = starts(parents)
    min_depth, max_depth = np.full(size, -1), np.zeros(size, dtype=np.int64)
    keys = np.arange(size) * (size + 1)
    levels = []
    # Level d: all (node, ancestor) with a path of exactly d edges. A pair's first level is its distance.
    while len(keys):
        levels.append(keys)
        node, ancestor = keys // size, keys % size
        if len(levels) > 1 and (node == ancestor).any():
            raise ValueError(f"the edges form a cycle through node {node[node == ancestor][0]}: remove one")
        max_depth[node] = len(levels) - 1
        arrived = node[parents[ancestor] == 0]
        min_depth[arrived] = np.where(min_depth[arrived] < 0, len(levels) - 1, min_depth[arrived])
        owner, place = ranges(start[ancestor], parents[ancestor])
        keys = np.unique(node[owner] * size + parent[place])
    every = np.concatenate(levels)
    level = np.repeat(np.arange(len(levels)), [len(found) for found in levels])
    keys, first = np.unique(every, return_index=True)
    order = np.arange(size) if names is None else np.argsort(np.argsort(np.asarray(names), kind="stable"))
    indptr = starts(np.bincount(keys // size, minlength=size))
    return Ancestry(indptr, keys % size, level[first], min_depth, max_depth, order, keys)


def path_distance(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """Edges on the shortest path up from one node of ``pairs (P, 2)`` and down to the other; infinity if none."""

    def nearest(a: Ints, b: Ints) -> Floats:
        start, _, _, distance = _common(tree, a, b)
        return np.minimum.reduceat(distance, start)

    return _by_chunks(nearest, pairs)


def path_similarity(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """``1 / (1 + path distance)`` of ``pairs (P, 2)``, as NLTK's; NaN where there is no common ancestor."""
    distance = path_distance(tree, pairs)
    return np.where(np.isinf(distance), np.nan, 1.0 / (1.0 + distance))


def wu_palmer_similarity(tree: Ancestry, pairs: npt.ArrayLike) -> Floats:
    """``2·depth / (path of a + path of b + 2·depth)`` of ``pairs (P, 2)``; NaN where there is no common ancestor.

    As NLTK's ``wup_similarity``: the subsumer is the common ancestor with the largest *shortest* path to a root (of
    several, the first of the pair if it is one of them, else the first by name), its depth is the *longest* path to
    a root plus 1, and the paths are path distances to it. So it is not always symmetric.
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
        paths = sum(path_distance(tree, np.stack((end, subsumer), axis=1)) for end in (a, b))
        return np.where(exists, 2.0 * depth / (paths + 2.0 * depth), np.nan)

    return _by_chunks(similarity, pairs)


def cosine_similarity(vectors: npt.ArrayLike, pairs: npt.ArrayLike) -> Floats:
    """The cosine of the vectors ``(n, d)`` of ``pairs (P, 2)``; NaN where one is NaN or 0."""
    table = np.asarray(vectors, dtype=np.float64)
    length = np.sqrt((table * table).sum(1, keepdims=True))
    unit = np.divide(table, length, out=np.full_like(table, np.nan), where=length > 0)
    return _by_chunks(lambda a, b: np.einsum("pd,pd->p", unit[a], unit[b]), pairs)


# --- groups against random groups ----------------------------------------------------------------------------


class Similarity(NamedTuple):
    """Averages of a measure over pairs of items of one group."""

    pooled: float
    """Over all pairs, so large groups dominate; NaN if there are none."""
    by_group: float
    """Mean over groups of the mean within each group."""
    groups: int
    """Groups with at least one measured pair."""
    pairs: int
    """Measured pairs."""
    skipped: int
    """Pairs that could not be measured: no common ancestor, no known word."""


class GroupSimilarity(NamedTuple):
    """Groups that share a tuple, and groups of the same sizes drawn at random."""

    shared: Similarity
    random: Similarity


def group_similarity(codes: npt.ArrayLike, measure: Measure, limit: int = 50, seed: int = 42) -> GroupSimilarity:
    """Similarity of items that share a tuple of ``codes (n, N)``, by a ``measure`` of pairs ``(P, 2) -> (P,)``.

    Of each group, all pairs of at most ``limit`` randomly drawn members count. The reference cuts a random permutation
    of all items into groups of the same sizes.
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
    # A member at position p is paired with the p members before it.
    second, first = ranges(np.arange(len(group)) - place, place)
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


def _common(tree: Ancestry, a: Ints, b: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """The ancestors of ``a (P,)``, pair after pair, with the sum of their distances from a and b.

    Returns where each pair starts (none is empty), the pair of each ancestor, the ancestor, and the distance: infinity
    if it is not an ancestor of b.
    """
    size, count = len(tree.order), np.diff(tree.indptr)[a]
    owner, place = ranges(tree.indptr[a], count)
    ancestor = tree.ancestors[place]
    wanted = b[owner] * size + ancestor
    other = np.minimum(np.searchsorted(tree.keys, wanted), len(tree.keys) - 1)
    distance = np.where(tree.keys[other] == wanted, tree.distance[place] + tree.distance[other], np.inf)
    return np.cumsum(count) - count, owner, ancestor, distance


def _by_chunks(function: Callable[[Ints, Ints], Floats], pairs: npt.ArrayLike) -> Floats:
    table = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    parts = [function(*table[i : i + _CHUNK].T) for i in range(0, len(table), _CHUNK)]
    return np.concatenate(parts) if parts else np.empty(0)
