"""What was found, as a table with one row for each query and rank."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from ghrq.data.outputs import replacing
from ghrq.search.index import Found

FORMATS = (".parquet", ".csv", ".jsonl")


def as_table(queries: Any, found: Found) -> Any:
    """Columns ``query``, ``rank`` (from 1), ``item`` and ``distance`` (squared); ``queries (m,)`` are their ids."""
    count, k = found.ids.shape
    return pa.table(
        {
            "query": queries.take(np.repeat(np.arange(count), k)),
            "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), count),
            "item": pa.array(found.ids.reshape(-1)),
            "distance": found.distances.reshape(-1),
        }
    )


def write(path: Path, table: Any) -> None:
    """Write the table atomically, in the format of ``path``'s extension, one of :data:`FORMATS`."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        if path.suffix.lower() == ".parquet":
            parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
        elif path.suffix.lower() == ".csv":
            csv.write_csv(table, file, csv.WriteOptions(quoting_style="needed"))
        else:
            for batch in table.to_batches(2**16):
                file.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in batch.to_pylist())
        file.flush()
        os.fsync(file.fileno())
