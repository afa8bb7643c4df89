"""Curvature and aggregation rule, saved with the codebooks: under others the same codes mean something else."""

import torch
from torch import Tensor

from ghrq.quantizer.cascade import Aggregation

RULES = ("chained", "nested")
LEARNED = -1.0
"""In place of a curvature that is a parameter and saved as one."""


def convention(curvature: float, aggregation: Aggregation) -> Tensor:
    """Curvature and rule as two integers, which ``module.half()`` does not convert: ``(2,)`` int64."""
    rule = "nested" if curvature == 0.0 else aggregation  # in flat space they are one
    bits = torch.tensor(curvature, dtype=torch.float64).view(torch.int64)
    return torch.stack((bits, torch.tensor(RULES.index(rule))))


def check_convention(saved: Tensor, own: Tensor) -> None:
    """Refuse codebooks that were trained under another convention."""
    if not torch.equal(saved.to(own), own):
        raise ValueError(
            f"these codebooks were trained with {_told(saved)}, this quantizer has {_told(own)}: "
            "build it with the settings they had"
        )


def _told(convention: Tensor) -> str:
    bits, rule = convention.cpu()
    known = dict(enumerate(RULES)).get(int(rule), "unknown")
    curvature = bits.view(torch.float64).item()
    return f"{'a learned curvature' if curvature == LEARNED else f'curvature {curvature:g}'} and {known} aggregation"
