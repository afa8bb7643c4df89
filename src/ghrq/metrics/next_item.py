"""Metrics of next-item recommendation: ranked lists of items, one target for each user.

Recall@k of a user is 1 if the target is among the first k, else 0; NDCG@k is 1/log2(rank + 2) with the rank counted
from 0, or 0 if the target is not among them. Both are given for each user, so that their means can be compared by a
paired bootstrap over users and taken over slices.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghrq.system.checks import at_least

# Elements of the largest temporary arrays.
_CHUNK = 2**22


class Difference(NamedTuple):
    """``mean(a) - mean(b)`` with its interval, which bootstrap samples of the users give."""

    difference: float
    low: float
    high: float


class Slice(NamedTuple):
    """Some of the users, by how often their target occurs in training."""

    name: str
    users: Tensor
    """bool ``(n,)``."""

    @property
    def size(self) -> int:
        """The number of users."""
        return int(self.users.sum())


def ranks(ranked: Tensor, target: Tensor) -> Tensor:
    """The rank of each user's target, from 0: int64 ``(n,)``; k if it is not in the list.

    ``ranked (n, k)`` are item numbers, the best first, -1 where a list is shorter; ``target (n,)`` item numbers.
    """
    if ranked.dim() != 2 or target.shape != ranked.shape[:1] or not ranked.shape[1]:
        raise ValueError(f"expected ranked (n, k) and target (n,), got {tuple(ranked.shape)} and {tuple(target.shape)}")
    if len(target) and int(target.min()) < 0:
        raise ValueError(f"targets are item numbers from 0, got {int(target.min())}")
    match = ranked == target.to(ranked.device).unsqueeze(1)
    return torch.where(match.any(1), match.long().argmax(1), ranked.shape[1])


def recall_ndcg(ranks: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Recall@k and NDCG@k of each user, float64 ``(n,)`` each, from :func:`ranks` of lists of at least k items."""
    at_least("k", k, 1, whole=True)
    hit = ranks < k
    return hit.double(), torch.where(hit, (ranks.double() + 2.0).log2().reciprocal(), 0.0)


def paired_bootstrap(a: Tensor, b: Tensor, seed: int = 0, draws: int = 10_000, level: float = 0.95) -> Difference:
    """How much larger the mean of ``a`` is than that of ``b``, two values ``(n,)`` for each of the same users.

    The users are drawn with replacement ``draws`` times; the interval has the middle ``level`` of the differences.
    """
    if a.shape != b.shape or a.dim() != 1 or not len(a):
        raise ValueError(f"expected two values (n,) for the same users, got {tuple(a.shape)} and {tuple(b.shape)}")
    at_least("draws", draws, 1, whole=True)
    # Equal differences are drawn together: how often each occurs in a sample is multinomial.
    values, counts = np.unique((a.double() - b.double()).cpu().numpy(), return_counts=True)
    random, means = np.random.default_rng(seed), []
    for size in _parts(draws, len(values)):
        means.append(random.multinomial(len(a), counts / len(a), size=size) @ values / len(a))
    low, high = np.quantile(np.concatenate(means), (0.5 - level / 2, 0.5 + level / 2))
    return Difference(float(values @ counts / len(a)), float(low), float(high))


def popularity_slices(target: Tensor, counts: Tensor, groups: int = 4) -> list[Slice]:
    """The users by how often their target occurs in training.

    First ``cold`` (never), then up to ``groups`` slices from the tail to the head, whose bounds are the quantiles of
    ``counts`` over the items that occur. ``target (n,)`` are item numbers, ``counts (m,)`` the occurrences of each
    item in training. Slices are named by their counts, such as ``5-8``; they may be empty.
    """
    at_least("groups", groups, 1, whole=True)
    occurring = counts[counts > 0].double()
    slices = [Slice("cold", counts[target] == 0)]
    if not len(occurring):
        return slices
    # The largest count of each group, each once.
    shares = torch.arange(1, groups + 1, dtype=torch.float64) / groups
    bounds = torch.quantile(occurring, shares, interpolation="lower").long().unique().tolist()
    for low, high in zip([0, *bounds], bounds, strict=False):
        name = f"{low + 1}-{high}" if low + 1 < high else str(high)
        slices.append(Slice(name, (counts[target] > low) & (counts[target] <= high)))
    return slices


def coverage(ranked: Tensor, k: int, num_items: int) -> float:
    """The fraction of the ``num_items`` items that are among the first k of at least one list ``(n, ≥ k)``."""
    _check_length(ranked, [k])
    shown = ranked[:, :k].unique()
    return int((shown >= 0).sum()) / num_items


def evaluate(ranked: Tensor, target: Tensor, train_counts: Tensor, ks: Sequence[int] = (5, 10, 50)) -> dict[str, float]:
    """The means over users of Recall@k and NDCG@k, the coverage, and both at each k on the cold targets, with their n.

    ``ranked (n, ≥ max(ks))`` and ``target (n,)`` as for :func:`ranks`, ``train_counts (m,)`` the occurrences of each
    item in training. The keys are ``recall@10``, ``ndcg@10``, ``coverage@10``, ``cold_recall@10`` …, ``users`` and
    ``cold_users``; of no cold target the mean is NaN.
    """
    _check_length(ranked, ks)
    place = ranks(ranked, target)
    cold = popularity_slices(target, train_counts)[0]
    scores: dict[str, float] = {"users": len(target), "cold_users": cold.size}
    for k in ks:
        recall, ndcg = recall_ndcg(place, k)
        scores[f"recall@{k}"], scores[f"ndcg@{k}"] = float(recall.mean()), float(ndcg.mean())
        scores[f"coverage@{k}"] = coverage(ranked, k, len(train_counts))
        scores[f"cold_recall@{k}"], scores[f"cold_ndcg@{k}"] = (float(v[cold.users].mean()) for v in (recall, ndcg))
    return scores


def _check_length(ranked: Tensor, ks: Sequence[int]) -> None:
    if not 1 <= min(ks) <= max(ks) <= ranked.shape[1]:
        raise ValueError(f"k must be from 1 to {ranked.shape[1]}, the number of items in a list, got {list(ks)}")


def _parts(total: int, width: int) -> Iterator[int]:
    """``total`` rows of ``width`` elements, in parts of limited size."""
    step = max(1, _CHUNK // width)
    for start in range(0, total, step):
        yield min(step, total - start)
