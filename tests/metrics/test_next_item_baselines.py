"""Popularity, followers and nearest neighbours against plain loops, and their figures on Amazon Beauty."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ghrq.data.interactions import Interactions, leave_two_out, read_compact
from ghrq.metrics import next_item_baselines
from ghrq.metrics.next_item import evaluate
from ghrq.metrics.next_item_baselines import (
    by_followers,
    by_neighbours,
    by_popularity,
    by_sum,
    choose,
    rank_items,
)
from ghrq.models.followers import Followers

REAL = Path(os.environ.get("GHRQ_DATA", "")) / "amazon-beauty"
ITEMS = 20


@pytest.fixture(params=[1, 2**22], ids=["one user at once", "all at once"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(next_item_baselines, "_CHUNK", request.param)


@pytest.fixture
def histories():
    lengths = torch.randint(1, 8, (30,))
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))
    users, items = [str(u) for u in range(30)], [str(i) for i in range(ITEMS)]
    return Interactions(users, items, starts, torch.randint(ITEMS - 3, (int(lengths.sum()),)))


def lists(histories):
    return [part.tolist() for part in histories.sequence.split(histories.lengths.tolist())]


def plain(histories, score, k, exclude_seen):
    """Lists of the k items with the best ``score(history, item)``, the first of equal ones."""
    ranked = []
    for history in lists(histories):
        left = [item for item in range(ITEMS) if not (exclude_seen and item in history)]
        best = sorted(left, key=lambda item: -score(history, item))[:k]
        ranked.append(best + [-1] * (k - len(best)))
    return ranked


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("k", [1, 5, ITEMS, ITEMS + 3])
def test_popularity_is_that_of_a_plain_loop(chunk, histories, k, exclude_seen):
    counts = histories.counts()
    found = rank_items(by_popularity(counts), histories, k, exclude_seen)
    assert found.tolist() == plain(histories, lambda _, item: int(counts[item]), k, exclude_seen)


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_neighbours_are_those_of_a_plain_loop(chunk, histories, decay, exclude_seen):
    vectors = torch.randn(ITEMS, 4)
    unit = (vectors / vectors.norm(dim=1, keepdim=True)).double().numpy()

    def score(history, item):
        weights = [decay ** (len(history) - 1 - place) for place in range(len(history))]
        query = np.average(unit[history], axis=0, weights=weights)
        return float(query @ unit[item])

    found = rank_items(by_neighbours(vectors, histories, decay), histories, 7, exclude_seen)
    assert found.tolist() == plain(histories, score, 7, exclude_seen)


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_followers_are_those_of_a_plain_loop(histories, decay, window):
    counts = np.zeros((ITEMS, ITEMS))
    for history in lists(histories):
        for place, item in enumerate(history):
            for gap, later in enumerate(history[place + 1 :][:window], start=1):
                counts[item, later] += 1 / gap
    expected = []
    for history in lists(histories):
        scores = sum(decay ** (len(history) - 1 - place) * counts[item] for place, item in enumerate(history))
        expected.append(scores / max(scores.max(), 1e-9))
    score = by_followers(Followers.counted(histories, window), histories, decay)
    np.testing.assert_allclose(torch.cat((score(0, 11), score(11, 30))), expected, atol=1e-6)


def test_followers_of_histories_of_one_item():
    data = Interactions(["a", "b"], ["x", "y"], torch.arange(3), torch.tensor([0, 1]))
    ranked = rank_items(by_followers(Followers.counted(data), data, 0.5), data, 2, exclude_seen=True)
    assert ranked.tolist() == [[1, -1], [0, -1]]


def test_two_scores_are_added(histories):
    one, two = torch.rand(30, ITEMS), torch.rand(30, ITEMS)
    both = by_sum(lambda start, stop: one[start:stop].clone(), lambda start, stop: two[start:stop], 3.0)
    torch.testing.assert_close(both(4, 9), one[4:9] + 3 * two[4:9])


def test_settings_are_chosen_by_the_targets(histories):
    vectors = torch.randn(ITEMS, 6)
    candidates = {decay: by_neighbours(vectors, histories, decay) for decay in (0.0, 0.5, 1.0)}
    for decay, score in candidates.items():
        target = rank_items(score, histories, 1, exclude_seen=True)[:, 0]
        assert choose(candidates, histories, target, exclude_seen=True) == decay


def test_items_without_a_score_are_left_out(chunk, histories):
    def score(start, stop):
        scores = torch.full((stop - start, ITEMS), -torch.inf)
        scores[:, 4] = torch.arange(start, stop)
        return scores

    ranked = rank_items(score, histories, 3)
    assert (ranked == torch.tensor([4, -1, -1])).all()


def test_bad_arguments(histories):
    with pytest.raises(ValueError, match="k must be at least 1"):
        rank_items(by_popularity(histories.counts()), histories, 0)
    with pytest.raises(ValueError, match="decay must be from 0 to 1, got 2"):
        by_neighbours(torch.ones(ITEMS, 2), histories, 2.0)
    with pytest.raises(ValueError, match=r"expected vectors \(20, d\), one for each item, got \(19, 2\)"):
        by_neighbours(torch.ones(ITEMS - 1, 2), histories, 1.0)
    with pytest.raises(ValueError, match="window must be at least 1"):
        Followers.counted(histories, 0)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.joinpath("sequences.txt.gz").is_file(), reason="no amazon-beauty in the folder GHRQ_DATA")
def test_beauty_has_the_recorded_figures():
    split = leave_two_out(read_compact(REAL))
    users = torch.arange(0, len(split.test), 10)  # every tenth, for time
    counts, history = split.train.counts(), split.before_test.take(users)
    assert history.vectors is not None
    recorded = {
        "popularity": (by_popularity(counts), 0.0115, 0.0055),
        "neighbours": (by_neighbours(history.vectors, history, 0.25), 0.0570, 0.0348),
        "followers": (by_followers(Followers.counted(split.train), history, 0.5), 0.0820, 0.0510),
    }
    for score, recall, ndcg in recorded.values():
        scores = evaluate(rank_items(score, history, 50, exclude_seen=True), split.test[users], counts)
        assert scores["recall@10"] == pytest.approx(recall, abs=0.01)
        assert scores["ndcg@10"] == pytest.approx(ndcg, abs=0.006)
