"""One vector, one tuple of codes: in any batch, by encode and by forward, at the boundary and far from it."""

import pytest
import torch

from ghrq import ResidualQuantizer
from ghrq.geometry import ball
from ghrq.quantizer import KINDS


def quantizer(kind, dim=8, size=32, stages=4, dtype=torch.float32, copies=False):
    torch.manual_seed(0)
    rq = ResidualQuantizer(dim, size, stages, kind).to(dtype).eval()
    if copies:
        with torch.no_grad():
            rq.codebooks[:, 1::2] = rq.codebooks[:, ::2]
    return rq


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beam", [1, 3])
def test_codes_that_coincide_are_never_the_later_ones(kind, dtype, beam):
    rq = quantizer(kind, dtype=dtype, copies=True)
    z = torch.randn(8, 8, dtype=dtype) / 3
    whole = rq.encode(z, beam=beam)
    assert (whole % 2 == 0).all()
    for rows in (1, 3):
        assert torch.equal(torch.cat([rq.encode(part, beam=beam) for part in z.split(rows)]), whole)
        assert torch.equal(torch.cat([rq(part).codes for part in z.split(rows)]), rq(z).codes)


def test_candidates_of_codes_that_coincide_are_all_different():
    rq = quantizer("ghrq", size=4, stages=2, copies=True)
    codes, _ = rq.candidates(torch.randn(20, 8), beam=16)
    assert all(len({tuple(row) for row in rows}) == 16 for rows in codes.tolist())
    assert (rq.candidates(torch.randn(20, 8), beam=4)[0] % 2 == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_encode_is_forward_with_64_stages_at_the_boundary(kind, dtype):
    rq = quantizer(kind, dim=4, size=16, stages=64, dtype=dtype)
    z = torch.randn(100, 4, dtype=dtype) * torch.logspace(-3, 3, 100, dtype=dtype).unsqueeze(1)
    z_hat, codes, _ = rq(z)
    assert torch.equal(rq.encode(z), codes)
    assert z_hat.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_z_hat_is_the_decode_of_the_codes(kind, size):
    rq = quantizer(kind)
    z_hat, codes, _ = rq(torch.randn(50, 8) * size)
    torch.testing.assert_close(rq.decode(codes), z_hat.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ghrq", "naive", "hra-only"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 5e-5), (torch.float64, 0.0)])
def test_z_hat_is_the_decode_of_codes_as_far_out_as_the_docstring_says(kind, dtype, error):
    stages, away = 16, 48.0
    rq = quantizer(kind, dim=4, size=16, stages=stages, dtype=dtype)
    with torch.no_grad():
        directions = torch.nn.functional.normalize(torch.randn_like(rq.codebooks), dim=-1)
        rq.codebooks.copy_(ball.expmap0(directions * away / 2.0 / stages))
        z_hat, codes, _ = rq(torch.randn(200, 4, dtype=dtype) * 8.0)
    torch.testing.assert_close(z_hat, rq.decode(codes), rtol=error, atol=error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stages", [16, 64])
def test_codes_on_the_boundary_give_finite_vectors(kind, stages):
    """Without a gradient, gaps of sums were rounded to 0 in float32."""
    rq = quantizer(kind, dim=32, size=8, stages=stages)
    with torch.no_grad():
        if rq.curvature > 0.0:
            rq.codebooks.copy_(ball.project(rq.codebooks * 1e3))
        z_hat, codes, loss = rq(torch.randn(9, 32))
    assert z_hat.isfinite().all()
    assert loss.isfinite()
    assert rq.decode(codes).isfinite().all()
