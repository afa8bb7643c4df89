"""Recommendations without training: what is popular, and what has a text like the last items."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.metrics.next_item import ranks, recall_ndcg

# Users whose scores of all items are in memory at once.
_USERS = 512

# Numbers of last items that validation chooses from.
_LAST = (1, 2, 3, 5, 10)


def popular(histories: Tensor, counts: Tensor, k: int, exclude_seen: bool) -> Tensor:
    """The k items that occur most often in training, ``counts (m,)``: ``(n, k)``. Histories as in :func:`nearest`."""
    return _best(histories, k, exclude_seen, lambda part: counts.float().expand(len(part), -1))


def nearest(histories: Tensor, vectors: Tensor, last: int, k: int, exclude_seen: bool) -> Tensor:
    """The k items whose ``vectors (m, d)`` are nearest to the mean of the ``last`` items, by cosine: ``(n, k)``.

    ``histories (n, H)`` are item numbers, the newest last, filled with -1 from the left.
    """
    unit = F.normalize(vectors, dim=1)

    def scores(part: Tensor) -> Tensor:
        recent = part[:, -last:]
        return (unit[recent.clamp(min=0)] * (recent >= 0).unsqueeze(2)).sum(1) @ unit.T

    return _best(histories, k, exclude_seen, scores)


def choose_last(histories: Tensor, target: Tensor, vectors: Tensor) -> int:
    """The number of last items that gives :func:`nearest` the highest NDCG@10 on validation targets ``(n,)``."""

    def ndcg(last: int) -> float:
        return float(recall_ndcg(ranks(nearest(histories, vectors, last, 10, True), target), 10)[1].mean())

    return max(_LAST, key=ndcg)


def _best(histories: Tensor, k: int, exclude_seen: bool, scores_of: Callable[[Tensor], Tensor]) -> Tensor:
    parts = []
    for part in histories.split(_USERS):
        scores = scores_of(part)
        if exclude_seen:
            # A column more, for the padding.
            scores = F.pad(scores, (0, 1)).scatter(1, part.where(part >= 0, scores.shape[1]), -torch.inf)[:, :-1]
        parts.append(scores.topk(k).indices)
    return torch.cat(parts)
