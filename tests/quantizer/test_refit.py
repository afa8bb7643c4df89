"""Codebooks that are fitted together: targets, errors that fall, and a plain least-squares solution."""

from itertools import pairwise

import pytest
import torch

from ghrq import ResidualQuantizer, ball
from ghrq.geometry.gradients import to_ball
from ghrq.geometry.manifold import coadd
from ghrq.quantizer import refit
from ghrq.quantizer.cascade import aggregate
from points import points

N, K, D = 3, 8, 6
RULES = pytest.mark.parametrize(
    ("c", "aggregation"), [(0.0, "nested"), (1.0, "nested"), (1.0, "chained"), (4.0, "nested")]
)


def problem(c, rows=400, seed=0):
    """Points of the ball in groups, codebooks beside the origin, and random tuples."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(20, D, generator=generator).repeat(rows // 20, 1) + 0.3 * torch.randn(rows, D, generator=generator)
    p, gaps = to_ball(0.2 * v / max(c, 1.0) ** 0.5, c)
    books = 0.1 * torch.randn(N, K, D, generator=generator) / max(c, 1.0) ** 0.5
    return p, gaps, books, torch.randint(K, (rows, N), generator=generator)


def mean_square(p, books, codes, c, aggregation):
    z_hat = aggregate([book[column] for book, column in zip(books, codes.unbind(1), strict=True)], c, aggregation).point
    if c == 0.0:
        return float((z_hat - p).square().sum(-1).mean())
    return float(ball.distance(z_hat.double(), p.double(), c).square().mean())


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_adding_on_the_right_undoes_coaddition(c, dtype, close):
    x, y = (points(200, 7, c=c or 1.0, dtype=dtype, seed=seed) for seed in (0, 1))
    torch.testing.assert_close(ball.mobius_add(coadd(x, -y, c), y, c), x, rtol=0, atol=close)
    torch.testing.assert_close(coadd(x, y, c), coadd(y, x, c), rtol=0, atol=close)
    by_gyration = ball.mobius_add(x, ball.gyration(x, -y, y, c), c)  # its definition
    torch.testing.assert_close(coadd(x, y, c), by_gyration, rtol=0, atol=close)


@RULES
def test_a_code_with_one_point_and_no_inertia_solves_it(c, aggregation, monkeypatch):
    """The first stage that is fitted leaves no error if every point has a code of its own there."""
    monkeypatch.setattr(refit, "_INERTIA", 0.0)
    p, gaps, books, codes = problem(c, rows=20)
    own = 0 if aggregation == "nested" else N - 1
    books = torch.cat((books, books.new_zeros(N, 20 - K, D)), dim=1)
    codes[:, own] = torch.arange(20)
    first = refit.moved(p, gaps, books, codes, c, aggregation)
    kept = books.clone()
    kept[own] = first[own]
    assert mean_square(p, kept, codes, c, aggregation) < 1e-10


@RULES
def test_moving_codes_lowers_the_error_at_fixed_tuples(c, aggregation):
    p, gaps, books, codes = problem(c)
    errors = [mean_square(p, books, codes, c, aggregation)]
    for _ in range(4):
        books = refit.moved(p, gaps, books, codes, c, aggregation)
        errors.append(mean_square(p, books, codes, c, aggregation))
    assert all(after < before for before, after in pairwise(errors[:3]))
    assert min(errors[3:]) < 0.9 * errors[0]


def test_in_flat_space_it_ends_at_the_least_squares_solution(monkeypatch):
    monkeypatch.setattr(refit, "_INERTIA", 1e-9)
    p, gaps, books, codes = problem(0.0)
    p, gaps, books = p.double(), gaps.double(), books.double()
    for _ in range(40):
        books = refit.moved(p, gaps, books, codes, 0.0, "nested")
    chosen = torch.nn.functional.one_hot(codes, K).flatten(1).double()  # (n, N·K)
    solved = torch.linalg.lstsq(chosen, p, driver="gelsd").solution.view(N, K, D)
    best = mean_square(p, solved, codes, 0.0, "nested")
    assert mean_square(p, books, codes, 0.0, "nested") == pytest.approx(best, rel=1e-9)


def test_work_in_parts_changes_nothing(monkeypatch):
    p, gaps, books, codes = problem(1.0)
    whole = refit.moved(p, gaps, books, codes, 1.0, "nested")
    monkeypatch.setattr(refit, "_ROWS", 37)
    torch.testing.assert_close(refit.moved(p, gaps, books, codes, 1.0, "nested"), whole, rtol=0, atol=1e-6)


def test_codes_without_points_stay():
    p, gaps, books, codes = problem(1.0)
    found = refit.moved(p, gaps, books, codes.clamp(max=K - 2), 1.0, "nested")
    torch.testing.assert_close(found[:, -1], books[:, -1], rtol=1e-6, atol=1e-7)
    assert not torch.allclose(found[:, 0], books[:, 0], atol=1e-3)


@pytest.mark.parametrize("kind", ["euclidean", "ghrq", "naive"])
@pytest.mark.parametrize("sizes", [16, [8, 16, 32]])
def test_refine_lowers_the_error_of_a_quantizer(kind, sizes):
    torch.manual_seed(0)
    z = torch.randn(40, 8)[torch.randint(40, (1500,))] + 0.5 * torch.randn(1500, 8)
    errors = []
    for refine in (0, 3):
        torch.manual_seed(1)
        rq = ResidualQuantizer(8, sizes, 3, kind, scale_control=True).eval()
        steps: list[int] = []
        used = rq.initialize(z, refine=refine, each_stage=lambda steps=steps: steps.append(1))
        assert len(used) == 3
        assert all(1.0 < value <= size for value, size in zip(used, rq.sizes, strict=True))
        assert len(steps) <= 3 + (refine + 1 if refine else 0)
        errors.append(float(rq.distance(z, rq.encode(z, beam=5)).square().mean()))
        beyond = [rq.codebooks[i, size:] for i, size in enumerate(rq.sizes)]
        assert all(not bool(rest.any()) for rest in beyond)
    assert errors[1] < 0.97 * errors[0]


def test_what_does_not_go_together_is_refused():
    rq = ResidualQuantizer(8, 16, 3)
    with pytest.raises(ValueError, match="balance or refine"):
        rq.initialize(torch.randn(100, 8), refine=2, balance=True)
    with pytest.raises(ValueError, match="refine"):
        rq.initialize(torch.randn(100, 8), refine=-1)
