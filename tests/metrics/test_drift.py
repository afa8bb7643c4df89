"""Drift against counts by hand, and its verdict."""

import numpy as np
import pytest

from ghrq.metrics.drift import drift
from ghrq.report.ids_drift import judge_drift, summary, write_drift

OLD = np.array([[0, 0], [0, 1], [0, 1], [1, 2], [2, 2], [3, 3]])


def test_counts_by_hand():
    new = np.array([[0, 0], [3, 3], [2, 0], [2, 0]])
    rows = np.array([-1, 5, -1, -1])  # the second is published already
    found = drift(OLD, new, rows, [4, 4], (0.1, 0.2))
    assert (found.items_old, found.items_new, found.sampled) == (6, 4, 4)
    assert found.collisions_old == pytest.approx(2 / 6)
    assert found.collisions_new == pytest.approx(3 / 4)  # all but the published one
    assert found.usage_new == [3 / 4, 2 / 4]
    shares = np.array([1, 2, 1]) / 4
    assert found.perplexity_new[0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert drift(OLD, new, rows, [4, 4], (0.1, 0.2), hidden=True).collisions_old is None
    assert found.to_dict()["error_new"] == 0.2


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
