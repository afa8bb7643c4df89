"""Parquet and NumPy files as streams of Arrow record batches, from any row on."""

import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from ghrq.data.tables import manifest
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile
from ghrq.system.memory import check_room

# Rows read at once.
ROWS_READ = 16384

# Copies of a batch while it is read, converted and encoded.
_COPIES = 3

# Bytes of the read buffer of a Parquet column; without one, Parquet reads a whole row group into memory.
_BUFFER = 2**20

# The name that the one column of a .npy file gets.
ARRAY_COLUMN = "values"


class Source(Protocol):
    """A file as rows of named columns."""

    path: Path
    schema: Any
    """Names and Arrow types of all columns, as :meth:`read` gives them."""
    manifest: dict[str, Any]
    """What ghrq wrote about the file into it, see :mod:`ghrq.data.tables.manifest`; empty if nothing."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def cuts(self) -> Sequence[int]:
        """Rows, ascending from 0, at which reading can start without reading what comes before."""

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Record batches of these columns, of any lengths, from row ``start`` on to the end."""


class ParquetSource:
    """A file, or a folder of parts in the order of their names."""

    def __init__(self, path: Path) -> None:
        self.path, paths = path, [path]
        if os.path.isdir(path):  # unlike the method of Path, no error for a name that is too long
            paths = sorted(part for part in path.glob("*.parquet") if not part.name.startswith((".", "_")))
            if not paths:
                raise UserError(f"the folder {path} has no *.parquet in it: name a table, or a folder of its parts")
        self._parts: list[tuple[InputFile, list[int]]] = []  # with the rows of each row group
        manifests: list[dict[str, Any]] = []
        for part in map(InputFile, paths):
            with part.reading("parquet"), self._open(part) as file:
                schema = pa.schema([(field.name, _decoded(field.type)) for field in file.schema_arrow])
                groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
                manifests.append(manifest.read(part.path, file.metadata.metadata, file.schema_arrow, sum(groups)))
            if min(groups, default=0) < 0:
                raise UserError(f"{part.path} is damaged, it claims {min(groups)} rows: write or copy it again")
            if self._parts and not schema.equals(self.schema):
                raise UserError(f"{part.path} has other columns than {paths[0]}: parts of a table need the same")
            if manifests[-1].get("tokenizer") != manifests[0].get("tokenizer"):
                raise UserError(f"{part.path} was made by another tokenizer than {paths[0]}: parts need the same")
            if len(paths) > 1 and manifests[-1].get("retired"):
                raise UserError(f"{part.path} has retired items, which a part of a table cannot have: name it alone")
            self.schema: Any = schema
            self._parts.append((part, groups))
        self.manifest = manifest.shared(manifests)
        *self.cuts, self.rows = accumulate((rows for _, groups in self._parts for rows in groups), initial=0)

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Reads row group by row group, through a small buffer."""
        for part, groups in self._parts:
            ends = list(accumulate(groups))
            wanted = [group for group, end in enumerate(ends) if end > start]
            if wanted:
                skip = max(start - (ends[wanted[0]] - groups[wanted[0]]), 0)
                schema = pa.schema([self.schema.field(name) for name in names])
                with part.reading("parquet"), self._open(part) as file:
                    _check_batch_fits(part.path, file.metadata, wanted, schema.names)
                    batches = file.iter_batches(ROWS_READ, row_groups=wanted, columns=schema.names, use_threads=False)
                    for batch in from_row(skip, batches):
                        part.check_unchanged()
                        yield batch.select(schema.names).cast(schema)
            start -= sum(groups)

    @staticmethod
    def _open(part: InputFile) -> Any:
        return parquet.ParquetFile(part.path, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True)


class ArraySource:
    """A ``.npy`` file of two dimensions."""

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, InputFile(path)
        self.manifest: dict[str, Any] = {}
        with self._file.reading("a NumPy array"):
            array = self._array()
        if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise UserError(
                f"{path} holds an array of shape {array.shape} and type {array.dtype}, "
                "expected rows of numbers (n, d), d at least 1: save such an array"
            )
        number = pa.from_numpy_dtype(array.dtype.newbyteorder("="))
        self.schema = pa.schema([(ARRAY_COLUMN, pa.list_(number, array.shape[1]))])
        self.rows, self._dim = array.shape
        self._dtype, self._offset, self._by_columns = array.dtype, array.offset, not array.flags.c_contiguous
        self.cuts = range(0, self.rows, ROWS_READ)  # reading can start anywhere, these are enough

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Reads rows by plain reads: a file that is cut off while it is mapped would end the process."""
        for first in range(start, self.rows, ROWS_READ):
            with self._file.reading("a NumPy array"):
                values = self._rows_from(first, min(ROWS_READ, self.rows - first))
                flat = pa.array(values.astype(values.dtype.newbyteorder("="), copy=False).reshape(-1))
                lists = pa.FixedSizeListArray.from_arrays(flat, self._dim)
            yield pa.record_batch([lists for _ in names], names=list(names))

    def _rows_from(self, first: int, count: int) -> npt.NDArray[Any]:
        """``count`` rows ``(count, d)``."""
        if self._by_columns:  # mapped again for each batch: pages of a map that stays open would count as memory in use
            return np.array(self._array()[first : first + count], order="C")
        offset = self._offset + first * self._dim * self._dtype.itemsize
        return np.fromfile(self.path, self._dtype, count * self._dim, offset=offset).reshape(count, self._dim)

    def _array(self) -> np.memmap[Any, Any]:
        try:
            return np.load(self.path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if "Python objects" not in str(error):
                raise
            raise UserError(
                f"{self.path} holds Python objects, expected rows of numbers (n, d): save it as numbers, "
                "with np.stack(rows).astype(np.float32)"
            ) from error


def _check_batch_fits(path: Path, metadata: Any, groups: Sequence[int], names: Sequence[str]) -> None:
    """Raise an error if rows that are read at once do not fit into memory: a few bytes of Parquet may be long lists."""
    for group in map(metadata.row_group, groups):
        columns = [group.column(index) for index in range(group.num_columns)]
        numbers = sum(column.num_values for column in columns if column.path_in_schema.startswith(tuple(names)))
        rows = min(group.num_rows, ROWS_READ)
        needed = _COPIES * 8 * numbers * rows // max(group.num_rows, 1)
        check_room(needed, f"{path}: reading {rows:,} rows", "write it with shorter lists")


def _decoded(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def from_row(start: int, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches without the first ``start`` rows."""
    for batch in batches:
        if start < len(batch):
            yield batch[start:]
        start = max(start - len(batch), 0)
