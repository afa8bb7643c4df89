"""CSV and JSON lines as streams of Arrow record batches, parsed by pyarrow. A first pass counts the rows."""

import codecs
import gzip
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

from ghrq.data.tables.columns import is_number, place
from ghrq.data.tables.sources import from_row
from ghrq.system.errors import EmptyTableError, UserError
from ghrq.system.inputs import InputFile

# Bytes of text that are parsed at once.
_BLOCK = 4 * 2**20

_EXPECTED = {
    "CSV": "a header and rows of comma-separated values, in UTF-8",
    "JSON lines": "one JSON object a line, in UTF-8",
}

# Arrow counts the header of a CSV file as row 1.
_CSV_FIRST = -2

# Texts that are the usual spelling of a whole number: 7, but not 007 or 1e3.
_WHOLE_NUMBER = "^(0|-?[1-9][0-9]{0,17})$"

_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"

# Lists and objects in each other: some 20,000 crash pyarrow's parser of JSON.
_DEEPEST = 500
_SIMPLE = re.compile(rb"\{(?:\[\])*\}")  # the brackets of an object of values and lists
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))

_SAVE_AS_UTF8 = "save the file as UTF-8"

# Bytes of the header that are searched for the separator.
_HEADER_BYTES = 2**16


class CsvSource:
    """Comma-separated values with a header, also compressed (``.csv.gz``).

    A column is float64 if most cells of the first block are numbers, else text; a later cell that is no number is then
    an error. Columns named in ``text`` are read as text even if they look like numbers, so that no leading zero is
    lost; they become int64 if every cell is a whole number.
    """

    cuts = (0,)

    def __init__(self, path: Path, text: Collection[str]) -> None:
        self.path, self._file = path, InputFile(path)
        self.manifest: dict[str, Any] = {}
        _check_separator(self._file)
        with _parsing(self._file, "CSV", _CSV_FIRST), self._open() as reader:
            names, first = reader.schema.names, next(iter(reader), None)

        def kind(column: int, name: str) -> Any:
            number = first is None or _mostly_numbers(first.column(column))
            return pa.float64() if number and name not in text else pa.string()

        self.schema = pa.schema([(name, kind(column, name)) for column, name in enumerate(names)])
        self._text = [name for name in names if name in text]

    @property
    def rows(self) -> int:
        """Number of rows, from the first pass."""
        return self._counted[0]

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Parses from the first line on, whatever ``start`` is."""
        kinds = (pa.int64() if name in self._counted[1] else self.schema.field(name).type for name in names)
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        return (batch.cast(schema) for batch in from_row(start, self._batches(names)))

    @cached_property
    def _counted(self) -> tuple[int, set[str]]:
        """The number of rows, and which columns of ``text`` have whole numbers only."""
        rows, whole = 0, set(self._text)
        for batch in self._batches(self._text or self.schema.names[:1], as_text=True):
            rows += len(batch)
            whole = {n for n in whole if pc.all(pc.match_substring_regex(batch.column(n), _WHOLE_NUMBER)).as_py()}
        return rows, whole

    def _batches(self, names: Sequence[str], as_text: bool = False) -> Iterator[Any]:
        with _parsing(self._file, "CSV", _CSV_FIRST, self.schema.names), self._open(names, as_text) as reader:
            for batch in reader:
                self._file.check_unchanged()
                if len(batch):
                    yield batch.select(list(names))

    def _open(self, names: Sequence[str] = (), as_text: bool = False) -> Any:
        """Open for these columns, by default for all of them with the types that pyarrow infers."""
        types = {name: pa.string() if as_text else self.schema.field(name).type for name in names}
        return csv.open_csv(
            str(self.path),
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(include_columns=list(names), column_types=types),
        )


class JsonLinesSource:
    """One JSON object a line, also compressed (``.jsonl.gz``). The first block decides which columns there are.

    Numbers are float64, alone and in lists; in columns named in ``text``, whole numbers are int64, in lists, too.
    """

    cuts = (0,)

    def __init__(self, path: Path, text: Collection[str]) -> None:
        self.path, self._file = path, InputFile(path)
        self.manifest: dict[str, Any] = {}
        self.rows = self._count()
        if not self.rows:
            raise EmptyTableError(f"{path} is empty: expected one JSON object a line")
        with _parsing(self._file, "JSON lines", 0), self._open(None) as reader:
            self.schema = pa.schema([(field.name, _widened(field.name, field.type, text)) for field in reader.schema])

    def read(self, names: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Parses from the first line on, whatever ``start`` is."""
        return from_row(start, self._batches(names))

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        rows = 0
        with (
            self._file.reading("JSON lines"),
            self._open(pa.schema([self.schema.field(name) for name in names])) as reader,
        ):
            while True:
                with _parsing(self._file, "JSON lines", rows):  # an error counts rows from the start of its block
                    batch = next(reader, None)
                if batch is None:
                    break
                yield batch
                rows += len(batch)

    def _count(self) -> int:
        """The number of lines that are not blank. What would crash pyarrow's parser is an error."""
        rows = 0
        with self._file.reading("JSON lines"), _opened(self.path) as file:
            _check_not_utf16(self.path, file.read(2))
            file.seek(0)
            while line := file.readline(2 * _BLOCK):
                problem = "more bytes than can be read at once" if len(line) == 2 * _BLOCK else _problem(line.strip())
                if problem:
                    where = place(self.path, rows)
                    raise UserError(f"{where} cannot be read as JSON lines, it has {problem}: put one object on a line")
                rows += not line.isspace()
        return rows

    def _open(self, schema: Any) -> Any:
        fields = "infer" if schema is None else "ignore"
        return json.open_json(
            str(self.path),
            read_options=json.ReadOptions(block_size=_BLOCK),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=fields),
        )


