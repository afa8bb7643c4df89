"""The fast search against exact distances in float64, above all where float32 cannot tell codes apart."""

import pytest
import torch

from ghrq import ball
from ghrq.geometry import nearest
from ghrq.geometry.nearest import _minimum

ROWS = 20_000


def nearest_plain(x: torch.Tensor, codes: torch.Tensor, c: float) -> torch.Tensor:
    """By differences in float64. Along a row distances rise with ``‖x - y‖²/β``: no asinh for each of the pairs."""
    gaps = ball.gap(codes, c).mT
    parts = [torch.cdist(part, codes, compute_mode="donot_use_mm_for_euclid_dist") for part in x.split(2000)]
    return torch.cat([(length.square_() / gaps).argmin(1) for length in parts])


def wrong_codes(x: torch.Tensor, codes: torch.Tensor, c: float = 1.0) -> float:
    """Share of rows whose code is, relatively, more than 1e-5 farther away than the nearest one."""
    found, x, codes = nearest.nearest(x, codes, c), x.double(), codes.double()
    best = nearest_plain(x, codes, c)
    rows = (found != best).nonzero()[:, 0]
    taken, least = (ball.distance(x[rows], codes[chosen[rows]], c) for chosen in (found, best))
    return float((taken > least * (1 + 1e-5)).sum()) / len(x)


def sphere(n: int, d: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, d, dtype=torch.float64), dim=-1)


@pytest.mark.parametrize("radius", [0.5, 0.99999])
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_plain_search_is_by_distance(radius, c):
    x, codes = sphere(300, 8) * radius, sphere(200, 8) * torch.rand(200, 1).double() * radius
    codes[1::2] = codes[::2] + sphere(100, 8) * 1e-4 * (1 - radius)
    found = nearest_plain(x, codes, c)
    exact = ball.pairwise_distance(x, codes, c)
    torch.testing.assert_close(exact.gather(1, found[:, None])[:, 0], exact.amin(1), rtol=1e-12, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8, 64])
@pytest.mark.parametrize("radius", [0.5, 0.9, 0.999, 0.99999])
def test_a_spread_codebook(d, radius):
    codes = (sphere(512, d) * torch.rand(512, 1).double() * radius).float()
    assert wrong_codes((sphere(ROWS, d) * radius).float(), codes) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8, 64])
@pytest.mark.parametrize("radius", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("apart", [1e-1, 1e-4])
def test_near_duplicate_pairs(d, radius, apart):
    codes = sphere(512, d) * radius
    codes[1::2] = codes[::2] + sphere(256, d) * apart * (1 - radius)
    codes = ball.project(codes.float())
    close = codes[torch.randint(512, (ROWS,))] + sphere(ROWS, d) * 3 * apart * (1 - radius) * torch.rand(ROWS, 1)
    assert wrong_codes(ball.project(close.float()), codes) <= 1e-4
    assert wrong_codes((sphere(ROWS, d) * radius).float(), codes) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8, 64])
@pytest.mark.parametrize("radius", [0.5, 0.9, 0.999])
def test_a_tight_cluster(d, radius):
    def near(n):
        centre = (torch.eye(d, dtype=torch.float64)[0] * radius).expand(n, d)
        return ball.expmap(centre, 0.5 * (1 - radius**2) * 1e-3 * torch.randn(n, d, dtype=torch.float64)).float()

    assert wrong_codes(near(ROWS), near(512)) <= 1e-4


