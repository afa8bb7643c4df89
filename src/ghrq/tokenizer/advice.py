"""Which levels and sizes for these items? A few tokenizers are fitted on a sample, and judged at every depth.

The first codes of a tokenizer are those of a shorter one, so one fit answers for all lengths up to its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.ids.tuples import tuple_ids
from ghrq.metrics.quality import quality
from ghrq.system.checks import at_least
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tokenizer.tokenizer import Tokenizer

Vectors = npt.NDArray[np.float32]

ENOUGH = 0.05
"""IDs are long enough if at most this share of the items, without those of equal vectors, has the codes of another."""

# Sizes of the levels of the tokenizers that are tried; each counts at every depth from _SHORTEST on. None grows from
# level to level: at equal bits those collide more, see benchmarks/sizes.py.
SHAPES: tuple[tuple[int, ...], ...] = ((64,) * 6, (256,) * 5, (1024,) * 4, (1024, 256, *(64,) * 4))
_SHORTEST = 2

# Rows that tokenizers are fitted on, and are judged by.
_FITTED, _JUDGED = 16_384, 65_536

# Fewest rows of a fit for each code: with less, codes are single rows, and promise too much for other items.
_ROWS_PER_CODE = 8


@dataclass(frozen=True)
class Candidate:
    """One choice of levels and sizes, and what it gives."""

    sizes: tuple[int, ...]
    error: float
    """Mean squared error of the decoded vectors, as a share of their variance."""
    distinct: int
    """Distinct tuples among the rows it was judged by."""
    collisions: float
    """Share of these rows that have the tuple of an earlier one, although their vectors differ."""
    expected: float
    """The same at the number of items that was asked for: measured, or by :func:`expected_distinct`."""

    @property
    def ids(self) -> int:
        """How many different IDs there are."""
        return math.prod(self.sizes)

    @property
    def bits(self) -> float:
        """Bits of an ID."""
        return math.log2(self.ids)

    @property
    def tokens(self) -> int:
        """Tokens of a language model for the codes of all levels."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Advice:
    """What to fit, and why."""

    best: Candidate
    candidates: list[Candidate]
    """All that were tried, the shortest first."""
    items: int
    """The number of items that the IDs are for."""
    rows: int
    """Rows that the candidates were judged by."""
    equal: float
    """Share of these rows whose vector is that of an earlier one: no codes can tell those apart."""
    balance: bool

    @property
    def enough(self) -> bool:
        """Whether the best is good enough."""
        return self.best.expected <= ENOUGH

    def reasons(self) -> list[str]:
        """Why, in plain sentences."""
        best, said, levels = self.best, [], len(self.best.sizes)
        at = f"at {self.items:,} items"
        if self.items == self.rows:
            share = f"{best.expected:.1%} of the items have the codes of an earlier one"
        else:
            share = f"{at} about {best.expected:.1%} of the items would have the codes of an earlier one"
        if self.enough:
            said.append(f"It is the shortest that is long enough: {share}, and {ENOUGH:.0%} is fine.")
            shorter = [other for other in self.candidates if len(other.sizes) < levels]
            if shorter:
                near = min(shorter, key=lambda other: other.expected)
                said.append(f"With fewer levels it would be {near.expected:.1%} at best ({told(near.sizes)}).")
            same = [other for other in self.candidates if len(other.sizes) == levels and other is not best]
            if any(other.expected <= ENOUGH for other in same):
                said.append(
                    f"Of those of {levels} levels that are long enough, it has the fewest tokens, {best.tokens:,}."
                )
            elif same:
                said.append(f"No other of {levels} levels is long enough.")
        else:
            said.append(
                f"Nothing that was tried is long enough: {share}, where {ENOUGH:.0%} is fine. This has the fewest; a "
                "tie-break token tells them apart, but it says nothing about the items."
            )
        if self.balance:
            said.append("--balance: codes are used about equally often, so that fewer items share all of them.")
        said.append(f"Codes keep {1.0 - best.error:.0%} of the variance of the vectors.")
        longer = [other for other in self.candidates if len(other.sizes) == levels + 1 and other.error < best.error]
        if longer:
            more = min(longer, key=lambda other: other.error)
            said.append(f"With a level more it would be up to {1.0 - more.error:.0%} ({told(more.sizes)}).")
        if self.equal > 0.0:
            said.append(
                f"{self.equal:.1%} of the vectors are copies of others, which have equal codes in any case: look at "
                "them, or give more text to the model that made the vectors."
            )
        if self.items > self.rows:
            said.append(
                f"It was judged by {self.rows:,} rows. What happens {at} is an extrapolation: items to come are taken "
                "to be like these."
            )
        return said


def told(sizes: Sequence[int]) -> str:
    """``3 levels of 256 codes``, ``3 levels of 64, 256 and 1,024 codes``."""
    *first, last = [f"{size:,}" for size in sizes]
    codes = last if len(set(sizes)) == 1 else f"{', '.join(first)} and {last}"
    return f"{len(sizes)} level{'' if len(sizes) == 1 else 's'} of {codes} codes"


