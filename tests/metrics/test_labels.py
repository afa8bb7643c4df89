"""Agreement of groups with labels: scikit-learn's numbers, at a size that scikit-learn cannot do, and columns."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from ghrq.metrics.labels import NO_LABEL, expected_mutual_information, label_agreement, label_levels


def some(seed, items=600, groups=40, labels=7):
    """Groups that know something of labels: sizes are uneven, as those of codes."""
    chance = np.random.default_rng(seed)
    label = np.minimum(chance.geometric(0.3, items) - 1, labels - 1)
    group = np.where(chance.random(items) < 0.6, label * 5 + chance.integers(5, size=items), chance.integers(groups))
    return group, label


@pytest.mark.parametrize("seed", range(3))
def test_the_measures_are_those_of_scikit_learn(seed):
    coarse, label = some(seed)
    fine = coarse * 50 + np.random.default_rng(seed).integers(50, size=len(coarse))
    found = label_agreement("x", [coarse, fine], label, seed)
    for depth, group in enumerate((coarse, fine)):
        expected = {
            "nmi": metrics.normalized_mutual_info_score(label, group),
            "ami": metrics.adjusted_mutual_info_score(label, group),
            "ari": metrics.adjusted_rand_score(label, group),
            "purity": sum(np.bincount(label[group == g]).max() for g in np.unique(group)) / len(label),
        }
        for name, value in expected.items():
            assert getattr(found.codes, name)[depth] == pytest.approx(value, abs=1e-10), (name, depth)
    assert (found.level, found.items, found.labels) == ("x", len(label), len(np.unique(label)))


def test_shuffled_labels_rise_with_the_number_of_groups_and_the_adjusted_measures_do_not():
    coarse, label = some(0, items=3000)
    alone = np.arange(3000)
    found = label_agreement("x", [coarse, coarse * 100 + alone % 100, alone], label)
    assert found.shuffled.purity == sorted(found.shuffled.purity)
    assert found.shuffled.nmi == sorted(found.shuffled.nmi)
    assert found.shuffled.purity[2] == 1.0
    assert np.abs(found.shuffled.ami).max() < 0.01
    assert np.abs(found.shuffled.ari).max() < 0.01
    assert found.codes.ami[0] > 0.2
    assert found.codes.ami[2] == pytest.approx(0.0, abs=1e-9), "groups of one know nothing"


@pytest.mark.parametrize(
    ("group", "label", "nmi"),
    [([0, 0, 0, 0], [0, 0, 1, 1], 0.0), ([0, 1, 2, 3], [0, 1, 2, 3], 1.0), ([0, 0, 1, 1], [1, 1, 0, 0], 1.0)],
)
def test_groups_at_the_ends_of_the_scale(group, label, nmi):
    found = label_agreement("x", [np.array(group)], np.array(label)).codes
    assert found.nmi == [pytest.approx(nmi)]
    assert found.ami == [pytest.approx(metrics.adjusted_mutual_info_score(label, group))]


def test_items_without_a_label_are_left_out():
    group, label = some(1)
    missing = np.arange(len(label)) % 3 == 0
    found = label_agreement("x", [group], np.where(missing, NO_LABEL, label))
    assert found.items == (~missing).sum()
    assert found.codes == label_agreement("x", [group[~missing]], label[~missing]).codes


@pytest.mark.slow
def test_the_expectation_is_the_mean_over_shuffles():
    first, second = np.array([30, 20, 7, 7, 1, 1]), np.array([40, 20, 6])
    a, b = np.repeat(np.arange(6), first), np.repeat(np.arange(3), second)
    chance = np.random.default_rng(0)
    mean = np.mean([metrics.mutual_info_score(a, chance.permutation(b)) for _ in range(400)])
    assert expected_mutual_information(first, second) == pytest.approx(mean, rel=0.05)


def test_the_expectation_of_large_groups_keeps_all_that_counts():
    """Means of thousands, where only counts around the mean are summed up; scikit-learn sums up all of them."""
    cluster = pytest.importorskip("sklearn.metrics.cluster")
    first, second = np.array([9000, 6000, 4000, 1000]), np.array([12000, 7990, 10])
    a, b = np.repeat(np.arange(4), first), np.repeat(np.arange(3), second)
    table = cluster.contingency_matrix(a, b, sparse=True)
    exact = cluster.expected_mutual_information(table, 20000)
    assert expected_mutual_information(first, second) == pytest.approx(exact, rel=1e-8)


@pytest.mark.slow
def test_the_expectation_for_a_million_items_is_what_a_shuffle_gives():
    """300,000 groups against 1,000 labels; scikit-learn's sum over all pairs takes minutes."""
    chance = np.random.default_rng(0)
    first = chance.zipf(2.0, 300_000).clip(max=3000)
    label = chance.integers(1000, size=first.sum())
    assert len(label) > 1_000_000
    dealt = metrics.mutual_info_score(np.repeat(np.arange(len(first)), first), label)
    assert expected_mutual_information(first, np.bincount(label)) == pytest.approx(dealt, rel=1e-3)


