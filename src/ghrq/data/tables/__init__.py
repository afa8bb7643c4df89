"""Tables of vectors with ids, as they lie on the disk: read in batches, and written whole or not at all.

>>> table = open_table("items.parquet", column="embedding", id_column="item_id")
>>> for ids, vectors in table.batches(65536):
...     codes = tokenizer.encode(vectors)

Parquet (a file, or a folder of parts), NumPy ``.npy``, CSV and JSON lines (both also ``.gz``). What is in memory at any
time is a batch, whatever the size of the file. Rows are counted from 0.
"""

from ghrq.data.tables.duplicates import check_distinct, hash_ids
from ghrq.data.tables.table import CODES_COLUMN, Batch, Table, batch_rows, open_codes, open_table
from ghrq.data.tables.write import FORMATS, Layout, Writer, check_output, open_writer, replacing

__all__ = [
    "CODES_COLUMN",
    "FORMATS",
    "Batch",
    "Layout",
    "Table",
    "Writer",
    "batch_rows",
    "check_distinct",
    "check_output",
    "hash_ids",
    "open_codes",
    "open_table",
    "open_writer",
    "replacing",
]
