"""CSV and JSON lines as streams of Arrow record batches. They are gone through once to count the rows."""

import gzip
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from ghrq.data.tables.columns import place
from ghrq.data.tables.sources import Source, reading
from ghrq.system.errors import UserError, require

# Bytes of text that are parsed at once.
_BLOCK = 4 * 2**20

_EXPECTED = {
    "CSV": "a header and rows of comma-separated values, in UTF-8",
    "JSON lines": "one JSON object a line, in UTF-8",
}

# Arrow counts the header of a CSV file as row 1.
_CSV_FIRST = -2

# Texts that say the same as the whole numbers they can be read as: 7, but not 007 or 1e3.
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,17})$"

_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"

# Longer headers than this are not looked at for their separators.
_HEADER_BYTES = 2**16


class CsvSource(Source):
    """Comma-separated values with a header, also compressed (``.csv.gz``).

    Columns of numbers are float64, all others text: what most of the first cells are decides, and a cell that is no
    number among numbers is an error. Columns named in ``text`` are read as text even if they look like numbers, so
    that no leading zero is lost; those of whole numbers throughout are int64.
    """

    def __init__(self, path: Path, text: Collection[str]) -> None:
        arrow = require("pyarrow", "tokenizer")
        self.path = path
        _check_separator(path)
        with _parsing(path, "CSV", _CSV_FIRST), self._open(None) as reader:
            found, first = reader.schema, next(iter(reader), None)

        def kind(place: int, field: Any) -> Any:
            number = first is None or _mostly_numbers(first.column(place))
            return arrow.float64() if number and field.name not in text else arrow.string()

        self.schema = arrow.schema([(field.name, kind(place, field)) for place, field in enumerate(found)])
        self._text = [name for name in found.names if name in text]

    @property
    def rows(self) -> int:
        """Counted."""
        return self._counted[0]

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """From the first line on, whatever the ``start``."""
        arrow = require("pyarrow", "tokenizer")
        for batch in _from_row(start, self._batches(names)):
            columns = [
                column.cast(arrow.int64()) if name in self._counted[1] else column
                for name, column in zip(names, batch.columns, strict=True)
            ]
            yield arrow.record_batch(columns, names=list(names))

    @cached_property
    def _counted(self) -> tuple[int, set[str]]:
        """The number of rows, and which columns of ``text`` have whole numbers only."""
        compute = require("pyarrow.compute", "tokenizer")
        rows, whole = 0, set(self._text)
        for batch in self._batches(self._text or self.schema.names[:1], as_text=True):
            rows += len(batch)
            for name in list(whole):
                if not compute.all(compute.match_substring_regex(batch.column(name), _WHOLE_NUMBER)).as_py():
                    whole.remove(name)
        return rows, whole

    def _batches(self, names: Sequence[str], as_text: bool = False) -> Iterator[Any]:
        with _parsing(self.path, "CSV", _CSV_FIRST, self.schema.names), self._open(names, as_text) as reader:
            for batch in reader:
                if len(batch):
                    yield batch.select(list(names))

    def _open(self, names: Sequence[str] | None, as_text: bool = False) -> Any:
        arrow, csv = require("pyarrow", "tokenizer"), require("pyarrow.csv", "tokenizer")
        numbers = {name: not as_text and self.schema.field(name).type == arrow.float64() for name in names or ()}
        return csv.open_csv(
            str(self.path),
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=None if names is None else list(names),
                column_types={name: arrow.float64() if number else arrow.string() for name, number in numbers.items()},
            ),
        )


