"""k-means on the ball: where it starts and where it ends."""

import pytest
import torch

from ghrq import ball
from ghrq.geometry import kmeans as module
from ghrq.geometry import midpoints
from ghrq.geometry.gradients import to_ball
from ghrq.geometry.kmeans import kmeans
from ghrq.geometry.nearest import nearest
from ghrq.quantizer.cascade import residual

curvatures = pytest.mark.parametrize("c", [0.0, 0.5, 2.0])


def points(count: int, dim: int, c: float, groups: int = 50, spread: float = 0.3) -> torch.Tensor:
    centres = torch.randn(groups, dim)
    v = centres[torch.randint(groups, (count,))] + spread * torch.randn(count, dim)
    return to_ball(v * (0.5 / dim**0.5), c)[0]


def mean_square(x: torch.Tensor, centres: torch.Tensor, c: float) -> float:
    chosen = centres[nearest(x, centres, c)]
    distance = ball.distance(x, chosen, c) if c > 0.0 else (x - chosen).norm(dim=1)
    return float(distance.square().mean())


@curvatures
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_midpoints_are_the_midpoints(c, dtype, monkeypatch):
    monkeypatch.setattr(midpoints, "_SORTED_ROWS", 70)  # several pieces, the last one shorter
    x = points(500, 6, c).to(dtype)
    index = torch.randint(9, (500,))
    index[index == 4] = 3  # a group without points
    old = points(9, 6, c).to(dtype)
    found = module._midpoints(x, 2.0 / ball.gap(x, c), index, old, c)
    expected = midpoints.from_sums(*midpoints.sums(x, index, 9, c), c).to(dtype)
    expected[4] = old[4]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_a_point_at_the_boundary_weighs_no_more_than_the_heaviest():
    torch.manual_seed(0)
    x = ball.expmap0(torch.cat((0.3 * torch.randn(40, 3), 6.0 * torch.randn(3, 3))).double())
    index, weights = torch.arange(43) % 2, torch.rand(43).double()
    weights[0] = 0.0
    factor = 2.0 / ball.gap(x).squeeze(-1)
    less = torch.where(factor > 5.0, 5.0 / factor, 1.0)
    assert 1 < int((less < 1.0).sum()) < 10
    found = midpoints.sums(x, index, 2, 1.0, weights, heaviest=5.0)
    for one, other in zip(found, midpoints.sums(x, index, 2, 1.0, weights * less), strict=True):
        torch.testing.assert_close(one, other)


def test_midpoints_next_to_the_boundary_stay_inside_and_keep_their_digits():
    direction = torch.nn.functional.normalize(torch.randn(300, 5, dtype=torch.float64), dim=1)
    x = (direction * (1 - 10.0 ** -torch.linspace(2, 5.5, 300).double()).unsqueeze(1)).float()
    index = torch.arange(300) // 30
    found = module._midpoints(x, 2.0 / ball.gap(x, 1.0), index, x[:10], 1.0)
    expected = torch.stack([ball.midpoint(x[index == i].double()) for i in range(10)])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@curvatures
def test_rounds_end_where_nothing_moves(c):
    x = points(3000, 4, c)
    centres = kmeans(x, 20, c, iterations=200)
    again = module._midpoints(x, 2.0 / ball.gap(x, c), nearest(x, centres, c), centres, c)
    torch.testing.assert_close(again, centres, rtol=1e-4, atol=1e-5)


@curvatures
def test_more_iterations_do_not_make_it_worse(c):
    x = points(4000, 16, c)
    errors = []
    for iterations in (1, 5, 25):
        torch.manual_seed(0)
        errors.append(mean_square(x, kmeans(x, 30, c, iterations), c))
    assert errors[0] > errors[1] >= errors[2]


@curvatures
def test_centres_start_apart_and_find_small_groups(c):
    """Eight small groups next to a large one that has nine points in ten: random points would miss most of them."""
    x = points(500, 8, c, groups=1, spread=0.01)
    for i in range(8):
        x[i * 6 : i * 6 + 6] = to_ball(torch.eye(8)[i] * 0.9 / max(c, 1.0) ** 0.5 + 0.001 * torch.randn(6, 8), c)[0]
    centres = kmeans(x, 16, c)
    assert nearest(x[:48], centres, c).view(8, 6)[:, 0].unique().numel() == 8
    assert mean_square(x[:48], centres, c) < 1e-3 * mean_square(x[:48], x[100:101], c)


@pytest.mark.slow
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_start_pays_in_many_dimensions(c):
    """Against as many rounds from random points: three stages on topics within subjects, in 160 dimensions."""
    found = plain = 0.0
    for seed in range(2):
        torch.manual_seed(seed)
        topics = torch.randn(10, 160)[torch.randint(10, (200,))] + 0.6 * torch.randn(200, 160)
        v = topics[torch.randint(200, (6000,))] + 0.5 * torch.randn(6000, 160) * torch.exp(-torch.arange(160) / 40)
        x = to_ball(v * (0.5 / v.norm(dim=1).median()), c)[0]
        found += left_after(x, 3, c, lambda r: kmeans(r, 64, c))
        plain += left_after(x, 3, c, lambda r: module._rounds(r, r[torch.randperm(len(r))[:64]], c, 20, False)[0])
    assert found < 0.95 * plain


def left_after(x: torch.Tensor, stages: int, c: float, centres_of) -> float:
    for _ in range(stages):
        centres = centres_of(x)
        x = residual(x, centres[nearest(x, centres, c)], c, "nested")
    return mean_square(x, torch.zeros(1, x.shape[1]), c)


@curvatures
@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_a_progressive_start_ends_where_every_start_does(dim, c):
    x = points(3000, dim, c)
    torch.manual_seed(0)
    plain = mean_square(x, kmeans(x, 20, c), c)
    torch.manual_seed(0)
    centres = kmeans(x, 20, c, progressive=True)
    assert centres.shape == (20, dim)
    assert mean_square(x, centres, c) < 1.15 * plain


@curvatures
def test_few_points_and_points_in_one_place(c):
    x = points(12, 3, c)
    centres = kmeans(x, 12, c)
    assert mean_square(x, centres, c) < 1e-9  # each point has its own
    same = x[:1].repeat(40, 1)
    torch.testing.assert_close(kmeans(same, 5, c), same[:5], rtol=1e-5, atol=1e-6)
    assert bool(kmeans(torch.zeros(40, 3), 5, c).isfinite().all())
    with pytest.raises(ValueError, match="at least as many"):
        kmeans(x, 13, c)


def test_only_as_many_points_as_needed_are_looked_at(monkeypatch):
    seen = []
    true = module.search
    monkeypatch.setattr(module, "search", lambda x, *rest: seen.append(len(x)) or true(x, *rest))
    kmeans(torch.randn(10_000, 3), 4, 0.0)
    assert max(seen) == 4 * 256
