"""The baselines without a model against plain references, and the figures of WordNet that others are held against."""

import numpy as np
import pytest

from ghrq.data import wordnet
from ghrq.data.closure import Split, closure, split_closure, split_direct, wordnet_closure
from ghrq.metrics.baselines import composition_recall, popularity_recall, random_codes


def random_edges(seed: int) -> np.ndarray:
    """Some hundred edges of a hierarchy of 60 nodes."""
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.integers(60, size=(110, 2)), axis=1).T
    return rng.permutation(60)[np.stack((high, low), axis=1)[low < high]]


def random_split(seed: int) -> Split:
    return split_closure(closure(random_edges(seed), 60), 0.3, seed)


def plain_recall(train, test, k, compose: bool) -> tuple[float, float, float]:
    """One list a node, ranked and cut."""
    above: dict[int, set[int]] = {}
    frequency: dict[int, int] = {}
    for u, v in train.tolist():
        above.setdefault(u, set()).add(v)
        frequency[v] = frequency.get(v, 0) + 1

    def reached(u):
        return {a for v in above.get(u, ()) for a in (v, *reached(v))}

    hits = np.zeros(3)
    for u, v in test.tolist():
        ranked = sorted(reached(u) if compose else frequency, key=lambda a: (-frequency[a], a))
        filtered = [a for a in ranked if a not in above.get(u, ())]
        hits += v in ranked[:k], v in filtered[:k], v in ranked
    return tuple(hits / len(test))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 3, 10])
def test_against_plain_lists(seed, k):
    split = random_split(seed)
    expected = plain_recall(split.train, split.test, k, compose=False)
    assert tuple(popularity_recall(split.train, split.test, k)) == pytest.approx(expected)
    expected = plain_recall(split.train, split.test, k, compose=True)
    assert tuple(composition_recall(split.train, split.test, 60, k)) == pytest.approx(expected)
    assert 0.0 < expected[0] < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "popularity", "reachable"), [(False, 0.413, 0.842), (True, 0.416, 0.845)])
def test_wordnet_has_the_recorded_figures(instances, popularity, reachable):
    # Recorded of one split; splits differ by ±0.15 %.
    above = wordnet_closure(wordnet.load(), instances)
    split = split_closure(above)
    popular = popularity_recall(split.train, split.test)
    composed = composition_recall(split.train, split.test, above.size)
    assert popular.unfiltered == pytest.approx(popularity, abs=0.005)
    assert composed.unfiltered == pytest.approx(0.801, abs=0.005)
    assert composed.reachable == pytest.approx(reachable, abs=0.005)
    assert popular.filtered > popular.unfiltered + 0.02
    assert composed.filtered == pytest.approx(composed.reachable, abs=0.001)


@pytest.mark.parametrize("seed", range(6))
def test_composition_finds_nothing_of_held_out_direct_edges(seed):
    edges = random_edges(seed)
    split = split_direct(edges, closure(edges, 60), 0.3, seed)
    assert tuple(composition_recall(split.train, split.test, 60)) == (0.0, 0.0, 0.0)
    assert popularity_recall(split.train, split.test).reachable > 0.5


def test_bad_pairs():
    split = random_split(0)
    with pytest.raises(ValueError, match=r"test is pairs \(M, 2\) .* at least one, got \(0, 2\)"):
        popularity_recall(split.train, split.test[:0])
    with pytest.raises(ValueError, match=r"train is pairs"):
        composition_recall(split.train[:, 0], split.test, 60)
    with pytest.raises(ValueError, match=r"nodes of train are 0 to 4"):
        composition_recall(split.train, split.test, 5)
    with pytest.raises(ValueError, match="k is at least 1"):
        popularity_recall(split.train, split.test, 0)


@pytest.mark.parametrize(("count", "size", "stages"), [(64, 4, 3), (60, 4, 3), (5, 100, 2)])
def test_random_codes_are_distinct_and_depend_on_the_seed_only(count, size, stages):
    codes = random_codes(count, size, stages, seed=1)
    assert codes.shape == (count, stages)
    assert len(codes.unique(dim=0)) == count
    assert 0 <= int(codes.min()) <= int(codes.max()) < size
    assert (random_codes(count, size, stages, seed=1) == codes).all()
    assert (random_codes(count, size, stages, seed=2) != codes).any()


def test_more_random_codes_than_there_are_tuples_are_refused():
    assert len(random_codes(4, (2, 2), 2, seed=0).unique(dim=0)) == 4
    with pytest.raises(ValueError, match="allow only 4 tuples for 5: raise one"):
        random_codes(5, (2, 2), 2, seed=0)
