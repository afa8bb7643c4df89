"""Popularity and nearest neighbours against plain loops, and their figures on Amazon Beauty."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ghrq.data.interactions import Interactions, leave_two_out, read_compact
from ghrq.metrics import next_item_baselines
from ghrq.metrics.next_item import evaluate
from ghrq.metrics.next_item_baselines import best_decay, rank_by_neighbours, rank_by_popularity, rank_items

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


def plain(histories, score, k, exclude_seen):
    """Lists of the k items with the best ``score(history, item)``, the first of equal ones."""
    lists = []
    for history in histories.sequence.split(histories.lengths.tolist()):
        history = history.tolist()
        left = [item for item in range(ITEMS) if not (exclude_seen and item in history)]
        best = sorted(left, key=lambda item: -score(history, item))[:k]
        lists.append(best + [-1] * (k - len(best)))
    return lists


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("k", [1, 5, ITEMS, ITEMS + 3])
def test_popularity_is_that_of_a_plain_loop(histories, chunk, k, exclude_seen):
    counts = histories.counts()
    found = rank_by_popularity(counts, histories, k, exclude_seen)
    assert found.tolist() == plain(histories, lambda _, item: int(counts[item]), k, exclude_seen)


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_neighbours_are_those_of_a_plain_loop(histories, chunk, decay, exclude_seen):
    vectors = torch.randn(ITEMS, 4)
    unit = (vectors / vectors.norm(dim=1, keepdim=True)).double().numpy()

    def score(history, item):
        weights = [decay ** (len(history) - 1 - place) for place in range(len(history))]
        query = np.average(unit[history], axis=0, weights=weights)
        return float(query @ unit[item])

    found = rank_by_neighbours(vectors, histories, 7, exclude_seen, decay)
    assert found.tolist() == plain(histories, score, 7, exclude_seen)


def test_the_decay_is_chosen_by_the_targets(histories):
    vectors = torch.randn(ITEMS, 6)
    for decay in (0.0, 1.0):
        target = rank_by_neighbours(vectors, histories, 1, exclude_seen=True, decay=decay)[:, 0]
        assert best_decay(vectors, histories, target, exclude_seen=True) == decay


def test_items_without_a_score_are_left_out(histories, chunk):
    def score(start, stop):
        scores = torch.full((stop - start, ITEMS), -torch.inf)
        scores[:, 4] = torch.arange(start, stop)
        return scores

    ranked = rank_items(score, histories, 3)
    assert (ranked == torch.tensor([4, -1, -1])).all()


def test_bad_arguments(histories):
    with pytest.raises(ValueError, match="k must be at least 1"):
        rank_by_popularity(histories.counts(), histories, 0)
    with pytest.raises(ValueError, match="decay must be from 0 to 1, got 2"):
        rank_by_neighbours(torch.ones(ITEMS, 2), histories, 1, decay=2.0)
    with pytest.raises(ValueError, match=r"expected vectors \(20, d\), one for each item, got \(19, 2\)"):
        rank_by_neighbours(torch.ones(ITEMS - 1, 2), histories, 1)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.joinpath("sequences.txt.gz").is_file(), reason="no amazon-beauty in the folder GHRQ_DATA")
def test_beauty_has_the_recorded_figures():
    split = leave_two_out(read_compact(REAL))
    counts, history = split.train.counts(), split.before_test
    scores = evaluate(rank_by_popularity(counts, history, 50, exclude_seen=True), split.test, counts)
    assert scores["recall@10"] == pytest.approx(0.0115, abs=1e-3)
    assert scores["cold_recall@50"] == 0.0
    # Every tenth user, for time.
    users = torch.arange(0, len(history), 10)
    assert history.vectors is not None
    ranked = rank_by_neighbours(history.vectors, history.take(users), 50, exclude_seen=True, decay=0.25)
    scores = evaluate(ranked, split.test[users], counts)
    assert scores["recall@10"] == pytest.approx(0.057, abs=0.01)
    assert scores["ndcg@10"] == pytest.approx(0.035, abs=0.006)