def advise(
    vectors: Vectors,
    items: int | None = None,
    *,
    seed: int = 0,
    balance: bool = True,
    shapes: Sequence[Sequence[int]] = SHAPES,
    progress: Progress | None = None,
    **settings: Any,
) -> Advice:
    """Try a small grid of levels and sizes on ``vectors (n, d)``, rows in random order or all of a table.

    Args:
        vectors: the items, or a sample of them.
        items: how many items the IDs are for; by default n.
        seed: of the sample and of the fits.
        balance: fit balanced codebooks, see :class:`ghrq.Tokenizer`.
        shapes: sizes by level, each counting at every depth. Sizes of more than an eighth of the rows are left out.
        progress: shows how far it is.
        **settings: of :class:`ghrq.Tokenizer`, such as ``kind``.

    """
    items = len(vectors) if items is None else items
    at_least("items", items, 1, whole=True)
    order = np.random.default_rng(seed).permutation(len(vectors))[:_JUDGED]
    rows, fitted = vectors[np.sort(order)], vectors[np.sort(order[:_FITTED])]
    different = rows[first_of_equals(rows)]
    if len(different) < 2:
        raise UserError("all vectors are equal, so no codes can tell items apart: check the column of the vectors")
    wanted = len(different) if items == len(rows) else items  # of equal vectors, one counts
    most = max(2, len(fitted) // _ROWS_PER_CODE)
    grid = [list(shape) for shape in shapes if max(shape) <= most] or [[most] * 4]
    found: dict[tuple[int, ...], Candidate] = {}
    with (progress or Progress()).bar("trying", len(grid), unit="tokenizers") as bar:
        for shape in grid:
            tokenizer = Tokenizer(codebook_size=shape, seed=seed, balance=balance, **settings).fit(fitted)
            for candidate in judge(tokenizer, different, wanted, seed):
                found.setdefault(candidate.sizes, candidate)
            bar.advance(text=told(shape))
    candidates = sorted(found.values(), key=lambda each: (len(each.sizes), each.tokens))
    equal = 1.0 - len(different) / len(rows)
    return Advice(choose(candidates), candidates, items, len(rows), equal, balance)


def judge(tokenizer: Tokenizer, rows: Vectors, items: int, seed: int = 0) -> list[Candidate]:
    """A tokenizer at every depth from 2 on, or at its only one.

    ``rows (n, d)`` to judge by, all different, ``items`` to expect.
    """
    codes, sizes = tokenizer.encode(rows), tokenizer.quantizer_.sizes
    lost = quality(codes, rows, tokenizer, neighbours=0, seed=seed).reconstruction
    assert lost is not None
    result = []
    for depth in range(min(_SHORTEST, len(sizes)), len(sizes) + 1):
        counts = np.bincount(tuple_ids(codes[:, :depth]))
        measured = 1.0 - len(counts) / len(codes)
        expected = max(0.0, 1.0 - expected_distinct(counts, math.prod(sizes[:depth]), items) / items)
        result.append(
            Candidate(
                tuple(sizes[:depth]),
                lost.relative[depth - 1],
                len(counts),
                measured,
                measured if items == len(codes) else expected,
            )
        )
    return result


def first_of_equals(rows: Vectors) -> npt.NDArray[np.int64]:
    """The first of each group of equal ``rows (n, d)``: ``(m,)``, ascending."""
    whole = np.ascontiguousarray(rows + np.float32(0.0)).view(f"V{rows.shape[1] * rows.itemsize}").ravel()  # no -0.0
    return np.sort(np.unique(whole, return_index=True)[1])


def expected_distinct(counts: npt.NDArray[np.int64], ids: int, items: int) -> float:
    """How many of ``ids`` tuples ``items`` rows would use, if n of them use tuples with these ``counts``, n their sum.

    How often tuples are used is taken to follow a gamma distribution over all of them, whose evenness k is such that
    two rows share a tuple as often as they do here: ``ids·(1 - (1 + items/(ids·k))^-k)``. Uniform use is k = ∞,
    ``ids·(1 - exp(-items/ids))``.
    """
    n, pairs = int(counts.sum()), float((counts * (counts - 1.0)).sum())
    if n < 2 or ids == 1:
        return float(min(ids, items))
    # Without any shared tuple: as if half a pair had been seen.
    together = max(pairs, 1.0) / (n * (n - 1.0))
    uneven = ids * together - 1.0  # 1/k
    if uneven <= 1e-9:
        return ids * -math.expm1(-items / ids)
    return ids * -math.expm1(-math.log1p(items * uneven / ids) / uneven)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The fewest levels, then the fewest tokens, of those that are long enough; else the one with least collisions."""
    enough = [each for each in candidates if each.expected <= ENOUGH]
    if enough:
        return min(enough, key=lambda each: (len(each.sizes), each.tokens, each.error))
    return min(candidates, key=lambda each: (each.expected, len(each.sizes), each.tokens))
