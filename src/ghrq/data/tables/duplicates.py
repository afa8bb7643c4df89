"""Find duplicate ids: by 64-bit hashes in memory, then by a second pass over the ids whose hashes are equal.

Our own hash, because neither pyarrow nor numpy has one for columns of text.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghrq.data.tables.columns import listed
from ghrq.system.errors import UserError

if TYPE_CHECKING:
    from ghrq.data.tables.table import VectorTable

Hashes = npt.NDArray[np.uint64]


def hash_ids(ids: Any) -> Hashes:
    """A 64-bit hash of each id: ``(n,)`` from an Arrow array of text or whole numbers, without a loop over rows.

    A whole number is its own hash. For text, each byte is multiplied by a random number for its position, and the
    products are summed: two given texts of one length collide with a probability below 2^-56.
    """
    if pa.types.is_integer(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False).view(np.uint64)
    bounds, data = letters(ids)
    lengths = np.diff(bounds)
    position = np.arange(len(data)) - np.repeat(bounds[:-1], lengths)
    longest = int(lengths.max(initial=0))
    weights = _weights(1 << max(longest, 1).bit_length())
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(data.astype(np.uint64) * weights[position])))
    # With the length: otherwise a text and the same text followed by zero bytes would be equal.
    return sums[bounds[1:]] - sums[bounds[:-1]] + lengths.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def letters(ids: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The bytes of all texts of an Arrow array one after the other, and the ``n + 1`` bounds between them, from 0."""
    ids = ids.cast(pa.large_string())
    _, offsets, data = ids.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    found = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]] if bounds[-1] else np.empty(0, np.uint8)
    return bounds - bounds[0], found


def check_distinct(table: "VectorTable", hashes: Hashes, size: int = 65536) -> None:
    """Raise an error if two ids of ``table`` are equal. ``hashes (rows,)`` of all its ids are sorted in place."""
    if not table.has_ids:
        return
    hashes.sort()
    suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    seen: dict[Any, int] = {}
    first = 0
    for ids in table.ids(size) if len(suspects) else ():
        places = np.flatnonzero(np.isin(hash_ids(ids), suspects))
        for place, row in zip(places.tolist(), table.row_numbers(first + places).tolist(), strict=True):
            identity = ids[place].as_py()
            if identity in seen:
                same = f"{listed([table.id_name])} {identity!r}"
                raise UserError(
                    f"{table.path}: rows {seen[identity]} and {row} (counted from 0) have the same {same}: "
                    "remove one of them, or name another column with --id"
                )
            seen[identity] = row
        first += len(ids)


def check_ids(table: "VectorTable", size: int = 65536) -> None:
    """Raise an error if a file of IDs has no ids, or two that are equal; a manifest says that this was checked."""
    table.require_ids()
    if not table.manifest:
        check_distinct(table, np.concatenate([hash_ids(ids) for ids in table.ids(size)]), size)


@lru_cache(maxsize=4)
def _weights(count: int) -> Hashes:
    """Random odd numbers, the same on every machine; a longer array starts with the shorter one."""
    return np.random.PCG64(20240607).random_raw(count) | np.uint64(1)
