"""Vectors whose squared norms overflow or vanish: float64 beyond 1e154 and below 1e-162, float32 beyond 1e19."""

import pytest
import torch

from ghrq import ball
from ghrq.geometry import numerics
from ghrq.geometry.gradients import to_ball

LONG = [(torch.float32, 1e20), (torch.float32, 1e30), (torch.float64, 1e155), (torch.float64, 1e300)]


@pytest.mark.parametrize(("dtype", "size"), LONG)
@pytest.mark.parametrize("c", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize(
    "to_boundary", [ball.project, ball.expmap0, lambda v, c: to_ball(v, c)[0], lambda v, c: ball.expmap(v * 0.0, v, c)]
)
def test_long_vectors_end_at_the_boundary(dtype, size, c, to_boundary):
    x = torch.tensor([[1.0, -2.0, 3.0], [0.1, 0.0, 0.0]], dtype=dtype) * size
    point = to_boundary(x, c)
    radius = c**0.5 * numerics.norm(point)
    assert ((radius > 1.0 - 1e-5) & (radius < 1.0)).all()
    torch.testing.assert_close(point / point.abs().amax(1, keepdim=True), x / x.abs().amax(1, keepdim=True))


@pytest.mark.parametrize(("dtype", "size"), LONG)
@pytest.mark.parametrize("c", [0.0, 1.0, 10.0])
def test_gaps_of_long_vectors(dtype, size, c):
    x = torch.full((2, 3), size, dtype=dtype, requires_grad=True)
    gap = ball.gap(x, c)
    assert (gap == (1.0 if c == 0.0 else torch.finfo(dtype).eps)).all()
    (gradient,) = torch.autograd.grad(gap.sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1.0, 1e155, 1e300])
def test_a_norm_has_all_its_digits(size):
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]], dtype=torch.float64) * size
    expected = torch.tensor([[5.0], [0.0], [1e-3]], dtype=torch.float64) * size
    torch.testing.assert_close(numerics.norm(x), expected, rtol=1e-15, atol=0.0)
    batched = torch.vmap(numerics.norm)(x)  # where values cannot be looked at
    torch.testing.assert_close(batched, expected, rtol=1e-15, atol=0.0)


def test_a_tiny_step_from_the_outer_half_of_the_ball():
    x = torch.tensor([[0.9, 0.0]], dtype=torch.float64)
    assert torch.equal(ball.expmap(x, -1e-170 * x), x)


def test_flat_distances_of_long_vectors():
    x = torch.tensor([[3e200, 4e200]], dtype=torch.float64)
    torch.testing.assert_close(ball.distance(x, 0.0 * x, 0.0), torch.tensor([1e201], dtype=torch.float64))
