"""Recall@k of held-out ancestors in ranked lists of code tuples, and reconstruction by distance.

A model ranks *tuples* of codes, and items may share a tuple: a hit means less the more items share it.
:func:`rank_pairs` looks up each held-out pair (u, v) in the list of u, and :func:`recall` counts in five ways:

- *tuple*: v's tuple is among the first k, as in the paper. Collisions inflate it.
- *tuple, filtered*: the tuples of u's training ancestors are first removed from the list, except v's own. (The
  exception uses the answer: a tuple that v shares with a training ancestor is kept for this pair only.)
- *entity*: a hit on a tuple that m items share counts 1/m, the probability to find v by drawing one of them.
- *entity, filtered*: uses u's training ancestors but not the answer. A tuple is removed only if all items that share it
  are training ancestors of u; a hit counts 1 divided by the number of items sharing it that are not.
- *entity, filtered, strict*: the same list, and 1/m with m all items that share the tuple.

Tuples that no item has are kept in every list: they are wrong guesses.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.ids import PrefixTrie

# Elements of the largest temporary tensors.
_CHUNK = 2**22


class PairRanks(NamedTuple):
    """The ranks of ``P`` test pairs; all ``(P,)``. A rank is the number of tuples before v's.

    It is ``length`` if v's tuple is not in the list.
    """

    length: int
    """R, the number of tuples in a list."""
    plain: Tensor
    """int64, the rank in the whole list."""
    tuple_filtered: Tensor
    """int64, the rank among tuples that no training ancestor of u has."""
    entity_filtered: Tensor
    """int64, the rank among tuples that some item other than u's training ancestors has."""
    sharing: Tensor
    """int64, the number of items with v's tuple, v included."""
    left: Tensor
    """int64, the number of those that are not training ancestors of u."""
    candidates: Tensor
    """int64, the number of tuples in u's list that no training ancestor of u has: below k, the list was too short."""


class PairRecall(NamedTuple):
    """Means over test pairs, from 0 to 1; see the module's docstring."""

    tuple: float
    tuple_filtered: float
    entity: float
    entity_filtered: float
    entity_filtered_strict: float
    short: float
    """Fraction of the pairs whose list had fewer than k candidates after filtering: a wider beam might find more."""


def beam_for(k: int, train: npt.ArrayLike | Tensor, sources: npt.ArrayLike | Tensor, most: int = 100) -> int:
    """Number of tuples to rank so that k remain after filtering: k plus the most training ancestors of a source.

    ``train (M, 2)`` are pairs of an item and an ancestor, ``sources (B,)`` the queries. At most ``most``, at least k.
    """
    pairs, queries = _integers("train", train, 2).unique(dim=0), _integers("sources", sources, 1)
    size = 1 + max(int(pairs.max()) if len(pairs) else 0, int(queries.max()) if len(queries) else 0)
    known = torch.bincount(pairs[:, 0], minlength=size)[queries]
    return max(k, min(most, k + (int(known.max()) if len(known) else 0)))


