"""Open a table of vectors and ids, and read it in batches."""

import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ghrq.data.tables import columns, manifest
from ghrq.data.tables.columns import Numbers
from ghrq.data.tables.sources import ARRAY_COLUMN, ArraySource, ParquetSource, Source
from ghrq.data.tables.text import CsvSource, JsonLinesSource
from ghrq.system.errors import EmptyTableError, UserError
from ghrq.system.progress import Progress

ROW_COLUMN = "row"
"""Name of the id column of a table without ids: its ids are the row numbers."""

CODES_COLUMN = "codes"
"""The column of codes: lists of integers. In CSV there is one column for each, see :data:`CODE_COLUMN`."""
CODE_COLUMN = "code"
"""In CSV the columns of codes are ``code_1``, ``code_2``, …"""

OnBad = Literal["stop", "skip"]
"""What to do with a row that cannot be used: an error, or to leave it out and count it."""

SILENT = Progress()

_BATCH_BYTES, _MOST_ROWS = 8 * 2**20, 2**16

_READABLE = ".parquet, .npy, .csv, .csv.gz, .jsonl, .jsonl.gz"


class Batch(NamedTuple):
    """``ids, vectors``."""

    ids: Any
    """``(n,)`` an Arrow array of text or whole numbers."""
    vectors: Any
    """``(n, dim)`` float32, or the type that the table was opened with."""


