"""Write tables of ids and codes, or ids and vectors, batch by batch; the file appears only when it is complete."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from ghrq.data.outputs import replacing
from ghrq.data.tables.table import CODE_COLUMN, CODES_COLUMN

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


class Writer(ABC):
    """Takes batches in the order of the rows."""

    @abstractmethod
    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        """Append ``ids (n,)``, an Arrow array, and ``arrays (n, width)``."""

    @abstractmethod
    def close(self) -> None:
        """Finish the file."""


@contextmanager
def open_writer(path: Path, layout: TableLayout) -> Iterator[Writer]:
    """A writer in the format of ``path``'s extension, one of :data:`FORMATS`."""
    kind: dict[str, Callable[[Path, TableLayout], Writer]]
    kind = {".parquet": _ParquetWriter, ".csv": _CsvWriter, ".jsonl": _JsonLinesWriter, ".npy": _ArrayWriter}
    with replacing(path) as temporary:
        writer = kind[path.suffix.lower()](temporary, layout)
        try:
            yield writer
        finally:
            writer.close()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


class _ArrowWriter(Writer):
    """A writer of pyarrow, opened with the schema of the first batch."""

    def __init__(self, path: Path, layout: TableLayout) -> None:
        self._path, self._layout = path, layout
        self._file: Any = None

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        batch = self._batch(ids, np.asarray(arrays, dtype=self._layout.dtype))
        if self._file is None:
            self._file = self._open(batch.schema)
        self._file.write_batch(batch)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @abstractmethod
    def _batch(self, ids: Any, arrays: npt.NDArray[Any]) -> Any: ...

    @abstractmethod
    def _open(self, schema: Any) -> Any: ...


class _ParquetWriter(_ArrowWriter):
    def _batch(self, ids: Any, arrays: npt.NDArray[Any]) -> Any:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(arrays.reshape(-1)), self._layout.width)
        return pa.record_batch([ids, lists], names=[self._layout.id_name, self._layout.name])

    def _open(self, schema: Any) -> Any:
        # Ids are all different: a dictionary of them would only take space.
        return parquet.ParquetWriter(
            self._path, schema, compression="zstd", use_dictionary=False, write_page_checksum=True
        )


class _CsvWriter(_ArrowWriter):
    def _batch(self, ids: Any, arrays: npt.NDArray[Any]) -> Any:
        stem = CODE_COLUMN if self._layout.name == CODES_COLUMN else self._layout.name
        names = [self._layout.id_name, *(f"{stem}_{i + 1}" for i in range(self._layout.width))]
        return pa.record_batch([ids, *(pa.array(np.ascontiguousarray(column)) for column in arrays.T)], names=names)

    def _open(self, schema: Any) -> Any:
        return csv.CSVWriter(self._path, schema, write_options=csv.WriteOptions(quoting_style="needed"))


class _JsonLinesWriter(Writer):
    """pyarrow has no writer of JSON. Its cast to text gives float32 their shortest form, which ``json`` does not."""

    def __init__(self, path: Path, layout: TableLayout) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._keys = [json.dumps(name, ensure_ascii=False) for name in (layout.id_name, layout.name)]

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        numbers = [pa.array(np.ascontiguousarray(column)).cast(pa.large_string()) for column in arrays.T]
        lists = pc.binary_join_element_wise(*numbers, pa.scalar(", ", pa.large_string()))
        (id_key, key), encode = self._keys, json.JSONEncoder(ensure_ascii=False).encode
        rows = zip(ids.to_pylist(), lists.to_pylist(), strict=True)
        self._file.writelines(f"{{{id_key}: {encode(name)}, {key}: [{inside}]}}\n" for name, inside in rows)

    def close(self) -> None:
        self._file.close()


class _ArrayWriter(Writer):
    def __init__(self, path: Path, layout: TableLayout) -> None:
        self._dtype, self._file = np.dtype(layout.dtype), path.open("wb")
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (layout.rows, layout.width)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(arrays, dtype=self._dtype).data)

    def close(self) -> None:
        self._file.close()