def rank_pairs(
    ranked: Tensor,
    sources: npt.ArrayLike | Tensor,
    test: npt.ArrayLike | Tensor,
    train: npt.ArrayLike | Tensor,
    codes: npt.ArrayLike | Tensor,
) -> PairRanks:
    """Look up test pairs in ranked lists of tuples.

    Args:
        ranked: ``(B, R, N)`` integers: R tuples for each source, the best first. Repeated tuples count at their first
            position, so the padding of :func:`ghrq.nets.beam_search.beam_search` has no effect.
        sources: ``(B,)`` distinct integers: the sources of the lists.
        test: ``(P, 2)`` pairs of a source and a held-out ancestor.
        train: ``(M, 2)`` pairs of an item and a known ancestor, none of them in ``test``.
        codes: ``(n, N)`` integers: the tuples of all items.

    """
    ranked, table = _integers("ranked", ranked, 3), _integers("codes", codes, 2)
    queries, pairs, known = _integers("sources", sources, 1), _integers("test", test, 2), _integers("train", train, 2)
    _check(ranked, queries, pairs, known, table)
    size = len(table)
    trie = PrefixTrie(table, int(table.max()) + 1)
    leaf_of, _ = trie.walk(table)
    leaf, exists = trie.walk(ranked)

    known_pairs = torch.unique(known[:, 0] * size + known[:, 1])
    keys, counts = torch.unique(known_pairs // size * trie.num_tuples + leaf_of[known_pairs % size], return_counts=True)
    sharing = trie.count(ranked)
    known_here = _lookup(keys, counts, queries.unsqueeze(1) * trie.num_tuples + leaf) * exists
    # Number of kept tuples before each position of a list.
    new = _before(known_here == 0)
    not_only_known = _before((known_here < sharing) | (sharing == 0))

    order = queries.argsort()
    row = order[torch.searchsorted(queries[order], pairs[:, 0].contiguous())]
    wanted = leaf_of[pairs[:, 1]]
    length = ranked.shape[1]
    found = torch.empty_like(wanted)
    for part in torch.arange(len(pairs)).split(max(1, _CHUNK // length)):
        match = (leaf[row[part]] == wanted[part].unsqueeze(1)) & exists[row[part]]
        found[part] = torch.where(match.any(1), match.long().argmax(1), length)
    listed = found < length
    place = found.clamp(max=length - 1)
    shared = trie.count(table[pairs[:, 1]])
    return PairRanks(
        length=length,
        plain=found,
        tuple_filtered=torch.where(listed, new[row, place], length),
        entity_filtered=torch.where(listed, not_only_known[row, place], length),
        sharing=shared,
        left=shared - _lookup(keys, counts, pairs[:, 0] * trie.num_tuples + wanted),
        candidates=(known_here == 0).sum(1)[row],
    )


def recall(ranks: PairRanks, k: int) -> PairRecall:
    """Recall@k of all test pairs."""
    if not 1 <= k <= ranks.length:
        raise ValueError(f"k must be from 1 to {ranks.length}, the number of tuples ranked, got {k}")
    if not len(ranks.plain):
        raise ValueError("there are no test pairs to take the mean of")
    plain, filtered, entity = (
        (rank < k).double() for rank in (ranks.plain, ranks.tuple_filtered, ranks.entity_filtered)
    )
    values = plain, filtered, plain / ranks.sharing, entity / ranks.left, entity / ranks.sharing
    means = [float(value.mean()) for value in (*values, (ranks.candidates < k).double())]
    return PairRecall(*means)


class Reconstruction(NamedTuple):
    """How well distances alone recover the ancestors of a node, mean over ``sources`` nodes."""

    mean_average_precision: float
    mean_rank: float
    """Of an ancestor among the nodes that are not ancestors: 1 is best."""
    sources: int
    """Number of queried nodes that have ancestors."""


def reconstruction_map(
    points: Tensor, indptr: npt.ArrayLike, indices: npt.ArrayLike, sources: npt.ArrayLike, curvature: float
) -> Reconstruction:
    """Rank all other nodes by distance from a node and compare with its ancestors, as for Poincaré embeddings.

    Equal distances get the worst of their ranks, as in scikit-learn's average precision. The mean rank is over pairs
    and counts only nodes that are not ancestors.

    ``points (n, d)`` are on the ball of ``curvature`` c, 0 for Euclidean distances; the ancestors of node i are
    ``indices[indptr[i]:indptr[i + 1]]``. Nodes of ``sources (S,)`` without ancestors are skipped.
    """
    indptr, indices, queries = (np.asarray(a, dtype=np.int64) for a in (indptr, indices, sources))
    if points.dim() != 2 or len(indptr) != len(points) + 1:
        raise ValueError(f"expected points (n, d) and indptr (n + 1,), got {tuple(points.shape)} and {indptr.shape}")
    if not points.isfinite().all():
        raise ValueError(f"{int((~points.isfinite().all(1)).sum())} of {len(points)} points are not finite")
    counts = np.diff(indptr)[queries]
    queries, counts = queries[counts > 0], counts[counts > 0]
    if not len(queries):
        raise ValueError("none of the sources has an ancestor: there is nothing to reconstruct")
    # Most ancestors first: so the sources with a j-th ancestor are the first ones of a chunk.
    order = np.argsort(-counts, kind="stable")
    queries, counts = queries[order], counts[order]
    left, right = _factors(points.detach(), curvature)
    precision, ranks = 0.0, 0.0
    step = max(1, _CHUNK // len(points))
    for start in range(0, len(queries), step):
        chosen, count = queries[start : start + step], counts[start : start + step]
        values = (left[chosen] @ right).numpy()
        rows = np.arange(len(chosen))
        values[rows, chosen] = np.inf
        slots = np.arange(count[0])
        has = slots < count[:, None]
        true = values[rows[:, None], indices[np.where(has, indptr[chosen][:, None] + slots, indptr[chosen][:, None])]]
        true = np.sort(np.where(has, true, np.inf), axis=1)
        within = np.stack(
            [
                np.pad(np.count_nonzero(values[:m] <= true[:m, j : j + 1], axis=1), (0, len(rows) - m))
                for j, m in ((j, int(has[:, j].sum())) for j in slots)
            ],
            axis=1,
        )
        # Number of ancestors not farther than the j-th; padding is at infinity.
        true_within = (true[:, None, :] <= true[:, :, None]).sum(2)
        precision += float((np.where(has, true_within / np.maximum(within, 1), 0.0).sum(1) / count).sum())
        ranks += float((within - true_within + 1)[has].sum())
    return Reconstruction(precision / len(queries), ranks / float(counts.sum()), len(queries))


def _factors(points: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """``(n, d + 2)`` and ``(d + 2, n)`` in float64, whose product is ``‖x - y‖²/(1 - c‖y‖²)``: in order of d(x, y)."""
    gap = ball.gap(points, c).double().cpu()
    x = points.double().cpu()
    square = x.square().sum(1, keepdim=True)
    one = torch.ones_like(square)
    return torch.cat((x, square, one), dim=1), (torch.cat((-2.0 * x, one, square), dim=1) / gap).T.contiguous()


def _before(kept: Tensor) -> Tensor:
    """Number of true values of ``kept (B, R)`` before each position."""
    return kept.long().cumsum(1) - kept.long()


def _lookup(keys: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """The values of the ``wanted (...)`` among sorted ``keys``, 0 for those that are missing."""
    if not len(keys):
        return torch.zeros_like(wanted)
    place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
    return values[place] * (keys[place] == wanted)


def _integers(name: str, values: npt.ArrayLike | Tensor, dims: int) -> Tensor:
    tensor = torch.as_tensor(values).cpu()
    if (
        tensor.dim() != dims
        or tensor.dtype.is_floating_point
        or (dims == 2 and name != "codes" and tensor.shape[1] != 2)
    ):
        shape = {"ranked": "(B, R, N)", "codes": "(n, N)", "sources": "(B,)"}.get(name, "(·, 2)")
        raise ValueError(f"expected {name} as integers {shape}, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    return tensor.long()


def _check(ranked: Tensor, queries: Tensor, pairs: Tensor, known: Tensor, table: Tensor) -> None:
    size = len(table)
    if ranked.shape[0] != len(queries) or ranked.shape[2] != table.shape[1]:
        raise ValueError(
            f"expected ranked of shape ({len(queries)}, R, {table.shape[1]}), a list for each source of tuples as in "
            f"codes, got shape {tuple(ranked.shape)}"
        )
    if len(queries.unique()) != len(queries):
        raise ValueError("sources must be distinct: one list each")
    for name, given in (("sources", queries), ("test", pairs), ("train", known)):
        if given.numel() and not 0 <= int(given.min()) <= int(given.max()) < size:
            raise ValueError(
                f"{name} must be from 0 to {size - 1}, rows of codes, got {int(given.min())} to {int(given.max())}"
            )
    missing = pairs[~torch.isin(pairs[:, 0], queries), 0]
    if len(missing):
        raise ValueError(
            f"test pairs of {len(missing.unique())} items have no list, such as {int(missing[0])}: "
            "rank them, or leave those pairs out"
        )
    both = torch.isin(pairs[:, 0] * size + pairs[:, 1], known[:, 0] * size + known[:, 1])
    if both.any():
        raise ValueError(
            f"{int(both.sum())} test pairs are in train as well: a known ancestor is filtered, never found"
        )