class JsonLinesSource(Source):
    """One JSON object a line, also compressed (``.jsonl.gz``). The first lines say which columns there are.

    Numbers are float64, alone and in lists; in columns named in ``text``, whole numbers are int64.
    """

    def __init__(self, path: Path, text: Collection[str]) -> None:
        self.path = path
        first = next(self._blocks(), None)
        if first is None:
            raise UserError(f"{path} is empty: expected one JSON object a line")
        with _parsing(path, "JSON lines", 0):
            self.schema = _widened(self._parse(first, None).schema, text)

    @cached_property
    def rows(self) -> int:
        """Lines that are not blank."""
        return sum(sum(map(bool, map(bytes.strip, block.split(b"\n")))) for block in self._blocks())

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """From the first line on, whatever the ``start``."""
        return _from_row(start, self._batches(names))

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        arrow = require("pyarrow", "tokenizer")
        schema = arrow.schema([self.schema.field(name) for name in names])
        before = 0
        for block in self._blocks():
            with _parsing(self.path, "JSON lines", before):
                table = self._parse(block, schema).combine_chunks()
            yield from table.to_batches()
            before += len(table)
        if before != self.rows:
            raise UserError(f"{self.path} has {self.rows} lines but {before} JSON objects: put one object on a line")

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines, together about as long as a block."""
        with reading(self.path, "JSON lines"), _opened(self.path) as file:
            rest = b""
            while chunk := file.read(_BLOCK):
                cut = chunk.rfind(b"\n") + 1
                if cut and (rest + chunk[:cut]).strip():
                    yield rest + chunk[:cut]
                rest = chunk[cut:] if cut else rest + chunk
            if rest.strip():
                yield rest

    @staticmethod
    def _parse(block: bytes, schema: Any) -> Any:
        json = require("pyarrow.json", "tokenizer")
        # A single piece: the rows of an error then count from the start of the block.
        return json.read_json(
            io.BytesIO(block),
            read_options=json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )


def _widened(schema: Any, text: Collection[str]) -> Any:
    """The types to read all lines with, from those that the first lines suggest."""
    arrow = require("pyarrow", "tokenizer")
    types = arrow.types

    def wide(name: str, kind: Any) -> Any:
        if types.is_list(kind):
            return arrow.list_(wide("", kind.value_type))
        if types.is_integer(kind) and name in text:
            return kind
        if types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind):
            return arrow.float64()
        # A text that looks like a time is still a text.
        return arrow.string() if types.is_timestamp(kind) else kind

    return arrow.schema([(field.name, wide(field.name, field.type)) for field in schema])


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _check_separator(path: Path) -> None:
    with reading(path, "CSV"), _opened(path) as file:
        header = file.readline(_HEADER_BYTES)
    for separator, called in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in header and b"," not in header:
            raise UserError(f"{path} has {called} between its columns: the separator has to be a comma, save it so")


def _mostly_numbers(cells: Any) -> bool:
    """Whether more than half of the cells that are not empty are numbers, or all are empty."""
    arrow, compute = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    types = arrow.types
    if not types.is_string(cells.type):
        return any(is_kind(cells.type) for is_kind in (types.is_integer, types.is_floating, types.is_null))
    filled = cells.filter(compute.not_equal(cells, ""))
    return 2 * (compute.sum(compute.match_substring_regex(filled, _NUMBER)).as_py() or 0) > len(filled)


def _from_row(start: int, batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if start < len(batch):
            yield batch[start:]
        start = max(start - len(batch), 0)


@contextmanager
def _parsing(path: Path, kind: str, first: int, names: Sequence[str] = ()) -> Iterator[None]:
    """Turn a parser's complaint of a row into ours; its row 0 is our row ``first``, ``names`` are those of columns."""
    with reading(path, kind, f"expected {_EXPECTED[kind]}"):
        try:
            yield
        except require("pyarrow", "tokenizer").ArrowInvalid as error:
            found = re.search(r"[Rr]ow #?(\d+)", str(error))
            if found is None:
                raise
            reason = re.sub(r"\s*(in )?[Rr]ow #?\d+:?", "", str(error).splitlines()[0]).strip().rstrip(".")
            where = place(path, int(found[1]) + first)
            cell = re.search(r"column #(\d+):.* invalid value ('.*')", str(error), re.DOTALL)
            if cell is not None and int(cell[1]) < len(names):
                shown = cell[2] if len(cell[2]) <= 42 else f"{cell[2][:40]}…'"
                raise UserError(
                    f"{where}: column {names[int(cell[1])]!r} is {shown}, expected a number: mend or remove that row"
                ) from error
            raise UserError(f"{where} cannot be read as {kind} ({reason[:200]}): mend or remove that row") from error
