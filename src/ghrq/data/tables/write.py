"""Write tables of ids and codes, or ids and vectors, batch by batch; the file appears only when it is complete."""

import csv as csv_text
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from ghrq.data.outputs import replacing
from ghrq.data.tables import manifest
from ghrq.data.tables.table import CODE_COLUMN, CODES_COLUMN, VectorTable
from ghrq.system import files

FORMATS = (".parquet", ".csv", ".jsonl", ".npy")
"""Extensions that can be written. CSV has a column for each number, ``.npy`` no ids."""


class TableLayout(NamedTuple):
    """Columns, type and number of rows of a table to write."""

    id_name: str
    name: str
    """Column of the arrays: ``codes`` or ``embedding``."""
    width: int
    """Numbers in each array."""
    dtype: npt.DTypeLike
    rows: int
    manifest: dict[str, Any] | None = None
    """What the file says of itself, see :func:`ghrq.data.tables.manifest.describe`; only Parquet has room for it."""
    retired: bool = False
    """Whether retired items follow, in a column of their own; only in Parquet."""

    def named(self, *arrays: str) -> list[str]:
        """The columns of a file: that of the ids, called ``id`` if its name is that of another, and ``arrays``."""
        return ["id" if self.id_name in (self.name, *arrays) else self.id_name, *arrays]


class Writer:
    """Appends batches to ``file``, in the order of the rows."""

    def __init__(self, file: IO[bytes], layout: TableLayout) -> None:
        self._file, self._layout = file, layout

    def write(self, ids: Any, arrays: npt.NDArray[Any], retired: bool = False) -> None:
        """Append ``ids (n,)``, an Arrow array, and ``arrays (n, width)``; ``retired`` items come last."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what comes after the last row."""


@contextmanager
def open_writer(path: Path, layout: TableLayout, suffix: str | None = None) -> Iterator[Writer]:
    """A writer in the format of ``path``'s extension, one of :data:`FORMATS`, or of another ``suffix``."""
    kinds = {".parquet": _ParquetWriter, ".csv": _CsvWriter, ".jsonl": _JsonLinesWriter, ".npy": _ArrayWriter}
    with replacing(path) as temporary, temporary.open("wb") as file:
        writer = kinds[suffix or path.suffix.lower()](file, layout)
        try:
            yield writer
        finally:
            writer.close()
        file.flush()
        os.fsync(file.fileno())


def write_skipped(path: Path, table: VectorTable) -> None:
    """Write the rows that were left out of ``table`` as CSV: number, id and reason."""
    text = io.StringIO(newline="")
    rows = csv_text.writer(text, lineterminator="\n")
    rows.writerow(["row", *([table.id_name] if table.has_ids else []), "reason"])
    rows.writerows((row, *([name] if table.has_ids else []), reason) for row, name, reason in table.skipped)
    with files.telling(path):
        files.write(path, text.getvalue())


class _ParquetWriter(Writer):
    _rows: Any = None
    """pyarrow's writer, opened with the types of the first batch."""

    def __init__(self, file: IO[bytes], layout: TableLayout) -> None:
        super().__init__(file, layout)
        self._live, self._retired = manifest.Content(), manifest.Content()

    def write(self, ids: Any, arrays: npt.NDArray[Any], retired: bool = False) -> None:
        batch = self._batch(ids, np.asarray(arrays, dtype=self._layout.dtype), retired)
        self._rows = self._rows or self._open(batch.schema)
        self._rows.write_batch(batch)
        if self._layout.manifest is not None:
            (self._retired if retired else self._live).add(ids, arrays)

    def close(self) -> None:
        if self._rows is not None:
            self._finish()
            self._rows.close()

    def _batch(self, ids: Any, arrays: npt.NDArray[Any], retired: bool) -> Any:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(arrays.reshape(-1)), self._layout.width)
        if not self._layout.retired:
            return pa.record_batch([ids, lists], names=self._layout.named(self._layout.name))
        names = self._layout.named(self._layout.name, manifest.RETIRED_COLUMN)
        return pa.record_batch([ids, lists, pa.array(np.full(len(ids), retired))], names=names)

    def _open(self, schema: Any) -> Any:
        # Ids are all different: a dictionary of them would only take space.
        options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
        return parquet.ParquetWriter(self._file, schema, **options)

    def _finish(self) -> None:
        """What is only known after the last row."""
        if self._layout.manifest is not None:
            content = manifest.complete(self._layout.manifest, self._live, self._retired)
            self._rows.add_key_value_metadata({manifest.KEY: json.dumps(content)})


class _CsvWriter(_ParquetWriter):
    """As Parquet, but with other columns and another writer of pyarrow."""

    def _batch(self, ids: Any, arrays: npt.NDArray[Any], retired: bool) -> Any:
        stem = CODE_COLUMN if self._layout.name == CODES_COLUMN else self._layout.name
        names = self._layout.named(*(f"{stem}_{i + 1}" for i in range(self._layout.width)))
        return pa.record_batch([ids, *(pa.array(np.ascontiguousarray(column)) for column in arrays.T)], names=names)

    def _open(self, schema: Any) -> Any:
        return csv.CSVWriter(self._file, schema, write_options=csv.WriteOptions(quoting_style="needed"))

    def _finish(self) -> None:
        """CSV has no room for a manifest."""


class _JsonLinesWriter(Writer):
    """pyarrow has no writer of JSON. Its cast to text gives float32 their shortest form, which ``json`` does not."""

    def write(self, ids: Any, arrays: npt.NDArray[Any], retired: bool = False) -> None:
        numbers = [pa.array(np.ascontiguousarray(column)).cast(pa.large_string()) for column in arrays.T]
        lists = pc.binary_join_element_wise(*numbers, pa.scalar(", ", pa.large_string()))
        encode = json.JSONEncoder(ensure_ascii=False).encode
        id_key, key = map(encode, self._layout.named(self._layout.name))
        if pa.types.is_uint64(ids.type):  # readers of JSON know numbers up to 2^63 at most
            ids = ids.cast(pa.large_string())
        rows = zip(ids.to_pylist(), lists.to_pylist(), strict=True)
        self._file.writelines(f"{{{id_key}: {encode(name)}, {key}: [{inside}]}}\n".encode() for name, inside in rows)


class _ArrayWriter(Writer):
    def __init__(self, file: IO[bytes], layout: TableLayout) -> None:
        super().__init__(file, layout)
        descr, shape = np.dtype(layout.dtype).str, (layout.rows, layout.width)
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})

    def write(self, ids: Any, arrays: npt.NDArray[Any], retired: bool = False) -> None:
        self._file.write(np.ascontiguousarray(arrays, dtype=self._layout.dtype).data)