def _problem(line: bytes) -> str:
    """Why a line, without space around it, cannot be one JSON object, as far as its brackets tell; empty if it can."""
    if not line:
        return ""
    if b"\\" in line:
        line = _ESCAPED.sub(b"", line)
    brackets = b"".join(line.translate(None, _NO_BRACKETS).split(b'"')[::2])  # not those in texts
    if line.removeprefix(codecs.BOM_UTF8)[:1] != b"{" or line[-1:] != b"}":
        return "no whole object"
    if _SIMPLE.fullmatch(brackets):
        return ""
    depth = 0
    for index, bracket in enumerate(brackets):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEEPEST:
            return "too many lists or objects inside of each other"
        if depth <= 0 and index < len(brackets) - 1:
            return "more than one object"
    return "no whole object" if depth else ""


def _widened(name: str, kind: Any, text: Collection[str]) -> Any:
    """The type to read all lines of a column with, from the type in the first block."""
    if pa.types.is_list(kind):
        return pa.list_(_widened(name, kind.value_type, text))
    if pa.types.is_integer(kind) and name in text:
        return kind
    if is_number(kind) or pa.types.is_null(kind):
        return pa.float64()
    # Arrow takes a text that looks like a time for a time.
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _check_separator(given: InputFile) -> None:
    with given.reading("CSV"), _opened(given.path) as file:
        header = file.readline(_HEADER_BYTES)
    _check_not_utf16(given.path, header)
    for separator, called in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in header and b"," not in header:
            raise UserError(f"{given.path} has {called} between its columns: the separator has to be a comma")


def _check_not_utf16(path: Path, start: bytes) -> None:
    """By the mark at the start of the file, or half a character of ASCII there."""
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or start[:2].count(0) == 1:
        raise UserError(f"{path} is text in UTF-16, expected UTF-8: {_SAVE_AS_UTF8}")


def _mostly_numbers(cells: Any) -> bool:
    """Whether more than half of the cells that are not empty are numbers, or all are empty."""
    if not pa.types.is_string(cells.type):
        return is_number(cells.type) or bool(pa.types.is_null(cells.type))
    filled = cells.filter(pc.not_equal(cells, ""))
    return 2 * (pc.sum(pc.match_substring_regex(filled, _NUMBER)).as_py() or 0) > len(filled)


@contextmanager
def _parsing(file: InputFile, kind: str, first: int, names: Sequence[str] = ()) -> Iterator[None]:
    """Translate pyarrow's error about a row into ours; its row 0 is our row ``first``, ``names`` are the columns."""
    with file.reading(kind, f"expected {_EXPECTED[kind]}"):
        try:
            yield
        except UnicodeDecodeError as error:  # of names of columns
            raise UserError(f"{file.path} is not text in UTF-8: {_SAVE_AS_UTF8}") from error
        except pa.ArrowInvalid as error:
            found = re.search(r"[Rr]ow #?(\d+)", str(error))
            if "UTF8" in str(error):
                where = place(file.path, int(found[1]) + first) if found else str(file.path)
                raise UserError(f"{where} is not text in UTF-8: {_SAVE_AS_UTF8}") from error
            if found is None:
                raise
            reason = re.sub(r"\s*(in )?[Rr]ow #?\d+:?", "", str(error).splitlines()[0]).strip().rstrip(".")
            where = place(file.path, int(found[1]) + first)
            cell = re.search(r"column #(\d+):.* invalid value ('.*')", str(error), re.DOTALL)
            if cell is not None and int(cell[1]) < len(names):
                shown = cell[2] if len(cell[2]) <= 42 else f"{cell[2][:40]}…'"
                raise UserError(
                    f"{where}: column {names[int(cell[1])]!r} is {shown}, expected a number: fix or remove that row"
                ) from error
            raise UserError(f"{where} cannot be read as {kind} ({reason[:200]}): fix or remove that row") from error
