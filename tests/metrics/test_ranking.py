"""Recall against a plain count pair by pair, and the reconstruction against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from ghrq import ball
from ghrq.metrics.ranking import beam_for, rank_pairs, recall, reconstruction_map

THINGS, N, K = 40, 2, 4


def plain_recall(ranked, sources, test, train, codes, k):
    """One pair and one tuple of its list at a time."""
    tuples = [tuple(row) for row in codes.tolist()]
    lists = {s: list(map(tuple, rows)) for s, rows in zip(sources.tolist(), ranked.tolist(), strict=True)}
    totals = np.zeros(6)
    for u, v in test.tolist():
        known = {b for a, b in train.tolist() if a == u}
        known_tuples = {tuples[b] for b in known}
        wanted = tuples[v]
        sharing = {x for x in range(len(tuples)) if tuples[x] == wanted}
        row = lists[u]

        def only_known(t, known=known):
            owners = {x for x in range(len(tuples)) if tuples[x] == t}
            return bool(owners) and owners <= known

        new = [t for t in row if t not in known_tuples or t == wanted]
        hit, hit_new = wanted in row[:k], wanted in new[:k]
        hit_entity = wanted in [t for t in row if not only_known(t)][:k]
        left = len(sharing - known)
        short = len([t for t in row if t not in known_tuples]) < k
        totals += hit, hit_new, hit / len(sharing), hit_entity / left, hit_entity / len(sharing), short
    return totals / len(test)


@pytest.fixture
def task():
    """40 things of 16 tuples, so that most share theirs; lists of 12 distinct tuples, some that nothing has."""
    codes = torch.randint(K, (THINGS, N))
    codes[codes.sum(1) == 5] = 0
    sources = torch.randperm(THINGS)[:25]
    everything = torch.cartesian_prod(torch.arange(K), torch.arange(K))
    ranked = torch.stack([everything[torch.randperm(len(everything))[:12]] for _ in sources])
    pairs = torch.cartesian_prod(torch.arange(THINGS), torch.arange(THINGS))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]][torch.randperm(THINGS * (THINGS - 1))]
    train, test = pairs[:300], pairs[300:900]
    return ranked, sources, test[torch.isin(test[:, 0], sources)], train, codes


@pytest.mark.parametrize("k", [1, 3, 8, 12])
def test_recall_is_what_counting_gives(task, k):
    mine = recall(rank_pairs(*task), k)
    theirs = plain_recall(*task, k)
    np.testing.assert_allclose(mine, theirs, atol=1e-12)
    if k == 3:
        assert mine.tuple < mine.tuple_filtered
        assert mine.entity_filtered_strict < mine.entity_filtered < mine.tuple_filtered
        assert mine.entity < mine.tuple


def test_arrays_do_as_well_and_doubled_training_pairs_count_once(task):
    ranked, sources, test, train, codes = task
    arrays = [t.numpy() for t in (sources, test, torch.cat((train, train)), codes)]
    assert recall(rank_pairs(ranked, *arrays), 5) == recall(rank_pairs(*task), 5)


def test_one_list_by_hand():
    # Things 0 to 5; 1 and 2 share a tuple, 3 and 4 another. 0 is below 1, 3 and 4 in training; 2 and 5 are held out.
    codes = torch.tensor([[0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [3, 3]])
    train, test = torch.tensor([[0, 1], [0, 3], [0, 4]]), torch.tensor([[0, 2], [0, 5]])
    ranked = torch.tensor([[[2, 2], [1, 1], [0, 1], [3, 3]]])
    ranks = rank_pairs(ranked, [0], test, train, codes)
    assert ranks.plain.tolist() == [1, 3]
    # (2, 2) goes everywhere, since 3 and 4 are both known. (1, 1) is 2's own; for 5 it goes as 1's tuple, but stays
    # as the tuple of 2, which is not known. (0, 1) is nobody's and stays.
    assert ranks.tuple_filtered.tolist() == [0, 1]
    assert ranks.entity_filtered.tolist() == [0, 2]
    assert ranks.sharing.tolist() == [2, 1]
    assert ranks.left.tolist() == [1, 1]
    assert recall(ranks, 1) == (0.0, 0.5, 0.0, 0.5, 0.25, 0.0)
    assert recall(ranks, 3).short == 1.0


def test_fillers_at_the_end_change_nothing(task):
    ranked, *rest = task
    filled = torch.cat((ranked, ranked[:, :1].expand(-1, 5, -1)), dim=1)
    for k in (1, 5, 12):
        assert recall(rank_pairs(filled, *rest), k)[:5] == recall(rank_pairs(ranked, *rest), k)[:5]


def test_the_beam_leaves_k_after_filtering():
    train = [[0, 1], [0, 2], [0, 2], [1, 2], [3, 0], [3, 1], [3, 2]]
    assert beam_for(10, train, [0, 1]) == 12
    assert beam_for(10, train, [3]) == 13
    assert beam_for(10, train, [2, 9]) == 10
    assert beam_for(10, train, [3], most=12) == 12
    assert beam_for(10, train, [3], most=5) == 10


def test_mistakes_in_ranking_are_named(task):
    ranked, sources, test, train, codes = task
    with pytest.raises(ValueError, match="test pairs are in train"):
        rank_pairs(ranked, sources, test, torch.cat((train, test[:1])), codes)
    with pytest.raises(ValueError, match="have no list"):
        rank_pairs(ranked[:1], sources[:1], test, train, codes)
    with pytest.raises(ValueError, match="distinct"):
        rank_pairs(ranked, sources.clone().fill_(3), test, train, codes)
    with pytest.raises(ValueError, match="from 0 to 39"):
        rank_pairs(ranked, sources, test, train + 5, codes)
    with pytest.raises(ValueError, match="ranked of shape"):
        rank_pairs(ranked[..., :1], sources, test, train, codes)
    with pytest.raises(ValueError, match="integers"):
        rank_pairs(ranked.float(), sources, test, train, codes)
    with pytest.raises(ValueError, match="from 1 to 12"):
        recall(rank_pairs(*task), 13)


@pytest.mark.parametrize("c", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("ties", [False, True])
def test_the_reconstruction_is_scikit_learns_average_precision(c, ties, monkeypatch):
    n = 60
    points = torch.randn(n, 3).double() * 0.2
    if ties:
        # The first coordinate alone, on a coarse grid: many nodes at one distance.
        points = torch.nn.functional.pad((torch.rand(n, 1).double() * 5).round() / 8, (0, 2))
    counts = np.random.default_rng(0).integers(0, 8, n)
    rows = [np.random.default_rng(i).choice(np.delete(np.arange(n), i), m, replace=False) for i, m in enumerate(counts)]
    indptr, indices = np.concatenate(([0], np.cumsum(counts))), np.concatenate(rows)
    sources = np.random.default_rng(1).permutation(n)[:40]
    monkeypatch.setattr("ghrq.metrics.ranking._CHUNK", n * 7)
    mine = reconstruction_map(points, indptr, indices, sources, c)

    distances = ball.pairwise_distance(points, points, c).numpy()
    if ties:
        distances = distances.round(9)
    precisions, ranks = [], []
    for u in sources[counts[sources] > 0]:
        others = np.delete(np.arange(n), u)
        true = np.isin(others, rows[u])
        precisions.append(average_precision_score(true, -distances[u, others]))
        ranks += [(distances[u, others[~true]] <= distances[u, v]).sum() + 1 for v in rows[u]]
    assert mine.sources == len(precisions) < 40
    assert mine.mean_average_precision == pytest.approx(np.mean(precisions), abs=1e-12)
    assert mine.mean_rank == pytest.approx(np.mean(ranks), abs=1e-12)


def test_the_reconstruction_holds_next_to_the_boundary():
    # A star of pairs far out, each node's ancestor its near neighbour: only exact digits tell it from the rest.
    n = 40
    out = torch.nn.functional.normalize(torch.randn(n, 8).double(), dim=1) * (1 - 1e-5)
    near = ball.expmap(out, 1e-3 * 1e-5 * torch.nn.functional.normalize(torch.randn(n, 8).double(), dim=1))
    result = reconstruction_map(
        torch.cat((out, near)),
        np.concatenate((np.arange(n + 1), np.full(n, n))),
        np.arange(n, 2 * n),
        np.arange(n),
        1.0,
    )
    assert result == (1.0, 1.0, n)


def test_no_ancestor_at_all_is_an_error():
    with pytest.raises(ValueError, match="nothing to reconstruct"):
        reconstruction_map(torch.zeros(3, 2), [0, 0, 1, 1], [0], [0, 2], 1.0)
    with pytest.raises(ValueError, match="indptr"):
        reconstruction_map(torch.zeros(3, 2), [0, 0, 1], [0], [0, 2], 1.0)
    with pytest.raises(ValueError, match="1 of 3 points"):
        reconstruction_map(torch.tensor([[0.0], [torch.nan], [0.1]]), [0, 0, 1, 1], [0], [1], 1.0)
