"""Drift against counts by hand, and its verdict."""

import numpy as np
import pytest

from ghrq.metrics.drift import drift
from ghrq.report.ids_drift import collision_bound, judge_drift, summary, write_drift

OLD = np.array([[0, 0], [0, 1], [0, 1], [1, 2], [2, 2], [3, 3]])


def test_counts_by_hand():
    new = np.array([[0, 0], [3, 3], [2, 0], [2, 0]])
    rows = np.array([-1, 5, -1, -1])  # the second is published already
    found = drift(OLD, new, rows, [4, 4], (0.1, 0.2))
    assert (found.items_old, found.items_new, found.sampled) == (6, 4, 4)
    assert found.collisions_old == pytest.approx(2 / 6)
    assert found.placed == 3
    assert found.usage_new == [3 / 4, 2 / 4]
    shares = np.array([1, 2, 1]) / 4
    assert found.perplexity_new[0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert drift(OLD, new, rows, [4, 4], (0.1, 0.2), hidden=True).collisions_old is None
    assert found.to_dict()["error_new"] == 0.2


def test_collisions_are_those_of_a_catalogue_of_the_same_size():
    nobody, sizes, errors = np.full(3, -1), [4, 4], (0.1, 0.1)
    alone, together = np.array([[3, 0], [3, 1], [3, 2]]), np.array([[3, 0], [3, 0], [3, 0]])
    assert drift(OLD, alone, nobody, sizes, errors).collisions_new == 0.0
    assert drift(OLD, together, nobody, sizes, errors).collisions_new == 1.0
    # Items that are published already do not collide with themselves.
    assert drift(OLD, OLD[[0, 3, 4]], np.array([0, 3, 4]), sizes, errors).collisions_new == 0.0
    assert drift(np.zeros((8, 2), int), np.zeros((2, 2), int), nobody[:2], sizes, errors).collisions_new == 1.0
    # Twice as many items of the same kind would collide in 39 % instead of 22 %: that is no drift.
    old, new = (np.random.default_rng(seed).integers(0, 64, (1000, 2)) for seed in (0, 1))
    found = drift(old, new, np.full(1000, -1), [64, 64], errors)
    assert found.collisions_new == pytest.approx(found.collisions_old, abs=0.05)


@pytest.mark.parametrize("old", [0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995])
def test_the_bound_on_collisions_works_over_the_whole_range(old):
    bound = collision_bound(old, 10**6, 10**5)
    assert old < bound < 1.0
    odds = old / (1.0 - old)
    assert 3.0 * odds / (1.0 + 3.0 * odds) > bound or old < 0.03
    assert 1.5 * odds / (1.0 + 1.5 * odds) < bound
    assert collision_bound(old, 10**6, 10**4) >= bound  # fewer items are less sure
    assert collision_bound(old, 10**6, 2) > bound or old == 0.0


def test_the_bound_in_numbers_and_where_nothing_can_be_told():
    assert collision_bound(0.0, 10**6, 10**5) == 0.05
    assert collision_bound(0.04, 10**6, 10**5) == pytest.approx(0.08 / 1.04)
    assert collision_bound(0.9, 10**6, 10**5) == pytest.approx(1.8 / 1.9)
    assert collision_bound(0.98, 10**4, 100) >= 1.0
    assert collision_bound(1.0, 10**4, 100) >= 1.0


@pytest.mark.parametrize("codes", [400, 60, 33])
def test_false_alarms_are_rare_and_crowding_is_found(codes):
    """Of 3,000 items 2 %, 57 % and 94 % share a tuple; before, nothing could fail above 50 %."""
    old = np.random.default_rng(0).integers(0, codes, (3000, 2))
    found, alarms = [], 0
    for seed in range(1, 41):
        random = np.random.default_rng(seed)
        same, crowded = random.integers(0, codes, (1500, 2)), random.integers(0, codes // 4, (1500, 2))
        for new in (same, crowded):
            measured = drift(old, new, np.full(1500, -1), [codes] * 2, (0.1, 0.1))
            checks = {check.name: check.passed for check in judge_drift(measured).checks}
            alarms += not checks["items that share a tuple"] and new is same
            found.append(checks["items that share a tuple"])
    assert alarms == 0
    assert not any(found[1::2])


def made(error=(0.2, 0.2), seed=1, few=False):
    old = np.random.default_rng(0).integers(0, 64, (3000, 3))
    new = np.random.default_rng(seed).integers(0, 64, (50 if few else 500, 3))
    return old, new, np.full(len(new), -1), [64] * 3, error


def test_equal_items_are_no_drift_and_each_bound_is_named(tmp_path):
    same = drift(*made())
    assert judge_drift(same).verdict == "no drift"
    assert [row[0] for row in summary(same)][:4] == ["", "items", "error, of the variance", "share a tuple"]
    assert judge_drift(drift(*made((0.2, 0.251)))).advice == (
        "Fit again: the codes lose 25% more of the new items than of the published ones, 25% is the bound."
    )
    assert judge_drift(drift(*made((0.2, 0.249)))).verdict == "no drift"
    assert judge_drift(drift(*made(few=True))).verdict == "too few new items to tell"
    assert "give the old table with --old" in judge_drift(drift(*made((None, 0.2)))).advice
    old, new, rows, sizes, errors = made()
    crowded = new.copy()
    crowded[:, 1] %= 8
    assert judge_drift(drift(old, crowded, rows, sizes, errors)).verdict == "the new items crowd into few codes"
    colliding = np.concatenate((new[:450], old[:50]))
    verdict = judge_drift(drift(old, colliding, rows, sizes, errors))
    assert verdict.verdict == "the new items collide"
    assert "bound" in verdict.advice

    page = write_drift(drift(*made((0.2, 0.4))), tmp_path / "drift.html").read_text()
    assert "the new items do not fit" in page
    assert page.count("<svg") == 3
    assert write_drift(drift(*made((None, 0.4))), tmp_path / "drift.html").exists()