def test_the_plain_product_alone_would_fail_these():
    # Guards the tests above: without the second look the same codebooks are searched wrongly by the thousand.
    centre = (torch.eye(8, dtype=torch.float64)[0] * 0.999).expand(512, 8)
    codes = ball.expmap(centre, 1e-6 * torch.randn(512, 8, dtype=torch.float64)).float()
    table = nearest.code_table(codes, 1.0)
    x = codes[torch.randint(512, (2000,))]
    plain = (torch.cat((x, 1 - 0.5 * ball.gap(x).float()), dim=1) @ table.matrix).argmin(1)
    exact = ball.pairwise_distance(x.double(), codes.double())
    assert (exact.gather(1, plain[:, None])[:, 0] > exact.min(1).values * (1 + 1e-5) + 1e-12).double().mean() > 0.3
    assert wrong_codes(x, codes) <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("c", [0.0, 0.01, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_curvature(c, dtype):
    size = (c or 1.0) ** -0.5
    codes = (sphere(300, 16) * torch.rand(300, 1).double() * 0.95 * size).to(dtype)
    assert wrong_codes((sphere(5000, 16) * 0.9 * size).to(dtype), codes, c) <= 1e-4


@pytest.mark.parametrize("columns", [1, 7, 64, 128, 255, 256, 300, 512, 1000, 1024])
def test_the_minimum_of_a_row_and_its_place(columns):
    values = torch.randn(100, columns)
    best, place, margin = _minimum(values.clone())
    assert torch.equal(place, values.argmin(1))
    assert torch.equal(best, values.amin(1, keepdim=True))
    two = values.sort(dim=1).values[:, :2]
    expected = two[:, 1:] - two[:, :1] if columns > 1 else torch.full_like(best, torch.inf)
    torch.testing.assert_close(margin, expected, rtol=1e-5, atol=1e-25)


def test_in_float64_too_near_the_boundary_on_both_sides():
    torch.manual_seed(0)
    far = torch.cat((torch.full((200, 1), 8.0), torch.full((200, 1), -8.0))).double()
    x, codes = (ball.expmap0(far * (1.0 + 0.05 * torch.randn_like(far))) for _ in range(2))
    found = nearest.nearest(x, codes)
    exact = 2.0 * (x.atanh() - codes.atanh().mT).abs()
    best = exact.amin(1)
    assert ((exact.gather(1, found.unsqueeze(1)).squeeze(1) - best) <= 1e-6 * (1.0 + best)).all()


def test_what_is_no_number_has_a_code_nevertheless():
    codes = (sphere(300, 4) * 0.5).float()
    found = nearest.nearest(torch.full((5, 4), torch.nan), codes)
    assert ((found >= 0) & (found < 300)).all()


def test_chunks_do_not_show(monkeypatch):
    x, codes = (sphere(1000, 8) * 0.9).float(), (sphere(300, 8) * 0.7).float()
    whole = nearest.nearest(x, codes)
    monkeypatch.setattr(nearest, "CHUNK_BYTES", 300 * 4 * 7)
    assert torch.equal(nearest.nearest(x, codes), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [33, 64, 256, 300, 512])
@pytest.mark.parametrize("c", [0.0, 1.0])
def test_of_codes_that_coincide_the_first_is_chosen_in_any_batch(dtype, size, c):
    torch.manual_seed(size)
    codes = (sphere(size, 8) * torch.rand(size, 1).double() * 0.7).to(dtype)
    codes[size // 2 :] = codes[torch.randint(size // 2, (size - size // 2,))]
    x = (sphere(40, 8) * 0.9).to(dtype)
    whole = nearest.nearest(x, codes, c)
    assert (whole < size // 2).all()
    for rows in (1, 2, 3, 5, 33):
        assert torch.equal(torch.cat([nearest.nearest(part, codes, c) for part in x.split(rows)]), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_ties_do_not_depend_on_the_batch(dtype):
    torch.manual_seed(0)
    codes = (sphere(64, 16) * 0.5).to(dtype)
    left, right = (codes[torch.randint(64, (300,))] for _ in range(2))
    x = (left + right) / 2  # as far from one as from the other, up to rounding
    whole = nearest.nearest(x, codes, 0.0)
    assert torch.equal(torch.cat([nearest.nearest(part, codes, 0.0) for part in x.split(1)]), whole)
