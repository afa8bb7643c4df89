"""Open a table of vectors and ids, and read it in batches."""

import fnmatch
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghrq.data.tables import columns
from ghrq.data.tables.columns import Numbers
from ghrq.data.tables.sources import ARRAY_COLUMN, ArraySource, ParquetSource, Source
from ghrq.data.tables.text import CsvSource, JsonLinesSource
from ghrq.system.errors import UserError

ROW_COLUMN = "row"
"""Name of the id column of a table without ids: its ids are the row numbers."""

CODES_COLUMN, CODE_COLUMN = "codes", "code"
"""Columns of codes: one column of lists, or in CSV the columns ``code_1``, ``code_2``, …"""

_BATCH_BYTES, _MOST_ROWS = 8 * 2**20, 2**16

_READABLE = ".parquet, .npy, .csv, .csv.gz, .jsonl, .jsonl.gz"


class Batch(NamedTuple):
    """``ids, vectors``."""

    ids: Any
    """``(n,)`` an Arrow array of text or whole numbers."""
    vectors: Any
    """``(n, dim)`` float32, or the type that the table was opened with."""


class VectorTable:
    """An open table; see :func:`open_table`. It can be pickled for processes that see the same file.

    Attributes:
        path: of the file.
        rows: number of rows, at least 1.
        dim: size of each vector.
        dtype: of the vectors.
        column: the columns of the vectors, separated by commas.
        id_name: the column of the ids, or ``row``.
        has_ids: whether the table has a column of ids.

    """

    def __init__(
        self, source: Source, column: str | None, id_column: str | None, label_column: str | None, dtype: npt.DTypeLike
    ) -> None:
        self._source, self.path, self.dtype = source, source.path, np.dtype(dtype)
        others = [
            columns.checked_name(self.path, name, source.schema.names, option)
            for name, option in ((id_column, "--id"), (label_column, "--labels"))
            if name is not None
        ]
        self._vectors = columns.vector_columns(self.path, source.schema, column, others)
        self._id, self._label = id_column, label_column
        self.id_name, self.has_ids = id_column or ROW_COLUMN, id_column is not None
        self.column = ",".join(self._vectors)
        self.rows = source.rows
        first = next(source.read(self._vectors), None) if self.rows else None
        if first is None:
            raise UserError(f"{self.path} is empty: expected a table with at least one row")
        self.dim = int(columns.matrix(self.path, first[:1], self._vectors, None, self.dtype, 0).shape[1])

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """The rows from ``start`` to before ``stop`` (by default all) in batches of ``size``, the last smaller."""
        names = [*self._vectors, self._id] if self._id is not None and self._id not in self._vectors else self._vectors
        for first, records in self._records(names, size, start, stop):
            vectors = columns.matrix(self.path, records, self._vectors, self.dim, self.dtype, first)
            yield Batch(self._ids_of(records, first), vectors)

    def ids(self, size: int) -> Iterator[Any]:
        """Only the ids; the vectors are not read where the format allows it."""
        if self._id is None:
            for first in range(0, self.rows, size):
                yield pa.array(np.arange(first, min(first + size, self.rows)))
            return
        for first, records in self._records([self._id], size, 0, None):
            yield self._ids_of(records, first)

    def labels(self) -> list[str | None]:
        """The label of each row as text; a path of categories is joined by ``' > '``."""
        if self._label is None:
            raise UserError(f"{self.path} was opened without a column of labels: name one")
        parts = self._source.read([self._label])
        texts = (columns.text_array(self.path, part.column(0), self._label) for part in parts)
        return [label for text in texts for label in text.to_pylist()]

    def take(self, rows: npt.NDArray[np.int64]) -> Numbers:
        """The vectors of ``rows (m,)``, in any order, repeats allowed: ``(m, dim)``.

        Reads everything from the first to the last of them, so ask for rows that are close together.
        """
        wanted, inverse = np.unique(rows, return_inverse=True)
        result = np.empty((len(wanted), self.dim), dtype=self.dtype)
        if len(wanted):
            first, stop = int(wanted[0]), int(wanted[-1]) + 1
            for batch in self.batches(batch_rows(self.dim), first, stop):
                here = slice(*np.searchsorted(wanted, (first, first + len(batch.vectors))))
                result[here] = batch.vectors[wanted[here] - first]
                first += len(batch.vectors)
        return result[inverse]

    def spans(self, size: int) -> list[tuple[int, int]]:
        """Ranges ``(start, stop)`` of rows that can be read independently.

        All starts are multiples of ``size``, so that their batches are those of the whole table.
        """
        cuts = -(-np.asarray(self._source.cuts, dtype=np.int64) // size) * size
        starts = np.unique(cuts[cuts < self.rows])
        return list(zip(starts.tolist(), [*starts[1:].tolist(), self.rows], strict=True))

    def _records(self, names: Sequence[str], size: int, start: int, stop: int | None) -> Iterator[tuple[int, Any]]:
        """Pairs of a first row and a record batch of ``size`` rows."""
        left = (self.rows if stop is None else min(stop, self.rows)) - start
        waiting: list[Any] = []
        for part in self._source.read(names, start):
            part = part[:left]
            left -= len(part)
            waiting.append(part)
            while sum(map(len, waiting)) >= size or (left == 0 and waiting):
                table = pa.Table.from_batches(waiting)
                whole, rest = table[:size].combine_chunks().to_batches(), table[size:].to_batches()
                yield start, whole[0]
                start += len(whole[0])
                waiting = [batch for batch in rest if len(batch)]
            if left == 0:
                return
        if left > 0:
            raise UserError(
                f"{self.path} ended {left} rows early, it is damaged or was changed: write or copy it again"
            )

    def _ids_of(self, records: Any, first: int) -> Any:
        if self._id is None:
            return pa.array(np.arange(first, first + len(records)))
        return columns.id_array(self.path, records.column(self._id), self._id, first)


def batch_rows(dim: int) -> int:
    """Batch size for vectors of ``dim`` numbers: larger ones are no faster."""
    return min(max(256, _BATCH_BYTES // (4 * dim)), _MOST_ROWS)


def open_table(
    path: str | os.PathLike[str],
    column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> VectorTable:
    """Open a table of vectors; a mistake in it is a :class:`UserError` that names file, row and remedy.

    Args:
        path: ``.parquet`` (a file, or a folder of parts), ``.npy``, ``.csv`` or ``.jsonl``, the last two also with
            ``.gz``.
        column: of the vectors: a column of lists, of texts such as ``"[0.1, 0.2]"``, a comma-separated list of
            columns of numbers, or a pattern of them such as ``emb_*``. May be left out if there is one column of lists.
        id_column: a column of texts or whole numbers; without it the ids are the numbers of the rows, from 0.
        label_column: for :meth:`VectorTable.labels`.
        dtype: of the vectors; int32 for codes, which are then checked to be whole numbers.

    """
    text = {name for name in (id_column, label_column) if name is not None}
    source = _source(Path(path), text)
    if isinstance(source, ArraySource):
        for given, option in ((id_column, "--id"), (label_column, "--labels"), (column, "--column")):
            if given not in (None, ARRAY_COLUMN):
                raise UserError(f"{path} is an array and has no columns: leave out {option} {given}")
    return VectorTable(source, column, id_column, label_column, dtype)


def open_codes(path: str | os.PathLike[str]) -> VectorTable:
    """Open a table of codes as ``ghrq encode`` writes it, in any of its formats; its vectors are the codes, int32."""
    path = Path(path)
    names = _source(path, ()).schema.names
    if names == [ARRAY_COLUMN]:
        return open_table(path, dtype=np.int32)
    pattern = CODES_COLUMN if CODES_COLUMN in names else f"{CODE_COLUMN}_*"
    others = [name for name in names if not fnmatch.fnmatchcase(name, pattern)]
    if len(others) == len(names):
        shown = columns.listed(names)
        raise UserError(f"{path} has no column {CODES_COLUMN!r} but {shown}: expected a file of 'ghrq encode'")
    return open_table(path, pattern, others[0] if others else None, dtype=np.int32)


def _source(path: Path, text: Collection[str]) -> Source:
    """The reader of a file; columns in ``text`` keep their spelling."""
    if not path.exists():
        raise UserError(f"there is no file {path}: check the name")
    name = path.name.lower().removesuffix(".gz")
    if path.is_dir() or name.endswith(".parquet"):
        return ParquetSource(path)
    if name.endswith(".npy"):
        return ArraySource(path)
    if name.endswith(".csv"):
        return CsvSource(path, text)
    if name.endswith((".jsonl", ".ndjson")):
        return JsonLinesSource(path, text)
    raise UserError(f"{path} has no format that can be read: expected {_READABLE}")