class SkippedRow(NamedTuple):
    """A row that was left out."""

    row: int
    id: str
    """Empty if it has none."""
    reason: str


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
        skipped: the rows that were left out, see ``on_bad``; they do not count in ``rows``.
        manifest: what ghrq wrote about the file into it, such as the tokenizer that made codes; empty if nothing.

    """

    def __init__(
        self,
        source: Source,
        column: str | None,
        id_column: str | None,
        label_column: str | None,
        dtype: npt.DTypeLike,
        on_bad: OnBad = "stop",
        progress: Progress = SILENT,
        title_column: str | None = None,
        retired: bool = False,
    ) -> None:
        self._source, self.path, self.dtype = source, source.path, np.dtype(dtype)
        self.manifest = source.manifest
        others = [
            columns.checked_name(self.path, name, source.schema.names, option)
            for name, option in ((id_column, "--id"), (label_column, "--labels"), (title_column, "--title"))
            if name is not None
        ]
        self._vectors = columns.vector_columns(self.path, source.schema, column, others)
        self._id, self._label, self._title = id_column, label_column, title_column
        self.id_name, self.has_ids = id_column or ROW_COLUMN, id_column is not None
        self.column = ",".join(self._vectors)
        if self.column == CODES_COLUMN and "tokenizer" in self.manifest and self.dtype.kind == "f":
            raise UserError(f"{self.path} holds the IDs of 'ghrq encode', not embeddings: name the table of embeddings")
        self.rows, self._first = source.rows, 0  # retired items are the last rows of a file
        if "rows" in self.manifest and self.dtype.kind == "i":
            self.rows = self.manifest["retired" if retired else "rows"]
            self._first = self.manifest["rows"] if retired else 0
        if not self.rows:
            raise EmptyTableError(f"{self.path} is empty: expected a table with at least one row")
        self.skipped: list[SkippedRow] = []
        self._gaps = np.empty(0, dtype=np.int64)  # skipped rows, each without those before it
        if on_bad == "skip":
            self._skip_bad_rows(progress)
            return
        ((_, first), *_) = self._records(self._vectors, 1, 0, 1)
        self.dim = int(columns.matrix(self._where(0), first, self._vectors, None, self.dtype).shape[1])

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """The rows from ``start`` to before ``stop`` (by default all) in batches of ``size``, the last smaller.

        After all rows of a file of IDs with a manifest, another checksum than that of the manifest is an error.
        """
        whole = start == 0 and (stop is None or stop >= self.rows)
        expected = self.manifest.get("retired_content" if self._first else "content") if whole else None
        read = None if expected is None or self.dtype.kind != "i" else manifest.Content()
        for rows, records in self._records(self._names, size, start, stop):
            vectors = columns.matrix(self._where(rows[0]), records, self._vectors, self.dim, self.dtype)
            batch = Batch(self._ids_of(records, rows), vectors)
            if read is not None:
                read.add(*batch)
            yield batch
        if read is not None and expected is not None:
            manifest.check_content(self.path, expected, read)

    def ids(self, size: int) -> Iterator[Any]:
        """Only the ids; the vectors are not read where the format allows it."""
        if self._id is None:
            for first in range(0, self.rows, size):
                yield pa.array(self.row_numbers(np.arange(first, min(first + size, self.rows))))
            return
        for rows, records in self._records([self._id], size, 0, None):
            yield self._ids_of(records, rows)

    def require_ids(self) -> None:
        """Raise an error if there are none."""
        if not self.has_ids:
            raise UserError(f"{self.path} has no ids of items: give a .parquet, .csv or .jsonl that has them")

    def likely_ids(self) -> str | None:
        """A column that is called as ids usually are, and could be used as such; ``None`` if there is none."""
        # Whole numbers of text formats count as float64 unless they are read as ids.
        floats = not isinstance(self._source, ParquetSource)
        fits = {
            field.name.lower(): field.name
            for field in self._source.schema
            if field.name not in self._vectors and columns.can_be_ids(field.type, floats)
        }
        return next((fits[name] for name in columns.USUAL_IDS if name in fits), None)

    def labels(self, rows: npt.NDArray[np.int64] | None = None) -> list[str | None]:
        """The label of each row, or of ``rows (m,)``, ascending; a path of categories is joined by ``' > '``."""
        if self._label is None:
            raise UserError(f"{self.path} was opened without a column of labels: name one")
        return self._texts(self._label, rows)

    def names(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """What to call ``rows (m,)``, ascending: their titles if the table was opened with such a column, else ids."""
        column = self._title or self._id
        if column is None:
            return [f"row {number}" for number in self.row_numbers(rows)]
        return [name or "" for name in self._texts(column, rows)]

    def _texts(self, column: str, rows: npt.NDArray[np.int64] | None) -> list[str | None]:
        """A column as text: all of it, or ``rows (m,)``, ascending."""
        texts: list[str | None] = []
        first = 0
        for _, part in self._records([column], _MOST_ROWS, 0, None):
            found, stop = part.column(0), first + len(part)
            if rows is not None:
                found = found.take(pa.array(rows[slice(*np.searchsorted(rows, (first, stop)))] - first))
            texts += columns.text_array(self.path, found, column).to_pylist()
            first = stop
        return texts

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
        given = np.asarray(self._source.cuts, dtype=np.int64)
        skipped = self._gaps + np.arange(len(self._gaps))
        cuts = -(-(given - np.searchsorted(skipped, given)) // size) * size
        starts = np.unique(cuts[cuts < self.rows])
        return list(zip(starts.tolist(), [*starts[1:].tolist(), self.rows], strict=True))

    def row_numbers(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers that ``rows`` of this table have in the file: there the skipped rows count, too."""
        return rows + np.searchsorted(self._gaps, rows, side="right") + self._first

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self._vectors, *([] if self._id is None else [self._id])]))

    def _records(
        self, names: Sequence[str], size: int, start: int, stop: int | None
    ) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
        """Record batches of ``size`` rows, each with the numbers of its rows in the file."""
        left = (self.rows if stop is None else min(stop, self.rows)) - start
        here = int(self.row_numbers(np.array([start]))[0])
        waiting: list[Any] = []
        for part in self._source.read(names, here):
            part, here = self._without_skipped(part, here)[:left], here + len(part)
            left -= len(part)
            waiting.append(part)
            while sum(map(len, waiting)) >= size or (left == 0 and waiting):
                table = pa.Table.from_batches(waiting)
                whole, rest = table[:size].combine_chunks().to_batches(), table[size:].to_batches()
                yield self.row_numbers(np.arange(start, start + len(whole[0]))), whole[0]
                start += len(whole[0])
                waiting = [batch for batch in rest if len(batch)]
            if left == 0:
                return
        if left > 0:
            raise UserError(
                f"{self.path} ended {left} rows early, it is damaged or was changed: write or copy it again"
            )

    def _without_skipped(self, part: Any, first: int) -> Any:
        """A record batch from row ``first`` of the file on, without the skipped rows."""
        if not self.skipped:
            return part
        skipped = self._gaps + np.arange(len(self._gaps))
        gone = skipped[slice(*np.searchsorted(skipped, (first, first + len(part))))] - first
        return part.take(pa.array(np.delete(np.arange(len(part)), gone))) if len(gone) else part

    def _skip_bad_rows(self, progress: Progress) -> None:
        """Find all rows that cannot be used, in one pass, and leave them out from now on."""
        dim, skipped = None, []
        with progress.patient_bar("checking", self.rows, "rows") as bar:
            for rows, records in self._records(self._names, _MOST_ROWS, 0, None):
                bar.advance(len(rows))
                while len(rows):
                    try:
                        self._ids_of(records, rows)
                        dim = columns.matrix(self._where(rows[0]), records, self._vectors, dim, self.dtype).shape[1]
                        break
                    except columns.BadRowsError as error:
                        bad = error.rows
                        ids = None if self._id is None else records.column(self._id)
                        skipped += [
                            SkippedRow(int(rows[row]), "" if ids is None else columns.shown(ids[row]), error.reason)
                            for row in bad.tolist()
                        ]
                        kept = np.delete(np.arange(len(rows)), bad)
                        rows, records = rows[kept], records.take(pa.array(kept))
        if dim is None:
            first = min(skipped)
            raise UserError(f"{self.path} has no row that can be used, row {first.row} because {first.reason}")
        self.dim, self.skipped = int(dim), sorted(skipped)
        self._gaps = np.array([row.row for row in self.skipped], dtype=np.int64) - np.arange(len(skipped))
        self.rows -= len(skipped)

    def _where(self, row: Any) -> columns.Where:
        is_float = np.issubdtype(self.dtype, np.floating)
        remedy = "fix or remove that row, or leave such rows out with --on-bad skip" if is_float else "encode it again"
        return columns.Where(self.path, int(row), remedy)

    def _ids_of(self, records: Any, rows: npt.NDArray[np.int64]) -> Any:
        if self._id is None:
            return pa.array(rows)
        return columns.id_array(self._where(rows[0]), records.column(self._id), self._id)


