"""Find the columns of vectors and ids, and convert them to arrays, with an error for each kind of bad row.

Columns are Arrow arrays. A vector is a list (of fixed size or not), a text such as ``"[0.1, 0.2]"``, or several columns
of numbers.
"""

import difflib
import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ghrq.system.errors import UserError

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.int32]

USUAL_IDS = (
    *("item_id", "itemid", "id", "product_id", "productid", "asin", "parent_asin", "sku", "ean", "gtin", "isbn"),
    *("article_id", "doc_id", "document_id", "movie_id", "movieid", "track_id", "video_id", "uuid"),
)
"""Names that columns of ids usually have, in lower case."""

# How many column names an error lists.
_SHOWN = 12

# How similar a name has to be to be suggested: a letter or two differ, but emb_9 is no suggestion for emb_x.
_SIMILAR = 0.85


class BadRowsError(UserError):
    """Rows that cannot be used, all for the same reason. The message names the first."""

    rows: npt.NDArray[np.int64]
    """``(k,)`` their places in the record batch."""
    reason: str

    @classmethod
    def at(cls, where: "Where", rows: npt.NDArray[np.int64], reason: str, also: str = "") -> "BadRowsError":
        """Of ``rows``, counted from the first of the batch; ``also`` is one more remedy."""
        error = cls(f"{place(where.path, where.first_row + int(rows[0]))}: {reason}: {where.remedy}{also}")
        error.rows, error.reason = rows, reason
        return error


class Where(NamedTuple):
    """A record batch, for errors."""

    path: Path
    first_row: int
    """Its first row in the table."""
    remedy: str
    """What to do about a bad row."""


def place(path: Path, row: int) -> str:
    """A row, as errors name it."""
    return f"{path}, row {row} (counted from 0)"


def checked_name(path: Path, given: str, names: Sequence[str], option: str) -> str:
    """``given``, which has to be one of ``names``, once; the error suggests the most similar one."""
    if names.count(given) > 1:
        raise UserError(f"{path} has {names.count(given)} columns called {given!r}: rename all but one of them")
    if given in names:
        return given
    near = [name for name in names if name.lower() == given.lower()]
    near = near or difflib.get_close_matches(given, names, n=2, cutoff=_SIMILAR)
    hint = f"did you mean {near[0]!r}? " if len(near) == 1 else ""
    raise UserError(f"{path} has no column {given!r}: {hint}{option} takes one of {listed(names)}")


def listed(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:_SHOWN])
    return shown + (f", … ({len(names)} columns)" if len(names) > _SHOWN else "")


def vector_columns(path: Path, schema: Any, column: str | None, others: Sequence[str]) -> tuple[str, ...]:
    """The columns of ``schema`` that form the vectors: one that holds whole vectors, or several of numbers.

    ``column`` is a name, a comma-separated list of names, or a pattern such as ``emb_*``, whose columns come in the
    order of the table. Without one, it is the only column of lists. ``others`` are the columns of ids and labels.
    """
    names = [name for name in schema.names if name not in others]
    if column is None:
        found = [field.name for field in schema if field.name in names and _holds_vectors(field.type)]
        if len(found) != 1:
            many = f"several columns of vectors, {listed(found)}" if found else "no column of lists"
            several = "" if found else ", or several of numbers as a,b,c or a pattern 'emb_*'"
            raise UserError(
                f"{path} has {many}: say where the vectors are with --column, one of {listed(names)}{several}"
            )
        return (checked_name(path, found[0], schema.names, "--column"),)
    if column in schema.names or not set(column) & set(",*?["):
        checked_name(path, column, schema.names, "--column")
        _check_type(path, schema, column, whole=True)
        return (column,)
    if "," in column:
        chosen = [checked_name(path, part.strip(), schema.names, "--column") for part in column.split(",")]
    else:
        chosen = [checked_name(path, name, schema.names, "") for name in names if fnmatch.fnmatchcase(name, column)]
        if not chosen:
            raise UserError(f"no column of {path} matches {column!r}: it has {listed(names)}")
    for name in chosen:
        _check_type(path, schema, name, whole=False)
    return tuple(chosen)


def matrix(where: Where, batch: Any, names: Sequence[str], dim: int | None, dtype: npt.DTypeLike) -> Numbers:
    """The vectors ``(n, dim)`` of a record batch.

    ``dim`` is ``None`` for the first rows of a table: then the most frequent length decides. ``dtype`` is float32, or
    int32 for codes. Every vector has ``dim`` numbers, all of them finite, else it is a :class:`BadRowsError`.
    """
    if len(names) > 1 or is_number(batch.schema.field(names[0]).type):
        columns = [_numbers(where, batch.column(name), name, 1) for name in names]
        values = np.stack(columns, axis=1)
    else:
        array = batch.column(names[0])
        if _is_text(array.type):
            array = _parsed(where, array, names[0])
        _check_no_nulls(where, array, names[0], 1)
        lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
        if dim is None:
            found, counts = np.unique(lengths[lengths > 0], return_counts=True)
            dim = int(found[counts.argmax()]) if len(found) else 0
        unequal = np.flatnonzero((lengths != dim) | (lengths == 0))
        if len(unequal):
            expected = f"{dim} as in other rows" if dim else "at least 1"
            reason = f"column {names[0]!r} has {lengths[unequal[0]]} numbers, expected {expected}"
            raise BadRowsError.at(where, unequal[lengths[unequal] == lengths[unequal[0]]], reason)
        values = _numbers(where, array.flatten(), names[0], dim).reshape(-1, dim)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    if np.issubdtype(result.dtype, np.floating):
        wrong, complaint = ~np.isfinite(result), "holds NaN or a number that is not finite in float32"
    else:
        wrong, complaint = result != values, "holds a number that is not a code"
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1))
        name = names[int(wrong[rows[0]].argmax())] if len(names) > 1 else names[0]
        raise BadRowsError.at(where, rows, f"column {name!r} {complaint}")
    return result


