"""The old and the new ID of every item, after a new fit."""

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ghrq.data.outputs import replacing
from ghrq.ids.growth import places
from ghrq.system.errors import UserError, require

if TYPE_CHECKING:
    from ghrq.data.tables import VectorTable

# Ids read at once.
_ROWS = 2**20


class Remapping(NamedTuple):
    """Old and new IDs of the items that have both."""

    ids: Any
    """``(n,)`` an Arrow array, in the order of the new file."""
    old: npt.NDArray[np.int32]
    """``(n, width)``."""
    new: npt.NDArray[np.int32]
    """``(n, other width)``."""
    only_old: int
    """Items without a new ID."""
    only_new: int
    """Items without an old ID."""
    retired: int
    """Items with both that are retired in the old file: they still have their ID there."""

    @property
    def same(self) -> int:
        """Items whose ID is the same in both."""
        return int((self.old == self.new).all(axis=1).sum()) if self.old.shape == self.new.shape else 0


def remap(old: "VectorTable", new: "VectorTable") -> Remapping:
    """Find the items of two files of IDs that are in both, retired items of the old one too; of the new one not."""
    pa = require("pyarrow", "tokenizer")
    from ghrq.data.tables import check_ids, open_codes

    for table in (old, new):
        check_ids(table)
    before = [old, *([open_codes(old.path, retired=True)] if old.manifest.get("retired") else [])]
    ids = pa.chunked_array(new.ids(_ROWS)).combine_chunks()
    rows = places(chain.from_iterable(table.ids(_ROWS) for table in before), ids)
    both = np.flatnonzero(rows >= 0)
    if not len(both):
        raise UserError(f"{old.path} and {new.path} have no item in common: check that both have the same kind of ids")
    old_codes, new_codes = (
        np.concatenate([codes for table in tables for _, codes in table.batches(2**16)]) for tables in (before, [new])
    )
    gone = int((rows[both] >= old.rows).sum())
    return Remapping(
        ids.take(pa.array(both)),
        old_codes[rows[both]],
        new_codes[both],
        old.rows - (len(both) - gone),
        len(new_codes) - len(both),
        gone,
    )


def write_remapping(path: Path, found: Remapping, name: str) -> None:
    """Write a Parquet file atomically: the ids under their ``name``, and the columns ``old`` and ``new``."""
    pa, parquet = require("pyarrow", "tokenizer"), require("pyarrow.parquet", "tokenizer")
    lists = [pa.FixedSizeListArray.from_arrays(pa.array(c.reshape(-1)), c.shape[1]) for c in (found.old, found.new)]
    name = "id" if name in ("old", "new") else name
    table = pa.table([found.ids, *lists], names=[name, "old", "new"])
    with replacing(path) as temporary, temporary.open("wb") as file:
        parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())
