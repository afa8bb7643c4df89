"""Codebooks that start from k-means on encoder outputs, stage by stage."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ghrq.geometry import ball
from ghrq.geometry.kmeans import kmeans, perplexity
from ghrq.geometry.nearest import code_table
from ghrq.quantizer.cascade import Aggregation, residual, walk


class Start(NamedTuple):
    """Codebooks, and how evenly they are used."""

    codebooks: Tensor
    """``(num_stages, largest size, d)``, 0 beyond the size of a stage."""
    perplexity: list[float]
    """Of each stage."""


@torch.no_grad()
def kmeans_codebooks(
    points: Tensor,
    gaps: Tensor,
    sizes: Sequence[int],
    c: float,
    aggregation: Aggregation,
    iterations: int,
    each_stage: Callable[[], object] | None,
    balance: bool = False,
) -> Start:
    """K-means on ``points (n, d)`` with gaps ``(n, 1)``, then on what is left of them after each stage.

    ``sizes``: the number of codes of each stage. ``balance``: each k-means is a balanced one; what is left of a point
    is after its nearest code all the same.
    """
    r, codebooks, used = points, [], []
    for size in sizes:
        codebooks.append(kmeans(r, size, c, iterations, balance))
        (step,) = walk(r, gaps, code_table(codebooks[-1].unsqueeze(0), c), c, aggregation, 1)
        r = residual(r, step.code, c, aggregation)
        gaps = ball.gap(r, c).to(r.dtype)
        used.append(float(perplexity(step.chosen.bincount(minlength=size) / len(points))))
        if each_stage is not None:
            each_stage()
    largest = max(sizes)
    return Start(torch.stack([nn.functional.pad(book, (0, 0, 0, largest - len(book))) for book in codebooks]), used)
