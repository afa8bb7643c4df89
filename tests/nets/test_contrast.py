"""InfoNCE with its gradient in closed form, against autograd through the ball's own functions in float64."""

import pytest
import torch
from torch import Tensor

from ghrq import ball
from ghrq.nets import contrast
from ghrq.nets.contrast import info_nce


def plain(points: Tensor, pairs: Tensor, negatives: Tensor, c: float, temperature: float, itself: bool) -> Tensor:
    u, v = points[pairs[:, 0]], points[pairs[:, 1]]
    distances = [ball.distance(u, v, c).unsqueeze(1), ball.distance(u.unsqueeze(1), points[negatives], c)]
    distances += [torch.zeros(len(u), 1, dtype=points.dtype)] if itself else []
    logits = torch.cat(distances, dim=1) / -temperature
    return torch.nn.functional.cross_entropy(logits, torch.zeros(len(u), dtype=torch.long))


def fast(points: Tensor, pairs: Tensor, negatives: Tensor, c: float, temperature: float, itself: bool) -> Tensor:
    gaps = ball.gap(points.detach(), c).to(points.dtype)
    (u, v), (alpha, beta) = points[pairs.T], gaps[pairs.T]
    return info_nce(u, alpha, v, beta, points, gaps, negatives, c, temperature, itself)


# Tangent vectors of length 12 end 1e-10 from the boundary, 1e-7 once they are rounded to float32.
@pytest.mark.parametrize("length", [0.01, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("temperature", "itself"), [(1.0, True), (0.2, False)])
@pytest.mark.parametrize("chunk", [1, 400, 10**9])
def test_value_and_gradient(
    length: float, c: float, temperature: float, itself: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrast, "_CHUNK_ELEMENTS", chunk)
    torch.manual_seed(0)
    z = length * torch.rand(60, 1) * torch.nn.functional.normalize(torch.randn(60, 5), dim=1)
    points = ball.expmap0(z, c).requires_grad_()
    pairs, negatives = torch.randint(60, (33, 2)), torch.randint(60, (33, 7))
    pairs[0, 1] = pairs[0, 0]  # a point and itself: no direction, no gradient
    negatives[1] = pairs[1, 0]
    expected = plain(points.double(), pairs, negatives, c, temperature, itself)
    loss = fast(points, pairs, negatives, c, temperature, itself)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-6, atol=0.0)
    (ours,), (theirs,) = torch.autograd.grad(3.0 * loss, points), torch.autograd.grad(3.0 * expected, points)
    assert (ours - theirs).norm() <= 5e-6 * theirs.norm()
    assert ((ours - theirs).norm(dim=1) <= 1e-4 * theirs.norm(dim=1) + 1e-7 * theirs.norm()).all()
