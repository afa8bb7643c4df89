"""Rows of one table that belong to the items of another: found by their ids, whatever their order."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghrq.data.tables.duplicates import Hashes, check_distinct, hash_ids
from ghrq.data.tables.table import ROW_COLUMN, SILENT, VectorTable
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

Rows = npt.NDArray[np.int64]

HAVE_ALL = (
    "give a table that has all items (a folder of .parquet parts counts as one), or retire these with "
    "'ghrq extend --retire'"
)
"""What to do if a table of embeddings lacks items of a file of IDs."""

# Ids read at once, and missing ones that are named.
_ROWS, _NAMED = 2**16, 3


class Matched(NamedTuple):
    """A table whose rows are taken in the order of the items of another."""

    table: VectorTable
    order: Rows | None
    """``(m,)`` the row of each item; ``None``: the rows as they are."""

    def labels(self) -> list[str | None]:
        """The label of each item, see :meth:`VectorTable.labels`."""
        if self.order is None:
            return self.table.labels()
        rows, inverse = np.unique(self.order, return_inverse=True)
        found = self.table.labels(rows)
        return [found[row] for row in inverse.tolist()]

    def names(self, items: Rows) -> list[str]:
        """What to call ``items (k,)``, see :meth:`VectorTable.names`."""
        rows, inverse = np.unique(items if self.order is None else self.order[items], return_inverse=True)
        found = self.table.names(rows)
        return [found[row] for row in inverse.tolist()]


def match_items(codes: VectorTable, table: VectorTable, remedy: str = HAVE_ALL, progress: Progress = SILENT) -> Matched:
    """The rows of ``table`` that belong to the items of ``codes``, a file of IDs, by their ids.

    An item that has no row is an error, which ends with ``remedy``; rows without an item are left out, with a note. If
    one of the two has no ids, both must have equally many rows, in the same order. Row numbers that ``codes`` has for
    ids are those of a table without ids. Memory holds 8 bytes a row of both: ids are compared by their hashes.
    """
    numbered = codes.id_name == ROW_COLUMN and not table.has_ids
    if not codes.has_ids or not (table.has_ids or numbered):
        if codes.rows != table.rows:
            without = table.path if codes.has_ids else codes.path
            raise UserError(
                f"{codes.path} has {codes.rows:,} rows, {table.path} {table.rows:,}, and {without} has no ids, so that "
                f"both need the same rows in the same order: {remedy}"
            )
        return Matched(table, None)
    numbers = not _is_text(table)
    as_text = not numbers or _is_text(codes) or _has_sign(table) != _has_sign(codes)
    wanted, there = _hashes(codes, as_text), _hashes(table, as_text)
    if np.array_equal(wanted, there):
        return Matched(table, None)
    native = _hashes(table, False) if numbers and as_text else there
    check_distinct(table, native[np.isin(there, wanted)])
    by_hash = there.argsort(kind="stable")
    place = np.minimum(np.searchsorted(there, wanted, sorter=by_hash), len(there) - 1)
    order = by_hash[place]
    lost = np.flatnonzero(there[order] != wanted)
    if len(lost):
        raise UserError(_missing(codes, table, lost, remedy))
    unused = table.rows - len(np.unique(order))
    if unused:
        rows = f"{unused:,} row{'s' if unused > 1 else ''} of {table.path}"
        progress.note(f"note: {rows} {'are' if unused > 1 else 'is'} of no item of {codes.path}, and left out")
    return Matched(table, order)


def _is_text(table: VectorTable) -> bool:
    return not pa.types.is_integer(next(table.ids(1)).type)


def _has_sign(table: VectorTable) -> bool:
    return bool(pa.types.is_signed_integer(next(table.ids(1)).type))


def _hashes(table: VectorTable, as_text: bool) -> Hashes:
    """Of all ids; CSV has whole numbers as text, so those are text if the other file has some."""
    parts = (ids.cast(pa.large_string()) if as_text else ids for ids in table.ids(_ROWS))
    return np.concatenate([hash_ids(ids) for ids in parts])


def _missing(codes: VectorTable, table: VectorTable, lost: Rows, remedy: str) -> str:
    some = ", ".join(map(repr, _ids_at(codes, lost[:_NAMED])))
    if len(lost) == codes.rows:
        other = _ids_at(table, np.array([0]))[0]
        return (
            f"{table.path} has no item of {codes.path}: it has {table.id_name} {other!r}, for example, and not {some}: "
            "name the column of the same ids with --id, or give the table of these items"
        )
    skipped = f" (without the {len(table.skipped):,} rows that were skipped)" if table.skipped else ""
    such = some if len(lost) <= _NAMED else f"such as {some}"
    return f"{table.path}{skipped} lacks {len(lost):,} of the {codes.rows:,} items of {codes.path}, {such}: {remedy}"


def _ids_at(table: VectorTable, rows: Rows) -> list[Any]:
    """The ids of a few ``rows``, ascending."""
    found, first = [], 0
    for ids in table.ids(_ROWS):
        here = rows[slice(*np.searchsorted(rows, (first, first + len(ids))))] - first
        found += ids.take(pa.array(here)).to_pylist()
        first += len(ids)
    return found