def id_array(where: Where, array: Any, name: str) -> Any:
    """Ids as an Arrow array of int64 or of text, none of them missing."""
    if array.null_count:
        raise BadRowsError.at(where, _nulls(array), f"column {name!r} has no id", ", or leave out --id")
    if pa.types.is_integer(array.type):
        return array if pa.types.is_uint64(array.type) else array.cast(pa.int64())
    if _is_text(array.type):
        try:
            return _checked_text(array, pa.large_string())
        except pa.ArrowInvalid:
            texts = enumerate(array.cast(pa.large_binary()).to_pylist())
            wrong = [row for row, text in texts if text.decode(errors="ignore").encode() != text]
            raise BadRowsError.at(where, np.array(wrong), f"column {name!r} is not text in UTF-8") from None
    raise UserError(
        f"{where.path}: ids have to be text or whole numbers, column {name!r} holds {array.type}: "
        "name another column with --id, or convert it"
    )


def shown(value: Any) -> str:
    """An Arrow scalar for a message: empty for a null, and bytes that are not UTF-8 become the character U+FFFD."""
    if not value.is_valid:
        return ""
    return bytes(value.cast(pa.large_binary()).as_py()).decode(errors="replace") if _is_text(value.type) else str(value)


def _checked_text(array: Any, kind: Any) -> Any:
    """Cast to text; Parquet does not check that it is UTF-8, but a cast from bytes does."""
    return array.cast(pa.large_binary()).cast(kind)


def text_array(path: Path, array: Any, name: str) -> Any:
    """Labels as an Arrow array of text; a list, such as a path of categories, becomes one text joined by ``' > '``."""
    if _holds_vectors(array.type):
        raise UserError(f"{path}: column {name!r} holds vectors ({array.type}), which are no labels: name another")
    try:
        if _is_list(array.type):
            array = pc.binary_join(array.cast(pa.list_(pa.string())), " > ")
        return _checked_text(array.cast(pa.string()), pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        if "UTF8" in str(error):
            raise UserError(f"{path}: column {name!r} is not text in UTF-8: save the file as UTF-8") from error
        raise UserError(f"{path}: column {name!r} holds {array.type}, which cannot be a label: name another") from error


def _holds_vectors(kind: Any) -> bool:
    return _is_list(kind) and (is_number(kind.value_type) or pa.types.is_null(kind.value_type))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def can_be_ids(kind: Any, floats: bool) -> bool:
    """Whether an Arrow type may hold ids; ``floats`` if numbers may be whole ones."""
    return _is_text(kind) or bool(pa.types.is_integer(kind)) or (floats and is_number(kind))


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _check_type(path: Path, schema: Any, name: str, whole: bool) -> None:
    """Whether a column can be a vector (``whole``) or one number of it."""
    kind = schema.field(name).type
    if is_number(kind) or (whole and (_holds_vectors(kind) or _is_text(kind))):
        return
    expected = "a list of numbers" if whole else "numbers"
    raise UserError(f"{path}: column {name!r} holds {kind}, expected {expected}: name another with --column")


def _nulls(array: Any) -> npt.NDArray[np.int64]:
    return np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))


def _check_no_nulls(where: Where, array: Any, name: str, width: int) -> None:
    """Raise an error for a null; ``width`` entries of ``array`` belong to one row."""
    if array.null_count:
        raise BadRowsError.at(where, np.unique(_nulls(array) // width), f"column {name!r} has a value missing or NaN")


def _numbers(where: Where, array: Any, name: str, width: int) -> npt.NDArray[Any]:
    _check_no_nulls(where, array, name, width)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _parsed(where: Where, array: Any, name: str) -> Any:
    """Parse texts such as ``"[0.1, 0.2]"`` or ``"0.1 0.2"`` into lists."""

    def parse(texts: Any) -> Any:
        """The lists, ``None`` if one of the texts cannot be parsed."""
        try:
            parts = pc.split_pattern_regex(pc.utf8_trim(texts, " \t\r\n[]"), r"\s*,\s*|\s+")
            return parts.cast(pa.list_(pa.float64()))
        except pa.ArrowInvalid:
            return None

    if (lists := parse(array)) is not None:
        return lists
    wrong = np.array([row for row in range(len(array)) if parse(array[row : row + 1]) is None], dtype=np.int64)
    text = shown(array[int(wrong[0])])
    text = text if len(text) <= 40 else f"{text[:40]}…"
    reason = f"column {name!r} is {text!r}, expected numbers such as [0.1, 0.2]"
    raise BadRowsError.at(where, wrong, reason, ", or name another column with --column")
