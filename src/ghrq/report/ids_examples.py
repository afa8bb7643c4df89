"""Items on the page about IDs: those that share a tuple, and those that share a prefix."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.data.arrays import as_rows
from ghrq.ids.tuples import tuple_ids
from ghrq.report.examples import Example, Examples
from ghrq.report.template import render

Ints = npt.NDArray[np.int64]
NamesOf = Callable[[Ints], Sequence[str]]
"""The names of some rows, which are given in ascending order."""

# Tuples and items that are shown, and names of each; rows of a tuple whose vectors are compared.
_TUPLES, _ITEMS, _NAMES, _COMPARED = 6, 6, 5, 2000

# Longer names are cut.
_LENGTH = 120


@dataclass(frozen=True)
class SharedTuple:
    """A tuple of several items, as a card."""

    codes: Sequence[int]
    items: int
    names: Sequence[str]
    """Of some of the items."""
    note: str = ""

    def html(self) -> str:
        """A card."""
        return render("shared_tuple", shared=self, more=self.items - len(self.names))


@dataclass(frozen=True)
class ItemExamples:
    """The tuples that most items share, and some items with those that share their first codes."""

    collisions: Sequence[SharedTuple]
    prefixes: Sequence[Example]

    @classmethod
    def of(
        cls, codes: npt.NDArray[np.integer], stages: int, names_of: NamesOf, vectors: Any = None, seed: int = 0
    ) -> "ItemExamples":
        """Choose from ``codes (n, N)``, of which the first ``stages`` count; ``vectors (n, d)`` tell copies apart."""
        table = np.asarray(codes)[:, :stages].astype(np.int64)
        groups = [tuple_ids(table[:, : depth + 1]) for depth in range(stages)]
        sizes = np.bincount(groups[-1])
        worst = np.argsort(-sizes, kind="stable")[:_TUPLES]
        shared = {int(group): np.flatnonzero(groups[-1] == group) for group in worst if sizes[group] > 1}
        drawn = np.sort(np.random.default_rng(seed).permutation(len(table))[:_ITEMS])
        sharing = {int(row): _sharing(groups, int(row)) for row in drawn}
        used = [rows[:_NAMES] for rows in shared.values()]
        used += [rows for depths in sharing.values() for rows in depths]
        rows = np.unique(np.concatenate([*used, drawn]))
        name = dict(zip(rows.tolist(), map(_short, names_of(rows)), strict=True))

        def named(rows: Iterable[int]) -> list[str]:
            return [name[row] for row in rows]

        return cls(
            [
                SharedTuple(table[rows[0]].tolist(), len(rows), named(rows[:_NAMES].tolist()), _note(vectors, rows))
                for rows in shared.values()
            ],
            [
                Example(name[row], "", table[row].tolist(), [named(others.tolist()) for others in depths])
                for row, depths in sharing.items()
            ],
        )

    def pieces(self) -> list[Examples]:
        """For the page; what is empty is left out."""
        worst = Examples("The tuples that most items share", self.collisions)
        near = Examples("Some items, with others that share exactly their first 1, 2, … codes", self.prefixes)
        return [piece for piece in (worst, near) if piece.examples]


def _sharing(groups: list[Ints], row: int) -> list[Ints]:
    """For each depth, some rows that share the codes of ``row`` up to it and no further."""
    same = [np.flatnonzero(group == group[row]) for group in groups]
    deeper = [*same[1:], np.array([row])]
    exactly = [np.setdiff1d(rows, more, assume_unique=True) for rows, more in zip(same, deeper, strict=True)]
    return [rows[np.linspace(0, len(rows) - 1, min(_NAMES, len(rows)), dtype=np.int64)] for rows in exactly]


def _note(vectors: Any, rows: Ints) -> str:
    """How many different vectors the items of a tuple have."""
    if vectors is None:
        return ""
    few = rows[:_COMPARED]
    distinct = len(np.unique(as_rows(vectors).take(few).numpy(), axis=0))
    of = "" if len(few) == len(rows) else f" of the first {_COMPARED:,}"
    return f"all vectors{of} are equal" if distinct == 1 else f"{distinct:,} different vectors{of}"


def _short(name: str) -> str:
    text = " ".join(name.split()) or "(no title)"
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
