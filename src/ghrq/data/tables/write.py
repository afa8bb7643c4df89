"""Tables of ids and codes, or ids and vectors, written batch by batch; the file is there whole or not at all."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ghrq.data.tables.table import CODE_COLUMN, CODES_COLUMN
from ghrq.system import files
from ghrq.system.errors import UserError, require

FORMATS = (".parquet", ".csv", ".jsonl", ".npy")
"""Extensions that can be written. CSV has a column for each number, ``.npy`` no ids."""


class Layout(NamedTuple):
    """What a table to be written looks like."""

    id_name: str
    name: str
    """Of the column of the arrays: ``codes`` or ``embedding``."""
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
        """Nothing more comes."""


def check_output(path: Path, formats: Sequence[str] | None = FORMATS, inputs: Sequence[Path] = ()) -> None:
    """Raise an error if ``path`` cannot be written, before any work is done.

    ``formats`` are the extensions it may have, ``None`` if it is a folder; ``inputs`` are files that it must not be.
    """
    if formats is not None and path.suffix.lower() not in formats:
        raise UserError(f"cannot tell the format of {path}: expected a name that ends in {', '.join(formats)}")
    for given in inputs:
        if path.resolve() == given.resolve() or given.resolve().is_relative_to(path.resolve()):
            raise UserError(f"{path} would overwrite the input {given}: give --out another name")
    if formats is not None and path.is_dir():
        raise UserError(f"{path} is a folder: give --out the name of a file")
    _check_parent(path)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): give --out a folder you may write to") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """:func:`ghrq.system.files.draft`, whose errors tell the user what to do."""
    _check_parent(path)
    with files.telling(path), files.draft(path) as temporary:
        yield temporary


def _check_parent(path: Path) -> None:
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"cannot write {path}: {path.parent} is a file, not a folder: name another place")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {path.parent}: create it first")


@contextmanager
def open_writer(path: Path, layout: Layout) -> Iterator[Writer]:
    """A writer in the format of ``path``'s extension, one of :data:`FORMATS`."""
    kind: dict[str, Callable[[Path, Layout], Writer]]
    kind = {".parquet": _ParquetWriter, ".csv": _CsvWriter, ".jsonl": _JsonLinesWriter, ".npy": _ArrayWriter}
    with replacing(path) as temporary:
        writer = kind[path.suffix.lower()](temporary, layout)
        try:
            yield writer
        finally:
            writer.close()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


class _ParquetWriter(Writer):
    def __init__(self, path: Path, layout: Layout) -> None:
        self._path, self._layout = path, layout
        self._file: Any = None

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        arrow = require("pyarrow", "tokenizer")
        flat = arrow.array(np.ascontiguousarray(arrays, dtype=self._layout.dtype).reshape(-1))
        lists = arrow.FixedSizeListArray.from_arrays(flat, self._layout.width)
        batch = arrow.record_batch([ids, lists], names=[self._layout.id_name, self._layout.name])
        if self._file is None:
            # Ids are all different, so a dictionary of them is only in the way.
            self._file = require("pyarrow.parquet", "tokenizer").ParquetWriter(
                self._path, batch.schema, compression="zstd", use_dictionary=False, write_page_checksum=True
            )
        self._file.write_batch(batch)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _CsvWriter(Writer):
    def __init__(self, path: Path, layout: Layout) -> None:
        stem = CODE_COLUMN if layout.name == CODES_COLUMN else layout.name
        self._names = [layout.id_name, *(f"{stem}_{i + 1}" for i in range(layout.width))]
        self._path, self._layout = path, layout
        self._file: Any = None

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        arrow, csv = require("pyarrow", "tokenizer"), require("pyarrow.csv", "tokenizer")
        columns = [arrow.array(np.ascontiguousarray(column, dtype=self._layout.dtype)) for column in arrays.T]
        batch = arrow.record_batch([ids, *columns], names=self._names)
        if self._file is None:
            options = csv.WriteOptions(quoting_style="needed")
            self._file = csv.CSVWriter(self._path, batch.schema, write_options=options)
        self._file.write_batch(batch)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _JsonLinesWriter(Writer):
    def __init__(self, path: Path, layout: Layout) -> None:
        self._layout, self._file = layout, path.open("wb")

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        arrow, compute = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
        names = [_json_text(arrow.array([name]))[0].as_py() for name in (self._layout.id_name, self._layout.name)]
        numbers = [arrow.array(np.ascontiguousarray(column)).cast(arrow.large_string()) for column in arrays.T]
        inside = compute.binary_join_element_wise(*numbers, arrow.scalar(", ", arrow.large_string()))
        shown = ids.cast(arrow.large_string())
        shown = shown if arrow.types.is_integer(ids.type) else _json_text(shown)
        parts = [f"{{{names[0]}: ", shown, f", {names[1]}: [", inside, "]}\n", ""]
        texts = [arrow.scalar(part, arrow.large_string()) if isinstance(part, str) else part for part in parts]
        lines = compute.binary_join_element_wise(*texts)
        _, offsets, data = lines.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)
        self._file.write(memoryview(data)[bounds[lines.offset] : bounds[lines.offset + len(lines)]])

    def close(self) -> None:
        self._file.close()


class _ArrayWriter(Writer):
    def __init__(self, path: Path, layout: Layout) -> None:
        self._dtype, self._file = np.dtype(layout.dtype), path.open("wb")
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (layout.rows, layout.width)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def write(self, ids: Any, arrays: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(arrays, dtype=self._dtype).data)

    def close(self) -> None:
        self._file.close()


def _json_text(texts: Any) -> Any:
    """Texts as JSON writes them, with the quotes."""
    arrow, compute = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    texts = texts.cast(arrow.large_string())
    for letter in ("\\", '"'):
        texts = compute.replace_substring(texts, letter, "\\" + letter)
    if compute.any(compute.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
        for code in range(0x20):
            texts = compute.replace_substring(texts, chr(code), f"\\u{code:04x}")
    quote, nothing = arrow.scalar('"', arrow.large_string()), arrow.scalar("", arrow.large_string())
    return compute.binary_join_element_wise(quote, texts, quote, nothing)
