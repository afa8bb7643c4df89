"""Baselines of next-item recommendation that need no training: popularity, and nearest neighbours of the history.

On the test targets of Amazon Beauty (22,363 users, 138 with a cold target; embeddings of titles and categories by
all-mpnet-base-v2; the decay is chosen on validation, by NDCG@10):

============================  =====  =====  =====  =====  =====  =====  =========  =========
ranking                       R@5    N@5    R@10   N@10   R@50   N@50   cold R@10  cold R@50
============================  =====  =====  =====  =====  =====  =====  =========  =========
popularity                    .0072  .0040  .0114  .0053  .0318  .0098      .0000      .0000
neighbours, decay 0           .0360  .0191  .0532  .0247  .1041  .0358      .0942      .1014
popularity, seen removed      .0075  .0041  .0115  .0055  .0319  .0099      .0000      .0000
neighbours, decay 0.25, same  .0424  .0301  .0570  .0348  .1080  .0460      .0942      .1087
============================  =====  =====  =====  =====  =====  =====  =========  =========

Users often buy another shade or size next, which has nearly the same text: without any training, the neighbours of the
last item reach the Recall@10 that the paper has for its Euclidean model (.0530).
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.interactions import Interactions
from ghrq.metrics.next_item import ranks, recall_ndcg
from ghrq.system.checks import at_least

# Elements of the scores that are in memory at once.
_CHUNK = 2**22

DECAYS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Decays to choose from: from the last item alone to the mean of all."""


def rank_items(
    score: Callable[[int, int], Tensor], histories: Interactions, k: int, exclude_seen: bool = False
) -> Tensor:
    """The k items of the catalogue with the largest scores for each user: int64 ``(n, k)``, the best first.

    ``score(start, stop)`` are the scores ``(stop - start, m)`` of all items for the users from ``start`` on; they are
    overwritten. With ``exclude_seen`` the items of a user's own history are left out. Items with a score of -∞ are left
    out, too; where fewer than k remain, the list ends with -1.
    """
    at_least("k", k, 1, whole=True)
    count, items = len(histories), len(histories.items)
    ranked = torch.full((count, k), -1)
    step, starts = max(1, _CHUNK // items), histories.starts
    for start in range(0, count, step):
        stop = min(start + step, count)
        scores = score(start, stop)
        if exclude_seen:
            seen = slice(int(starts[start]), int(starts[stop]))
            row = torch.repeat_interleave(torch.arange(stop - start), histories.lengths[start:stop])
            scores[row, histories.sequence[seen]] = -torch.inf
        best, number = scores.topk(min(k, items))
        ranked[start:stop, : best.shape[1]] = number.masked_fill(best == -torch.inf, -1)
    return ranked


def rank_by_popularity(counts: Tensor, histories: Interactions, k: int, exclude_seen: bool = False) -> Tensor:
    """The items that occur most often, ``(n, k)``; ``counts (m,)`` in training. Of equal ones the first."""
    place = torch.empty(len(counts), dtype=torch.float64)
    place[counts.argsort(descending=True, stable=True)] = -torch.arange(len(counts), dtype=torch.float64)
    return rank_items(lambda start, stop: place.repeat(stop - start, 1), histories, k, exclude_seen)


def rank_by_neighbours(
    vectors: Tensor, histories: Interactions, k: int, exclude_seen: bool = False, decay: float = 1.0
) -> Tensor:
    """The items whose vectors are nearest to that of the user's history by cosine, ``(n, k)``.

    ``vectors (m, d)`` are the embeddings of all items. A history is the sum of its items' vectors (of length 1), each
    weighted by ``decay`` to the power of the number of items after it: 1 is their mean, 0 the last item alone.
    """
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must be from 0 to 1, got {decay}")
    if vectors.shape[:1] != (len(histories.items),) or vectors.dim() != 2:
        raise ValueError(f"expected vectors ({len(histories.items)}, d), one for each item, got {tuple(vectors.shape)}")
    unit = F.normalize(vectors.float(), dim=1)
    starts, lengths = histories.starts, histories.lengths

    def score(start: int, stop: int) -> Tensor:
        row = torch.repeat_interleave(torch.arange(stop - start), lengths[start:stop])
        place = torch.arange(int(starts[start]), int(starts[stop]))
        age = starts[start + 1 : stop + 1][row] - 1 - place
        weight = torch.tensor(decay).pow(age)  # 0 to the power of 0 is 1
        query = torch.zeros(stop - start, unit.shape[1])
        query.index_add_(0, row, unit[histories.sequence[place]] * weight.unsqueeze(1))
        return F.normalize(query, dim=1) @ unit.T

    return rank_items(score, histories, k, exclude_seen)


def best_decay(
    vectors: Tensor,
    histories: Interactions,
    target: Tensor,
    k: int = 10,
    exclude_seen: bool = False,
    decays: Sequence[float] = DECAYS,
) -> float:
    """The decay of :func:`rank_by_neighbours` with the largest NDCG@k: to choose with validation targets ``(n,)``."""

    def quality(decay: float) -> float:
        ranked = rank_by_neighbours(vectors, histories, k, exclude_seen, decay)
        return float(recall_ndcg(ranks(ranked, target), k)[1].mean())

    return max(decays, key=quality)
