"""Points, curvatures and comparisons that the tests of the manifold and of its optimisers share."""

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from ghrq.geometry.manifold import PoincareBall

CURVATURES = [0.3, 1.0, 4.0]
DTYPES = [torch.float32, torch.float64]
both_types = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
curvatures = pytest.mark.parametrize("c", CURVATURES)


def directions(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    v = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (v / v.norm(dim=-1, keepdim=True)).to(dtype)


def points(
    *shape: int, c: float = 1.0, dtype: torch.dtype = torch.float64, seed: int = 0, depth: float = 0.9
) -> Tensor:
    """Points of radius up to ``depth / √c``."""
    radius = torch.rand(*shape[:-1], 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1000))
    return (directions(*shape, seed=seed) * radius * depth / c**0.5).to(dtype)


def ball_of(c: float, dtype: torch.dtype = torch.float64) -> PoincareBall:
    return PoincareBall(torch.tensor(c, dtype=dtype))


def all_inside(x: Tensor) -> bool:
    """Whether every ``‖x‖² < 1``, in exact arithmetic."""
    close = x[x.double().norm(dim=-1) > 1 - 1e-12].tolist()
    return bool((x.double().norm(dim=-1) < 1 + 1e-12).all()) and all(
        sum(Fraction(v) ** 2 for v in p) < 1 for p in close
    )


def assert_close(actual: Tensor, expected: Tensor, ulps: float, scale: float = 1.0) -> None:
    """Equal up to ``ulps`` units in the last place of a number of the size ``scale``."""
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=ulps * scale * torch.finfo(actual.dtype).eps)