# --- columns -------------------------------------------------------------------------------------------------------


def same_groups(numbers, expected):
    """Numbers may be any, as long as the same things have the same ones."""
    return len(set(zip(numbers.tolist(), expected, strict=True))) == len(set(expected)) == len(set(numbers.tolist()))


def test_paths_are_cut_into_levels_and_the_same_name_below_two_parents_is_two_labels():
    paths = ["shop > hair > tools", "shop > nails > tools", "shop > hair", "shop > hair > tools", None, ""]
    levels = label_levels(paths, 6, " > ")
    assert list(levels) == ["level 2", "level 3"], "all that have a label share the first level: it says nothing"
    assert same_groups(levels["level 2"], ["h", "n", "h", "h", NO_LABEL, NO_LABEL])
    assert same_groups(levels["level 3"], ["ht", "nt", NO_LABEL, "ht", NO_LABEL, NO_LABEL])
    assert levels["level 3"][2] == NO_LABEL
    assert levels["level 2"][4] == levels["level 2"][5] == NO_LABEL


TEXTS = ["a", "b", "a", None]
COLUMNS = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "numpy": lambda: np.array(TEXTS, dtype=object),
    "pandas": lambda: pytest.importorskip("pandas").Series(TEXTS),
    "categories": lambda: pytest.importorskip("pandas").Series(TEXTS, dtype="category"),
    "polars": lambda: pytest.importorskip("polars").Series(TEXTS),
    "numbers": lambda: [1, 2, 1, None],
    "NaN": lambda: np.array([1.0, 2.0, 1.0, np.nan]),
    "tensor": lambda: torch.tensor([1.0, 2.0, 1.0, torch.nan]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_may_be_of_any_library(kind):
    (numbers,) = label_levels(COLUMNS[kind](), 4).values()
    assert same_groups(numbers, ["a", "b", "a", "none"])
    assert numbers[3] == NO_LABEL


def test_several_columns_are_levels():
    expected = {"level 1": ["a", "b", "b"], "level 2": ["c", "c", "d"]}
    given = list(expected.values())
    for columns in (given, tuple(given), np.array(given).T):
        found = label_levels(columns, 3)
        assert list(found) == ["level 1", "level 2"]
        assert all(same_groups(found[name], expected[name]) for name in found)
    assert list(label_levels({"brand": given[0], "kind": given[1]}, 3)) == ["brand", "kind"]


def test_a_first_label_that_is_missing_is_no_column():
    assert list(label_levels([None, "a", "b"], 3)) == ["label"]


@pytest.mark.parametrize(
    ("labels", "separator", "message"),
    [
        (["a", "b"], None, r"expected 3 labels, one for each tuple, got 2"),
        ([["a", "b", "c"], ["a", "b"]], None, r"got 2 for 'level 2'"),
        (["a", "a", "a"], None, "at least two kinds"),
        ([None, None, None], None, "at least two kinds"),
        (["a", 1, "b"], None, "labels of one type"),
        ([1, 2, 3], ">", "splits text, got labels of type int64"),
        ({"x": ["a", "b", "c"], "y": ["a", "b", "c"]}, ">", "one column of paths"),
    ],
)
def test_bad_labels_are_said_plainly(labels, separator, message):
    with pytest.raises(ValueError, match=message):
        label_levels(labels, 3, separator)
