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
    """The same of new items that are in the catalogue in place of as many published ones, see :func:`drift`."""
    placed: int
    """The number of these new items."""

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

    More items collide more often, whatever they are. So the collisions of both are those of a catalogue of ``m`` items:
    of the published ones; and of one where new items, drawn at random, are in the place of published ones, of at most
    half of them. If the new items are like the published ones, both shares have the same expectation.

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
    placed = np.sort(random.permutation(len(new))[: max(1, len(published) // 2)])
    stay = np.ones(len(published), dtype=bool)
    stay[rows[placed][rows[placed] >= 0]] = False  # items that are published already stand for themselves
    others = np.flatnonzero(stay)
    others = random.permutation(others)[: len(published) - len(placed)]
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
        collisions_old=None if hidden else float(_shared(published).mean()),
        collisions_new=float(_shared(np.concatenate((new[placed], published[others])))[: len(placed)].mean()),
        placed=len(placed),
    )


def _shared(codes: Codes) -> npt.NDArray[np.bool_]:
    """Which of ``codes (n, num_stages)`` another row has, too: ``(n,)``."""
    tuples = tuple_ids(codes.astype(np.int64))
    return np.bincount(tuples)[tuples] > 1


def _spread(codes: Codes, sizes: list[int]) -> tuple[list[float], list[float]]:
    """Usage and perplexity of each stage."""
    counts = [np.bincount(column, minlength=size) for column, size in zip(codes.T, sizes, strict=True)]
    return [float((count > 0).mean()) for count in counts], [float(np.exp(entropy(count))) for count in counts]
