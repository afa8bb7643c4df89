"""The numbers of a trained recommender on the test targets, in both protocols, and what a run leaves for its report."""

import time
from functools import lru_cache
from itertools import product
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ghrq.data.interactions import Interactions
from ghrq.data.interactions.sequences import Split
from ghrq.ids.tuples import count_distinct
from ghrq.metrics.next_item import Slice, evaluate, popularity_slices, ranks, recall_ndcg
from ghrq.metrics.next_item_baselines import (
    by_followers,
    by_neighbours,
    by_popularity,
    by_sum,
    choose,
    rank_items,
)
from ghrq.models.followers import Followers
from ghrq.models.recommender import Recommender
from ghrq.models.recommender_ranking import Way
from ghrq.system import files
from ghrq.system.progress import Progress
from ghrq.tasks.recommendation.item_ids import ItemIds, load
from ghrq.tasks.recommendation.recipe import RecommendationData, RecommendationEvaluation
from ghrq.tokenizer import Tokenizer
from ghrq.training.run import Run

KS = (5, 10, 50)
PROTOCOLS = {"all": False, "unseen": True}
"""Whether the items of the history are left out of the list."""

RANKS = "ranks.safetensors"
"""In the folder of a run: the rank of each test user's target, ``(users,)``, by ``way.protocol``."""

_SHOWN_USERS, _SHOWN_ITEMS = 5, 5

# What validation chooses from for the baselines: decays of older items, weights of the neighbours beside the followers.
_DECAYS, _WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.1, 0.25, 0.5, 1.0)
# And for a model's memory: its share beside the item head, and the weight of texts beside both; with so many users.
_MEMORY_SHARES, _TEXT_WEIGHTS, _MEMORY_USERS = (0.35, 0.5, 0.7), (1.0, 3.0), 2000


def test_scores(
    model: Recommender, split: Split, settings: RecommendationEvaluation, run: Run, progress: Progress
) -> dict[str, Any]:
    """Recall and NDCG of every way and protocol, by popularity of the target too; writes the ranks."""
    users = _some_users(len(split.test), settings.test_users)
    histories, target, counts = split.before_test.histories(users), split.test[users], split.train.counts()
    slices = popularity_slices(target, counts)
    scores: dict[str, Any] = {"users": len(target), "seconds": {}, "test": {}, "slices": {}}
    kept: dict[str, Tensor] = {}
    ways = model.ways
    scores |= {"test": {way: {} for way in ways}}
    for protocol, exclude in PROTOCOLS.items():
        begun = time.monotonic()
        found = model.rank_by_each(
            histories, max(KS), ways, exclude_seen=exclude, beam=settings.beam, fewer=True, progress=progress
        )
        scores["seconds"][protocol] = time.monotonic() - begun
        for way in ways:
            scores["test"][way][protocol] = evaluate(found[way].items, target, counts, KS)
            kept[f"{way}.{protocol}"] = ranks(found[way].items, target).to(torch.int16)
    for way in ways:
        scores["slices"][way] = [_of_slice(each, kept[f"{way}.unseen"]) for each in slices]
    files.write(run.folder / RANKS, safetensors.torch.save(kept))
    return scores


@lru_cache(maxsize=2)
def baseline_scores(source: RecommendationData, settings: RecommendationEvaluation) -> dict[str, Any]:
    """The same of recommendations without training; the runs of one table share them."""
    data, split = load(source)
    users, counts, table = (
        _some_users(len(split.test), settings.test_users),
        split.train.counts(),
        Followers.counted(split.train),
    )
    histories, target = split.before_test.take(users), split.test[users]
    some = _some_users(len(split.test), settings.validation_users)
    before, wanted = split.train.take(some), split.validation[some]
    found: dict[str, Any] = {}
    for protocol, exclude in PROTOCOLS.items():
        chosen = choose({d: by_followers(table, before, d) for d in _DECAYS}, before, wanted, exclude_seen=exclude)
        scores = {"popularity": by_popularity(counts), "followers": by_followers(table, histories, chosen)}
        if data.vectors is not None:
            near = {decay: by_neighbours(data.vectors, before, decay) for decay in _DECAYS}
            decay = choose(near, before, wanted, exclude_seen=exclude)
            follow = by_followers(table, before, chosen)
            sums = {weight: by_sum(follow, near[decay], weight) for weight in _WEIGHTS}
            weight = choose(sums, before, wanted, exclude_seen=exclude)
            scores["neighbours"] = by_neighbours(data.vectors, histories, decay)
            scores["both"] = by_sum(scores["followers"], scores["neighbours"], weight)
        for name, score in scores.items():
            ranked = rank_items(score, histories, max(KS), exclude)
            found.setdefault(name, {})[protocol] = evaluate(ranked, target, counts, KS)
    return found


