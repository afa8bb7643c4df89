"""The tuples that a beam search ends with, against all tuples that there are."""

import pytest
import torch

from ghrq import ResidualQuantizer, ball

D, K, N = 3, 6, 3
EVERY = torch.cartesian_prod(*[torch.arange(K)] * N)


def quantizer(kind, **settings):
    return ResidualQuantizer(D, K, N, kind=kind, **settings).eval()


def true_distances(rq, z):
    """From every z to what every tuple stands for, by decode and the textbook map: ``(n, K^N)``."""
    wide = rq.double()
    z_hat = wide.decode(EVERY)
    if rq.curvature == 0.0:
        return torch.cdist(z.double(), z_hat)
    return ball.pairwise_distance(ball.expmap0(z.double()), ball.expmap0(z_hat))


@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
def test_a_beam_as_wide_as_all_tuples_ranks_them_all(kind):
    rq, z = quantizer(kind), torch.randn(20, D)
    codes, distance = rq.candidates(z, beam=1000)
    assert codes.shape == (20, K**N, N)
    number = (codes * torch.tensor([K * K, K, 1])).sum(-1)
    assert torch.equal(number.sort(dim=1).values, torch.arange(K**N).expand(20, -1))
    assert bool((distance.diff(dim=1) >= 0).all())
    torch.testing.assert_close(distance, true_distances(rq, z).gather(1, number), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["ghrq", "naive", "euclidean"])
def test_a_narrow_beam_has_distinct_tuples_and_holds_what_encode_finds(kind):
    rq, z = quantizer(kind, scale_control=True), torch.randn(4, 50, D)
    codes, distance = rq.candidates(z, beam=8)
    assert codes.shape == (4, 50, 8, N)
    assert distance.shape == (4, 50, 8)
    assert all(len(row.unique(dim=0)) == 8 for row in codes.flatten(0, 1))
    each = torch.stack([rq.distance(z, codes[:, :, place]) for place in range(8)], dim=-1)
    torch.testing.assert_close(each, distance, rtol=0, atol=0)
    # encode has one candidate more, the greedy one: where that is not best, both say the same.
    found = rq.encode(z, beam=8)
    same = (found == codes[:, :, 0]).all(-1)
    assert bool((same | (rq.distance(z, found) < distance[..., 0])).all())
    assert same.float().mean() > 0.9


def test_candidates_and_distances_work_in_chunks(monkeypatch):
    rq, z = quantizer("ghrq"), torch.randn(100, D)
    codes, distance = rq.candidates(z, beam=4)
    alone = rq.distance(z, codes[:, 0, :2])
    monkeypatch.setattr("ghrq.quantizer.coder.CHUNK_ROWS", 28)
    again, again_distance = rq.candidates(z, beam=4)
    assert torch.equal(again, codes)
    torch.testing.assert_close(again_distance, distance, rtol=1e-12, atol=0)
    torch.testing.assert_close(rq.distance(z, codes[:, 0, :2]), alone, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["ghrq", "euclidean"])
@pytest.mark.parametrize("sizes", [64, [32, 64, 96, 64]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tables_of_products_find_what_residuals_find(kind, sizes, dtype, monkeypatch):
    torch.manual_seed(0)
    z = torch.randn(500, 32, dtype=dtype)
    rq = ResidualQuantizer(32, sizes, 4, kind=kind, scale_control=True).to(dtype).eval()
    rq.initialize(z)
    found = {}
    for least in (1, 1000):  # dimensions from which on tables are used
        monkeypatch.setattr("ghrq.quantizer.beam._TABLE_DIM", least)
        found[least] = rq.encode(z, beam=5), *rq.candidates(z, beam=5), rq.encode(z, depth=2, beam=3)
    same = (found[1][0] == found[1000][0]).all(1)
    assert same.double().mean() >= (1.0 if dtype == torch.float64 else 0.99)
    close = {torch.float32: 1e-4, torch.float64: 1e-10}[dtype]  # the order of near ties is one of rounding errors
    torch.testing.assert_close(found[1][2], found[1000][2], rtol=close, atol=0.0)
    assert (found[1][3] == found[1000][3]).all(1).double().mean() > 0.99


def test_without_tables_where_digits_or_room_are_missing(monkeypatch):
    """Near the boundary, for copies of codes, and for large codebooks: the same answer by residuals."""
    monkeypatch.setattr("ghrq.quantizer.beam._TABLE_DIM", 1)
    rq = ResidualQuantizer(D, K, N, kind="ghrq").eval()
    with torch.no_grad():
        rq.codebooks[:, 1::2] = rq.codebooks[:, ::2]
    for z in (0.1 * torch.randn(20, D), 5.0 * torch.randn(20, D)):
        with_tables = rq.candidates(z, beam=200)[0]
        assert with_tables.shape == (20, 200, N)
        monkeypatch.setattr("ghrq.quantizer.beam._TABLE_BYTES", 0)
        assert torch.equal(rq.candidates(z, beam=200)[0], with_tables)
        monkeypatch.undo()
        monkeypatch.setattr("ghrq.quantizer.beam._TABLE_DIM", 1)


def test_nothing_in_nothing_out():
    rq = quantizer("ghrq")
    codes, distance = rq.candidates(torch.empty(0, D), beam=4)
    assert codes.shape == (0, 4, N)
    assert distance.shape == (0, 4)
    assert rq.distance(torch.empty(0, D), torch.empty(0, N, dtype=torch.int64)).shape == (0,)


def test_wrong_input_is_refused():
    rq = quantizer("ghrq")
    with pytest.raises(ValueError, match="beam"):
        rq.candidates(torch.randn(2, D), beam=0)
    with pytest.raises(ValueError, match="a tuple for each vector"):
        rq.distance(torch.randn(2, D), torch.zeros(3, N, dtype=torch.int64))
    with pytest.raises(ValueError, match="from 0 to 5"):
        rq.distance(torch.randn(2, D), torch.full((2, N), 6))
