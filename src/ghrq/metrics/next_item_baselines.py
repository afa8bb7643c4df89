"""Baselines of next-item recommendation that need no training: popularity, followers, nearest neighbours.

>>> score = by_followers(Followers.counted(split.train), split.before_test, decay=0.5)
>>> ranked = rank_items(score, split.before_test, k=50, exclude_seen=True)

A :data:`Score` may be any function of the users, so a model's scores of the whole catalogue are ranked in the same way.
Figures on Amazon Beauty are in ``docs/results/recommendation.md``.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.interactions import Interactions
from ghrq.metrics.next_item import ranks, recall_ndcg
from ghrq.models.followers import Followers
from ghrq.system.checks import at_least

Key = TypeVar("Key")

Score = Callable[[int, int], Tensor]
"""``score(start, stop)``: new float scores ``(stop - start, m)`` of all items, for the users from ``start`` on."""

# Elements of the scores that are in memory at once.
_CHUNK = 2**22


def rank_items(score: Score, histories: Interactions, k: int, exclude_seen: bool = False) -> Tensor:
    """The k items of the catalogue with the largest scores for each user: int64 ``(n, k)``, the best first.

    With ``exclude_seen`` the items of a user's own history are left out. Items with a score of -∞ are left out, too;
    where fewer than k remain, the list ends with -1.
    """
    at_least("k", k, 1, whole=True)
    count, items = len(histories), len(histories.items)
    ranked = torch.full((count, k), -1)
    step = max(1, _CHUNK // items)
    for start in range(0, count, step):
        stop = min(start + step, count)
        scores = score(start, stop)
        if exclude_seen:
            row, place, _ = _entries(histories, start, stop)
            scores[row, histories.sequence[place]] = -torch.inf
        best, number = scores.topk(min(k, items))
        ranked[start:stop, : best.shape[1]] = number.masked_fill(best == -torch.inf, -1)
    return ranked


def by_popularity(counts: Tensor) -> Score:
    """By how often an item occurs in training, ``counts (m,)``; of equal ones the first is the best."""
    place = torch.empty(len(counts), dtype=torch.float64)
    place[counts.argsort(descending=True, stable=True)] = -torch.arange(len(counts), dtype=torch.float64)
    return lambda start, stop: place.repeat(stop - start, 1)


def by_neighbours(vectors: Tensor, histories: Interactions, decay: float) -> Score:
    """By the cosine of an item's vector with that of the history; ``vectors (m, d)`` are the embeddings of all items.

    A history is the sum of its items' vectors (of length 1), each weighted by ``decay`` to the power of the number of
    items after it: 1 is their mean, 0 the last item alone.
    """
    if vectors.dim() != 2 or len(vectors) != len(histories.items):
        raise ValueError(f"expected vectors ({len(histories.items)}, d), one for each item, got {tuple(vectors.shape)}")
    unit = F.normalize(vectors.float(), dim=1)
    _check_decay(decay)

    def score(start: int, stop: int) -> Tensor:
        row, place, age = _entries(histories, start, stop)
        parts = unit[histories.sequence[place]] * torch.tensor(decay).pow(age).unsqueeze(1)
        return F.normalize(torch.zeros(stop - start, unit.shape[1]).index_add_(0, row, parts), dim=1) @ unit.T

    return score


def by_followers(table: Followers, histories: Interactions, decay: float) -> Score:
    """By how often an item comes after those of the history; the best item of each user has a score of 1.

    Items that follow none of them have a score of 0. The counts of each item of the history are weighted by ``decay``
    to the power of the number of items after it.
    """
    _check_decay(decay)

    def score(start: int, stop: int) -> Tensor:
        row, place, age = _entries(histories, start, stop)
        scores = table.sums(row, histories.sequence[place], torch.tensor(decay).pow(age), stop - start)
        return scores / scores.amax(1, keepdim=True).clamp(min=torch.finfo().tiny)

    return score


def by_sum(first: Score, second: Score, weight: float) -> Score:
    """``first + weight · second``."""
    return lambda start, stop: first(start, stop).add_(second(start, stop), alpha=weight)


def choose(
    candidates: Mapping[Key, Score], histories: Interactions, target: Tensor, k: int = 10, exclude_seen: bool = False
) -> Key:
    """The key of the score with the largest NDCG@k: for settings, with the targets ``(n,)`` of validation."""

    def quality(key: Key) -> float:
        ranked = rank_items(candidates[key], histories, k, exclude_seen)
        return float(recall_ndcg(ranks(ranked, target), k)[1].mean())

    return max(candidates, key=quality)


def _entries(histories: Interactions, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries of the users ``start`` to before ``stop``: user from 0, place in the sequence, items after it."""
    bounds = histories.starts[start : stop + 1]
    row = torch.repeat_interleave(torch.arange(stop - start), bounds.diff())
    place = torch.arange(int(bounds[0]), int(bounds[-1]))
    return row, place, bounds[1:][row] - 1 - place


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must be from 0 to 1, got {decay}")
