"""Head and tail apart: how good the codes of the items are that many people want, and of those that few want."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ghrq.ids.tuples import tuple_ids

Ints = npt.NDArray[np.int64]

# Shares of the items, the most popular first.
SLICES = {"head": (0.0, 0.2), "middle": (0.2, 0.5), "tail": (0.5, 1.0)}


@dataclass(frozen=True)
class PopularitySlice:
    """One part of the items, by how often they were counted."""

    name: str
    """``head``: the fifth with the most counts, ``tail``: the half with the fewest, ``middle`` between them."""
    items: int
    counted: float
    """Its share of all counts."""
    alone: float
    """Share of its items whose tuple no other item has."""
    sharing: float
    """Mean number of items that have the tuple of one of its items, itself included."""
    error: float | None
    """Mean squared error, divided by the variance of all vectors."""


def popularity_slices(
    codes: Ints, counts: npt.NDArray[np.float64], errors: npt.NDArray[np.float64] | None = None
) -> list[PopularitySlice]:
    """Split items by ``counts (n,)`` (NaN counts as 0), ties in the order of the rows.

    Args:
        codes: ``(n, N)`` tuples, without a tie-break token.
        counts: how popular each item is.
        errors: ``(n,)`` squared error of each item, as a share of the variance; NaN where it was not measured.

    """
    counts = np.nan_to_num(np.asarray(counts, dtype=np.float64))
    if (counts < 0.0).any():
        raise ValueError(f"expected counts of at least 0, got {counts.min():g} in row {int(counts.argmin())}")
    groups = tuple_ids(codes)
    members = np.bincount(groups)[groups]
    order, found = np.argsort(-counts, kind="stable"), []
    for name, (start, end) in SLICES.items():
        rows = order[round(start * len(order)) : round(end * len(order))]
        if not len(rows):
            continue
        measured = None if errors is None else errors[rows][np.isfinite(errors[rows])]
        found.append(
            PopularitySlice(
                name,
                len(rows),
                float(counts[rows].sum() / max(counts.sum(), 1e-300)),
                float((members[rows] == 1).mean()),
                float(members[rows].mean()),
                None if measured is None or not len(measured) else float(measured.mean()),
            )
        )
    return found
