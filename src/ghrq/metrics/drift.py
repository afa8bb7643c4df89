"""Do new items still fit a tokenizer: error, usage of its codes and collisions, beside those of the published items."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.ids.tuples import tuple_ids
from ghrq.metrics.labels import entropy

Codes = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Drift:
    """Measures of published (``old``) and new items. Lists have an entry for each stage, coarse to fine."""

    items_old: int
    items_new: int
    sampled: int
    """Usage and perplexity grow with the number of items: both are of this many, drawn at random."""
    codebook_size: list[int]
    error_old: float | None
    """Mean squared error, as a share of the variance of the rows of the fit; ``None`` if it is not known."""
    error_new: float
    """The same of the new items, of the same variance."""
    usage_old: list[float]
    """Share of the codes that are used at all."""
    usage_new: list[float]
    perplexity_old: list[float]
    """``exp`` of the entropy of the choice of codes."""
    perplexity_new: list[float]
    collisions_old: float | None
    """Share of the items whose tuple another one has, too; ``None`` if ``reassign`` has hidden it."""
    collisions_new: float
    """The same of the new items, among all."""

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, ready for JSON."""
        return asdict(self)


def drift(
    published: Codes,
    new: Codes,
    rows: npt.NDArray[np.int64],
    codebook_size: list[int],
    errors: tuple[float | None, float],
    *,
    hidden: bool = False,
    seed: int = 0,
) -> Drift:
    """Compare new items with published ones.

    Args:
        published: ``(m, num_stages)`` codes, without a tie-break token.
        new: ``(n, num_stages)`` codes.
        rows: ``(n,)`` the row in ``published`` of the new items that are there already, -1 of the others.
        codebook_size: number of codes of each stage.
        errors: of published and of new items, each as a share of the variance of the rows of the fit.
        hidden: whether collisions among ``published`` were resolved by other codes.
        seed: of the random choice of equally many items.

    """
    count = min(len(published), len(new))
    random = np.random.default_rng(seed)
    old, fresh = (codes[np.sort(random.permutation(len(codes))[:count])] for codes in (published, new))
    usage_old, perplexity_old = _spread(old, codebook_size)
    usage_new, perplexity_new = _spread(fresh, codebook_size)
    # Items that are published already are among all only once.
    there = rows >= 0
    every = tuple_ids(np.concatenate((published.astype(np.int64), new[~there].astype(np.int64))))
    place = np.where(there, rows, len(published) + np.cumsum(~there) - 1)
    alone = tuple_ids(published.astype(np.int64))
    return Drift(
        items_old=len(published),
        items_new=len(new),
        sampled=count,
        codebook_size=codebook_size,
        error_old=errors[0],
        error_new=errors[1],
        usage_old=usage_old,
        usage_new=usage_new,
        perplexity_old=perplexity_old,
        perplexity_new=perplexity_new,
        collisions_old=None if hidden else float((np.bincount(alone)[alone] > 1).mean()),
        collisions_new=float((np.bincount(every)[every[place]] > 1).mean()),
    )


def _spread(codes: Codes, sizes: list[int]) -> tuple[list[float], list[float]]:
    """Usage and perplexity of each stage."""
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes.T, sizes, strict=True)]
    return [float((count > 0).mean()) for count in counts], [float(np.exp(entropy(count))) for count in counts]
