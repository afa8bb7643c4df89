"""Curvature, aggregation rule and sizes by stage, saved with the codebooks: under others codes mean something else."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ghrq.quantizer.cascade import Aggregation

RULES = ("chained", "nested")
LEARNED = -1.0
"""In place of a curvature that is a parameter and saved as one."""


def convention(curvature: float, aggregation: Aggregation, sizes: Sequence[int] | None = None) -> Tensor:
    """Curvature and rule as two integers, which ``module.half()`` does not convert: ``(2,)`` int64.

    Then the ``sizes`` of the stages, if they differ: codebooks alone do not tell, as all have room for the largest.
    """
    rule = "nested" if curvature == 0.0 else aggregation  # in flat space they are one
    with torch.device("cpu"):  # on the meta device it would have no values to compare
        bits = torch.tensor(curvature, dtype=torch.float64).view(torch.int64)
        return torch.cat((bits.unsqueeze(0), torch.tensor([RULES.index(rule), *(sizes or ())])))


def check_convention(saved: Tensor, own: Tensor) -> None:
    """Refuse codebooks that were trained under another convention."""
    if saved.is_meta:
        return
    if saved.shape != own.shape or not torch.equal(saved.to(own), own):
        by_stage = len(saved) > 2 or len(own) > 2
        raise ValueError(
            f"these codebooks were trained with {_told(saved, by_stage)}, this quantizer has {_told(own, by_stage)}: "
            "build it with the settings they had"
        )


def _told(convention: Tensor, by_stage: bool) -> str:
    (bits, rule), sizes = convention[:2].cpu(), convention[2:].tolist()
    known = dict(enumerate(RULES)).get(int(rule), "unknown")
    curvature = bits.view(torch.float64).item()
    told = "a learned curvature" if curvature == LEARNED else f"curvature {curvature:g}"
    stages = f", codebook_size={sizes or 'one for all stages'}" if by_stage else ""
    return f"{told} and {known} aggregation{stages}"
