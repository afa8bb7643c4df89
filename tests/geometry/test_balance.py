"""Balanced assignment against the exact one, and what it does to k-means."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from ghrq import ball
from ghrq.geometry import balance
from ghrq.geometry.kmeans import kmeans, perplexity
from ghrq.geometry.nearest import code_table, nearest


def points(count, dim=4, c=1.0):
    """Most in one corner, so that the nearest code is the same one for many."""
    x = 0.2 * torch.randn(count, dim, dtype=torch.float64)
    x[: 3 * count // 4] = 0.2 + 0.1 * x[: 3 * count // 4]
    return ball.expmap0(x, c) if c > 0.0 else x


def assign(x, codes, c, iterations, prices=None):
    gap, square = ball.gap(x, c).to(x.dtype), x.square().sum(-1, keepdim=True)
    prices = x.new_zeros(len(codes)) if prices is None else prices
    return balance.balanced_search(x, square, gap, code_table(codes, c), c, prices, iterations)


def cost_of(x, codes, c):
    return ball.pairwise_distance(x, codes, c).square() if c > 0.0 else torch.cdist(x, codes).square()


@pytest.mark.parametrize("c", [0.0, 1.0, 0.3])
def test_costs_are_squared_distances(c):
    x, codes = points(30, c=c), points(5, c=c)
    found = balance.squared_distances(x, x.square().sum(-1, keepdim=True), ball.gap(x, c), code_table(codes, c), c)
    torch.testing.assert_close(found, cost_of(x, codes, c), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("c", [0.0, 1.0])
@pytest.mark.parametrize(("count", "codes"), [(120, 6), (200, 20), (64, 2)])
def test_it_is_nearly_the_exact_one(c, count, codes):
    x, room = points(count, c=c), count // codes
    books = x[torch.randperm(count)[:codes]]
    cost = cost_of(x, books, c)
    rows, seats = linear_sum_assignment(np.repeat(cost.numpy(), room, axis=1))  # every code has `room` seats
    exact = float(cost[rows, seats // room].sum())
    chosen, prices = assign(x, books, c, 1000)
    counts = chosen.bincount(minlength=codes)
    assert int(cost.argmin(1).bincount(minlength=codes).max()) > 1.5 * room  # the nearest codes are far from balanced
    assert float((counts - room).abs().double().mean()) <= 0.1 * room
    assert int((counts - room).abs().max()) <= 0.4 * room
    assert float(cost.gather(1, chosen.unsqueeze(1)).sum()) <= 1.02 * exact
    # Weak duality: no prices can prove more than the exact cost, right prices prove nearly all of it.
    proved = float((cost + prices).amin(1).sum() - room * prices.sum())
    assert 0.98 * exact <= proved <= exact + 1e-9


def test_prices_of_some_rows_serve_all(monkeypatch):
    x = points(4000, c=0.0)
    codes = x[torch.randperm(4000)[:8]]
    x = x[torch.randperm(4000)]
    monkeypatch.setattr(balance, "_POINTS", 125)
    counts = assign(x, codes, 0.0, 200)[0].bincount(minlength=8)
    assert float(perplexity(counts / 4000)) > 7.8
    assert float(perplexity(nearest(x, codes, 0.0).bincount(minlength=8) / 4000)) < 7.5


def test_equal_points_and_a_single_code_are_no_problem():
    x = torch.ones(20, 3)
    for codes in (x[:4], x[:1]):
        chosen, prices = assign(x, codes, 0.0, 10)
        assert bool(prices.isfinite().all())
        assert bool((chosen < len(codes)).all())
    assert bool(kmeans(x, 4, 0.0, 3, balance=True).isfinite().all())


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_centres_of_balanced_groups_are_the_nearest_ones_equally_often(c):
    x = points(3000, 8, c).float()
    plain, even = (kmeans(x, 32, c, 10, balance=balanced) for balanced in (False, True))
    shares = [nearest(x, centres, c).bincount(minlength=32) / 3000 for centres in (plain, even)]
    errors = [float(cost_of(x, centres, c).amin(1).mean()) for centres in (plain, even)]
    assert float(perplexity(shares[1])) > float(perplexity(shares[0])) + 2.0
    assert float(perplexity(shares[1])) > 28.0
    assert errors[1] < 1.5 * errors[0]  # what balance costs where most points are in one corner
    torch.manual_seed(3)
    first = kmeans(x, 32, c, 4, balance=True)
    torch.manual_seed(3)
    assert torch.equal(kmeans(x, 32, c, 4, balance=True), first)
