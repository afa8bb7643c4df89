"""Codebooks that start from k-means on encoder outputs, stage by stage."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.kmeans import kmeans, perplexity
from ghrq.geometry.nearest import code_table
from ghrq.quantizer.cascade import Aggregation, residual, walk


class Start(NamedTuple):
    """Codebooks, and how evenly they are used."""

    codebooks: Tensor
    """``(num_stages, codebook_size, d)``"""
    perplexity: list[float]
    """Of each stage."""


@torch.no_grad()
def kmeans_codebooks(
    points: Tensor,
    gaps: Tensor,
    num_stages: int,
    codebook_size: int,
    c: float,
    aggregation: Aggregation,
    iterations: int,
    each_stage: Callable[[], object] | None,
) -> Start:
    """K-means on ``points (n, d)`` with gaps ``(n, 1)``, then on what is left of them after each stage."""
    r, codebooks, used = points, [], []
    for _ in range(num_stages):
        codebooks.append(kmeans(r, codebook_size, c, iterations))
        (step,) = walk(r, gaps, code_table(codebooks[-1].unsqueeze(0), c), c, aggregation, 1)
        r = residual(r, step.code, c, aggregation)
        gaps = ball.gap(r, c).to(r.dtype)
        used.append(float(perplexity(step.chosen.bincount(minlength=codebook_size) / len(points))))
        if each_stage is not None:
            each_stage()
    return Start(torch.stack(codebooks), used)
