"""Metrics of next-item recommendation against plain references: lists in Python, and scikit-learn's NDCG."""

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score, top_k_accuracy_score

from ghrq.metrics.next_item import coverage, evaluate, paired_bootstrap, popularity_slices, ranks, recall_ndcg

USERS, ITEMS = 60, 25


@pytest.fixture
def lists():
    """Scores ``(n, m)`` without ties, the ranked lists of all items, and a target for each user."""
    scores = torch.rand(USERS, ITEMS, dtype=torch.float64)
    return scores, scores.argsort(1, descending=True), torch.randint(ITEMS, (USERS,))


def test_ranks_are_places_in_the_list():
    ranked = torch.tensor([[3, 1, 2], [3, 1, -1], [0, 4, 2], [-1, -1, -1]])
    assert ranks(ranked, torch.tensor([3, 1, 1, 0])).tolist() == [0, 1, 3, 3]


@pytest.mark.parametrize("k", [1, 5, 10, 24])
def test_recall_and_ndcg_are_those_of_scikit_learn(lists, k):
    scores, ranked, target = lists
    recall, ndcg = recall_ndcg(ranks(ranked, target), k)
    true = torch.nn.functional.one_hot(target, ITEMS).numpy()
    each = [ndcg_score(t[None], s[None], k=k) for t, s in zip(true, scores.numpy(), strict=True)]
    np.testing.assert_allclose(ndcg, each, rtol=1e-12)
    labels = np.arange(ITEMS)
    assert float(recall.mean()) == pytest.approx(top_k_accuracy_score(target, scores.numpy(), k=k, labels=labels))
    assert recall.shape == ndcg.shape == (USERS,)


def test_a_list_that_is_cut_gives_the_same_as_the_whole_one(lists):
    _, ranked, target = lists
    for whole, cut in zip(*(recall_ndcg(ranks(r, target), 7) for r in (ranked, ranked[:, :7])), strict=True):
        assert torch.equal(whole, cut)


def test_the_bootstrap_draws_the_same_users_for_both():
    # Plain bootstrap: indices drawn with replacement.
    a, b = (torch.rand(400) < 0.5).double(), torch.rand(400).round(decimals=1).double()
    found = paired_bootstrap(a, b, draws=20_000)
    rows = np.random.default_rng(5).integers(400, size=(20_000, 400))
    means = (a - b).numpy()[rows].mean(1)
    assert found.difference == pytest.approx(float((a - b).mean()))
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=0.002)
    assert found.high == pytest.approx(np.quantile(means, 0.975), abs=0.002)
    # Not paired, the interval would not be a point.
    assert paired_bootstrap(b + 0.5, b) == pytest.approx((0.5, 0.5, 0.5))


def test_the_bootstrap_depends_on_the_seed_only():
    a, b = torch.rand(300), torch.rand(300)
    assert paired_bootstrap(a, b, seed=3, draws=500) == paired_bootstrap(a, b, seed=3, draws=500)
    assert paired_bootstrap(a, b, seed=3, draws=500) != paired_bootstrap(a, b, seed=4, draws=500)


def test_slices_are_disjoint_and_complete():
    counts = torch.tensor([0, 0, 1, 1, 1, 2, 3, 5, 8, 100])
    target = torch.arange(10).repeat(3)
    slices = popularity_slices(target, counts, groups=4)
    assert [(each.name, each.size) for each in slices] == [("cold", 6), ("1", 9), ("2", 3), ("3-5", 6), ("6-100", 6)]
    assert (torch.stack([each.users for each in slices]).sum(0) == 1).all()


def test_slices_of_a_training_set_without_any_item():
    assert [each.size for each in popularity_slices(torch.tensor([0, 1]), torch.zeros(3, dtype=torch.int64))] == [2]


def test_coverage_counts_items_once_and_no_padding():
    ranked = torch.tensor([[0, 1, 5], [1, 0, -1], [2, -1, -1]])
    assert coverage(ranked, 2, 10) == pytest.approx(0.3)
    assert coverage(ranked, 3, 10) == pytest.approx(0.4)


def test_evaluate_has_the_means_and_the_cold_slice(lists):
    _, ranked, target = lists
    counts = torch.bincount(target[:20], minlength=ITEMS)
    scores = evaluate(ranked, target, counts, ks=(5, 20))
    cold = counts[target] == 0
    recall, ndcg = recall_ndcg(ranks(ranked, target), 5)
    assert scores["users"] == USERS
    assert scores["cold_users"] == int(cold.sum()) > 0
    assert scores["recall@5"] == pytest.approx(float(recall.mean()))
    assert scores["cold_ndcg@5"] == pytest.approx(float(ndcg[cold].mean()))
    assert scores["coverage@20"] == 1.0


def test_bad_lists(lists):
    _, ranked, target = lists
    with pytest.raises(ValueError, match="expected ranked"):
        ranks(ranked, target[1:])
    with pytest.raises(ValueError, match="from 0, got -1"):
        ranks(ranked, target - target.min() - 1)
    with pytest.raises(ValueError, match="k must be at least 1"):
        recall_ndcg(ranks(ranked, target), 0)
    with pytest.raises(ValueError, match="k must be from 1 to 25, the number of items in a list"):
        evaluate(ranked, target, torch.ones(ITEMS), ks=(5, 50))
    with pytest.raises(ValueError, match="for the same users"):
        paired_bootstrap(torch.ones(3), torch.ones(4))