def id_scores(ids: ItemIds, tokenizer: Tokenizer | None, vectors: Tensor | None) -> dict[str, Any]:
    """How well the IDs tell items apart, and the quantizer's diagnosis."""
    scores: dict[str, Any] = {
        "distinct": ids.distinct,
        "most_that_share": int(ids.codes[:, -1].max()) + 1,
        "distinct_prefixes": [count_distinct(ids.codes[:, :depth]) for depth in range(1, ids.codes.shape[1])],
    }
    if tokenizer is not None and vectors is not None:
        scores["quantizer"] = tokenizer.quantizer_.diagnose(tokenizer.latent(vectors.numpy())).to_dict()
    return scores


def examples(model: Recommender, data: Interactions, split: Split) -> list[dict[str, Any]]:
    """Histories of users, what they bought next, and what is recommended to them, in titles.

    The users are evenly spaced, not chosen: most recommendations miss.
    """
    names = data.titles or data.items
    users = torch.linspace(0, len(data) - 1, _SHOWN_USERS).long()
    histories = split.before_test.last(_SHOWN_ITEMS)[users]
    found = model.rank(split.before_test.histories(users), _SHOWN_ITEMS, by=model.ways[-1], fewer=True).items
    return [
        {
            "user": data.users[user],
            "history": [names[i] or data.items[i] for i in history if i >= 0],
            "next": names[target] or data.items[target],
            "recommended": [names[i] or data.items[i] for i in items if i >= 0],
            "hit": target in items,
        }
        for user, history, target, items in zip(
            users.tolist(), histories.tolist(), split.test[users].tolist(), found.tolist(), strict=True
        )
    ]


def validation_scores(model: Recommender, split: Split, settings: RecommendationEvaluation) -> dict[str, float]:
    """Recall@10 and NDCG@10 of validation targets, seen items left out, by the best way that was trained."""
    way = [way for way in model.ways if way != "memory"][-1]
    return _validated(model, split, settings, way)


def tune_memory(model: Recommender, split: Split, settings: RecommendationEvaluation) -> None:
    """Set the share of the memory and the weight of texts that are best by NDCG@10 of validation targets.

    Seen items are left out.
    """
    weights = _TEXT_WEIGHTS if model.config.text_dim else _TEXT_WEIGHTS[:1]
    fewer = settings.model_copy(update={"validation_users": min(settings.validation_users, _MEMORY_USERS)})

    def use(chosen: tuple[float, float]) -> None:
        model.config = model.config.model_copy(update={"memory_share": chosen[0], "memory_text": chosen[1]})

    def quality(chosen: tuple[float, float]) -> float:
        use(chosen)
        return _validated(model, split, fewer, "memory")["ndcg@10"]

    use(max(product(_MEMORY_SHARES, weights), key=quality))


def _validated(model: Recommender, split: Split, settings: RecommendationEvaluation, way: Way) -> dict[str, float]:
    users = _some_users(len(split.validation), settings.validation_users)
    found = model.rank(split.train.histories(users), 10, by=way, beam=20, fewer=True).items
    recall, ndcg = recall_ndcg(ranks(found, split.validation[users]), 10)
    return {"recall@10": float(recall.mean()), "ndcg@10": float(ndcg.mean())}


def _some_users(count: int, wanted: int) -> Tensor:
    """The numbers of ``wanted`` users, evenly spaced; 0 for all."""
    return torch.arange(count) if not 0 < wanted < count else torch.linspace(0, count - 1, wanted).long()


def _of_slice(users: Slice, place: Tensor) -> dict[str, Any]:
    scores: dict[str, Any] = {"name": users.name, "users": users.size}
    for k in KS:
        recall, ndcg = recall_ndcg(place[users.users].long(), k)
        if users.size:
            scores |= {f"recall@{k}": float(recall.mean()), f"ndcg@{k}": float(ndcg.mean())}
    return scores
