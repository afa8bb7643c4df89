"""Sampling of codes from logits, with temperature, top-k and top-p."""

import torch
from torch import Tensor

from ghrq.system.checks import at_least


def draw(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One code ``(B,)`` int64 for each row of ``logits (B, K)``, with probability ``softmax(logits / temperature)``.

    Args:
        logits: finite.
        temperature: 0 takes the most probable code.
        top_k: only the k most probable codes; 0 for all.
        top_p: of these only the smallest set of most probable codes with total probability ``top_p``; 1 for all.
        generator: of the random numbers, by default torch's own.

    """
    if temperature == 0.0:
        return logits.argmax(-1)
    share = restrict(logits / temperature, top_k, top_p).softmax(-1).cumsum(-1, dtype=torch.float64)
    # One random number per row; torch.multinomial draws one per code, a quarter of the time of sampling grids. It is
    # below 1 by more than the rounding error, so that a code of probability 0 is never chosen.
    number = torch.rand(len(logits), 1, generator=generator, device=logits.device) * share[:, -1:]
    return torch.searchsorted(share, number, right=True).squeeze(-1)


def restrict(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """``logits (B, K)`` with minus infinity for all codes that ``top_k`` and ``top_p`` leave out; see :func:`draw`."""
    size = logits.shape[-1]
    kept = min(top_k or size, size)
    if kept == size and top_p >= 1.0:
        return logits
    best, code = logits.topk(kept, dim=-1)  # in descending order; by index, so that equal logits do not add more codes
    if top_p < 1.0:
        share = best.softmax(-1)
        # Remove a code if those before it have probability top_p already: never the first.
        best = best.masked_fill(share.cumsum(-1) - share >= top_p, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter(-1, code, best)


def check_draw(temperature: float, top_k: int, top_p: float) -> None:
    """Check the options of :func:`draw`."""
    at_least("temperature", temperature, 0)
    at_least("top_k", top_k, 0, whole=True)
    at_least("top_p", top_p, 0)
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
