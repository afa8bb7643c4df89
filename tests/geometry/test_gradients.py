"""Closed-form gradients against the definitions in ball, which autograd differentiates."""

import pytest
import torch

import oracle
from ghrq import ball
from ghrq.geometry.gradients import (
    Distances,
    from_ball,
    known,
    squared_distance,
    squared_distance_gradient,
    to_ball,
)


def tangents(dtype, *lengths):
    directions = torch.nn.functional.normalize(torch.randn(len(lengths), 6, dtype=torch.float64), dim=-1)
    return (directions * torch.tensor(lengths, dtype=torch.float64).unsqueeze(-1)).to(dtype).requires_grad_()


def gradient(output, given, g):
    return torch.autograd.grad(output, given, g)[0]


@pytest.mark.parametrize("c", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 3e-6), (torch.float64, 1e-11)])
def test_the_same_points_and_derivatives_as_the_ball(c, dtype, rtol):
    v = tangents(dtype, 0.0, 1e-30, 1e-9, 1e-3, 0.1, 0.5, 1.0, 2.0, 3.0)
    point, gap = to_ball(v, c)
    expected = ball.expmap0(v, c)
    g = torch.randn_like(v)
    torch.testing.assert_close(point, expected, rtol=rtol, atol=0)
    torch.testing.assert_close(gradient(point, v, g), gradient(expected, v, g), rtol=10 * rtol, atol=1e-7 * rtol)
    leaf = point.detach().requires_grad_()
    back, expected = from_ball(leaf, gap, c), ball.logmap0_with_gap(leaf, gap, c)
    torch.testing.assert_close(back, v, rtol=rtol, atol=0)
    torch.testing.assert_close(back, expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("c", [0.3, 1.0, 4.0])
def test_the_logarithm_has_the_derivative_of_the_ball(c):
    y = ball.expmap0(tangents(torch.float64, 0.0, 1e-9, 1e-3, 0.5, 2.0).detach(), c).requires_grad_()
    g = torch.randn_like(y)
    found = gradient(from_ball(y, ball.gap(y.detach(), c), c), y, g)
    torch.testing.assert_close(found, gradient(ball.logmap0(y, c), y, g), rtol=1e-11, atol=1e-14)


def test_gaps_are_right_where_float32_points_are_not():
    v = tangents(torch.float32, 5.0, 6.5, 8.0)
    point, gap = to_ball(v, 1.0)
    for row, found in zip(v, gap, strict=True):
        expected = oracle.gap(oracle.expmap0(oracle.exact(row), oracle.mpf(1)), oracle.mpf(1))
        assert oracle.relative_error(found, expected) < 3e-6
    torch.testing.assert_close(from_ball(point, gap, 1.0), v, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vector_that_ran_off_can_come_back(dtype):
    v = tangents(dtype, 1e2, 1e6, 1e30)
    point, gap = to_ball(v, 1.0)
    assert bool((point.detach().norm(dim=-1) < 1).all())
    assert bool((gap > 0).all())
    inward = gradient(ball.distance(point, torch.zeros_like(point)).sum(), v, None)
    assert inward.isfinite().all()
    assert bool(((inward * v.detach()).sum(-1) > 0).all())


def test_flat_space_has_no_maps():
    v = tangents(torch.float32, 1.0, 100.0)
    point, gap = to_ball(v, 0.0)
    assert point is v
    assert torch.equal(gap, torch.ones(2, 1))
    assert from_ball(point, gap, 0.0) is v


# --- distances and given gradients against autograd of their definitions -----------------------------------------


def pair(c):
    x, y = (ball.expmap0(tangents(torch.float64, 1e-6, 0.1, 0.7, 2.0, 4.0).detach(), c) for _ in range(2))
    return x.requires_grad_(), y.requires_grad_()


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_squared_distance_and_its_gradients(c):
    x, y = pair(c)
    definition = ball.distance(x, y, c).square() if c > 0.0 else (x - y).square().sum(-1)
    weight = torch.rand(len(x), 1, dtype=torch.float64)
    by_x, by_y = torch.autograd.grad((weight.squeeze(1) * definition).sum(), (x, y))
    with torch.no_grad():
        alpha, beta, square = ball.gap(x, c), ball.gap(y, c), (x - y).square().sum(-1, keepdim=True)
        value, factor = squared_distance(square, alpha * beta, c)
        found_x = squared_distance_gradient(x, alpha, y, beta, square, weight * factor, c)
        toward = ball.mobius_sub(y, x, c) if c > 0.0 else x - y
    torch.testing.assert_close(value.squeeze(1), definition, rtol=1e-12, atol=0)
    torch.testing.assert_close(found_x, by_x, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(-weight * factor / beta * toward, by_y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_distances_of_many_pairs_and_their_gradients(c):
    x, y = pair(c)
    y = torch.stack((y, y.flip(0), x.detach()), dim=1).detach().requires_grad_()  # the last ones coincide
    definition = ball.distance(x.unsqueeze(1), y, c)
    slope = torch.randn_like(definition)
    by_x, by_y = torch.autograd.grad((slope * definition).sum(), (x, y))
    with torch.no_grad():
        found = Distances(x.unsqueeze(1), ball.gap(x, c).unsqueeze(1), y, ball.gap(y, c), c)
        found_x, found_y = found.gradients(slope.unsqueeze(-1))
    torch.testing.assert_close(found.value.squeeze(-1), definition, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found_x, by_x, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found_y, by_y, rtol=1e-9, atol=1e-11)


def test_known_gradients_add_up():
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(2, requires_grad=True)
    value = x.square().sum()
    other = known(known(value.detach(), x, 2.0 * x.detach()), y, torch.ones(2))
    assert torch.equal(gradient(3.0 * other, x, None), 6.0 * x.detach())
    assert torch.equal(
        gradient(3.0 * known(known(value, y, torch.ones(2)), y, torch.ones(2)), y, None), torch.full((2,), 6.0)
    )