def batch_rows(dim: int) -> int:
    """Batch size for vectors of ``dim`` numbers: larger ones are no faster."""
    return min(max(256, _BATCH_BYTES // (4 * dim)), _MOST_ROWS)


def open_table(
    path: str | os.PathLike[str],
    column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    dtype: npt.DTypeLike = np.float32,
    on_bad: OnBad = "stop",
    progress: Progress = SILENT,
    title_column: str | None = None,
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
        on_bad: ``"skip"`` reads the table once and leaves out the rows without an id or a vector of finite numbers;
            :attr:`VectorTable.skipped` lists them. With ``"stop"`` such a row is an error when it is read.
        progress: shows how far that is.
        title_column: for :meth:`VectorTable.names`.

    """
    text = {name for name in (id_column, label_column, title_column) if name is not None}
    source = open_source(Path(path), text)
    if isinstance(source, ArraySource):
        options = {"--id": id_column, "--labels": label_column, "--title": title_column, "--column": column}
        for option, given in options.items():
            if given not in (None, ARRAY_COLUMN):
                raise UserError(f"{path} is an array and has no columns: leave out {option} {given}")
    return VectorTable(source, column, id_column, label_column, dtype, on_bad, progress, title_column)


def open_codes(
    path: str | os.PathLike[str],
    label_column: str | None = None,
    title_column: str | None = None,
    retired: bool = False,
) -> VectorTable:
    """Open a table of codes as ``ghrq encode`` writes it, in any of its formats; its vectors are the codes, int32.

    Columns of labels and titles are there only if somebody has added them. ``retired``: of the retired items instead of
    those in use; ``manifest["retired"]`` of the others says how many.
    """
    path = Path(path)
    source = open_source(path, ())
    if isinstance(source, ArraySource):
        return open_table(path, None, None, label_column, np.int32, title_column=title_column)
    names = source.schema.names
    counted = (f"{CODE_COLUMN}_{stage}" for stage in itertools.count(1))
    codes = [CODES_COLUMN] if CODES_COLUMN in names else list(itertools.takewhile(lambda name: name in names, counted))
    ids = [name for name in names if name not in codes]
    if not codes:
        shown = columns.listed(names)
        raise UserError(f"{path} has no column {CODES_COLUMN!r} but {shown}: expected a file of 'ghrq encode'")
    id_column = ids[0] if ids else None
    if not isinstance(source, ParquetSource):
        return open_table(path, ",".join(codes), id_column, label_column, np.int32, title_column=title_column)
    return VectorTable(
        source, ",".join(codes), id_column, label_column, np.int32, title_column=title_column, retired=retired
    )


def open_source(path: str | Path, text: Collection[str]) -> Source:
    """The reader of a file as rows of any columns; those in ``text`` keep their spelling."""
    path = Path(path)
    name = path.name.lower().removesuffix(".gz")
    if os.path.isdir(path) or name.endswith(".parquet"):
        return ParquetSource(path)
    if name.endswith(".npy"):
        return ArraySource(path)
    if name.endswith(".csv"):
        return CsvSource(path, text)
    if name.endswith((".jsonl", ".ndjson")):
        return JsonLinesSource(path, text)
    raise UserError(f"{path} has no format that can be read: expected {_READABLE}")
