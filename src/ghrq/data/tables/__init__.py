"""Tables of vectors with ids: read from files in batches, and written atomically.

Examples:
    >>> np.save("items.npy", np.zeros((1000, 8), dtype=np.float32))
    >>> table = ghrq.data.tables.open_table("items.npy")
    >>> table.rows, table.dim
    (1000, 8)
    >>> [batch.vectors.shape for batch in table.batches(600)]
    [(600, 8), (400, 8)]

Parquet (a file, or a folder of parts), NumPy ``.npy``, CSV and JSON lines (both also ``.gz``). Only one batch is
in memory at a time. Rows are counted from 0.

"""

from ghrq.system.errors import require

require("pyarrow", "tokenizer")

from ghrq.data.tables.duplicates import check_distinct, check_ids, hash_ids  # noqa: E402
from ghrq.data.tables.id_list import read_ids_column  # noqa: E402
from ghrq.data.tables.match import Matched, match_items  # noqa: E402
from ghrq.data.tables.table import (  # noqa: E402
    CODES_COLUMN,
    OnBad,
    VectorTable,
    batch_rows,
    open_codes,
    open_source,
    open_table,
)
from ghrq.data.tables.write import FORMATS, TableLayout, open_writer, write_skipped  # noqa: E402

__all__ = [
    "CODES_COLUMN",
    "FORMATS",
    "Matched",
    "OnBad",
    "TableLayout",
    "VectorTable",
    "batch_rows",
    "check_distinct",
    "check_ids",
    "hash_ids",
    "match_items",
    "open_codes",
    "open_source",
    "open_table",
    "open_writer",
    "read_ids_column",
    "write_skipped",
]
