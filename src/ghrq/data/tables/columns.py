"""Find the columns of vectors and ids, and convert them to arrays, with an error for each kind of bad row.

Columns are Arrow arrays. A vector is a list (of fixed size or not), a text such as ``"[0.1, 0.2]"``, or several columns
of numbers.
"""

import bisect
import difflib
import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ghrq.system.errors import UserError

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.int32]

# How many column names an error lists.
_SHOWN = 12

# How similar a name has to be to be suggested: a letter or two differ, but emb_9 is no suggestion for emb_x.
_SIMILAR = 0.85


def place(path: Path, row: int) -> str:
    """A row, as errors name it."""
    return f"{path}, row {row} (counted from 0)"


def checked_name(path: Path, given: str, names: Sequence[str], option: str) -> str:
    """``given``, which has to be one of ``names``; the error suggests the most similar one."""
    if given in names:
        return given
    near = [name for name in names if name.lower() == given.lower()]
    near = near or difflib.get_close_matches(given, names, n=2, cutoff=_SIMILAR)
    hint = f"did you mean {near[0]!r}? " if len(near) == 1 else ""
    raise UserError(f"{path} has no column {given!r}: {hint}{option} takes one of {listed(names)}")


def listed(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    return ", ".join(names[:_SHOWN]) + (f", … ({len(names)} columns)" if len(names) > _SHOWN else "")


def vector_columns(path: Path, schema: Any, column: str | None, others: Sequence[str]) -> tuple[str, ...]:
    """The columns of ``schema`` that form the vectors: one that holds whole vectors, or several of numbers.

    ``column`` is a name, a comma-separated list of names, or a pattern such as ``emb_*``, whose columns come in the
    order of the table. Without one, it is the only column of lists. ``others`` are the columns of ids and labels.
    """
    names = [name for name in schema.names if name not in others]
    if column is None:
        found = [name for name in names if _holds_vectors(schema.field(name).type)]
        if len(found) != 1:
            many = f"several columns of vectors, {listed(found)}" if found else "no column of lists"
            raise UserError(f"{path} has {many}: say where the vectors are with --column, one of {listed(names)}")
        return (found[0],)
    if column in schema.names or not set(column) & set(",*?["):
        checked_name(path, column, schema.names, "--column")
        _check_type(path, schema, column, whole=True)
        return (column,)
    if "," in column:
        chosen = [checked_name(path, part.strip(), schema.names, "--column") for part in column.split(",")]
    else:
        chosen = [name for name in names if fnmatch.fnmatchcase(name, column)]
        if not chosen:
            raise UserError(f"no column of {path} matches {column!r}: it has {listed(names)}")
    for name in chosen:
        _check_type(path, schema, name, whole=False)
    return tuple(chosen)


def matrix(
    path: Path, batch: Any, names: Sequence[str], dim: int | None, dtype: npt.DTypeLike, first_row: int
) -> Numbers:
    """The vectors ``(n, dim)`` of a record batch whose first row is ``first_row`` of the table.

    ``dim`` is ``None`` for the first rows of a table: then the first one decides. ``dtype`` is float32, or int32 for
    codes. Every vector has ``dim`` numbers, all of them finite.
    """
    if len(names) > 1 or is_number(batch.schema.field(names[0]).type):
        columns = [_numbers(path, batch.column(name), name, 1, first_row) for name in names]
        values = np.stack(columns, axis=1)
    else:
        array = batch.column(names[0])
        if _is_text(array.type):
            array = _parsed(path, array, names[0], first_row)
        _check_no_nulls(path, array, names[0], 1, first_row)
        lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
        dim = int(lengths[0]) if dim is None else dim
        unequal = np.flatnonzero(lengths != dim)
        if len(unequal) or dim == 0:
            row = int(unequal[0]) if len(unequal) else 0
            raise UserError(
                f"{place(path, first_row + row)}: column {names[0]!r} has {lengths[row]} numbers, "
                f"expected {dim or 'at least 1'} as in the first row: fix or remove that row"
            )
        values = _numbers(path, array.flatten(), names[0], dim, first_row).reshape(-1, dim)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    if np.issubdtype(result.dtype, np.floating):
        wrong, complaint = ~np.isfinite(result), "holds NaN or a number that is not finite in float32"
    else:
        wrong, complaint = result != values, "holds a number that is not a code"
    if wrong.any():
        row, column = (int(index) for index in np.unravel_index(wrong.argmax(), wrong.shape))
        name = names[column] if len(names) > 1 else names[0]
        raise UserError(f"{place(path, first_row + row)}: column {name!r} {complaint}: fix or remove that row")
    return result


def id_array(path: Path, array: Any, name: str, first_row: int) -> Any:
    """Ids as an Arrow array of int64 or of text, none of them missing."""
    if array.null_count:
        row = first_row + _first_null(array)
        raise UserError(f"{place(path, row)}: column {name!r} has no id: give every row one, or leave out --id")
    if pa.types.is_integer(array.type):
        return array if pa.types.is_uint64(array.type) else array.cast(pa.int64())
    if _is_text(array.type):
        return array.cast(pa.large_string())
    raise UserError(
        f"{path}: ids have to be text or whole numbers, column {name!r} holds {array.type}: "
        "name another column with --id, or convert it"
    )


def text_array(path: Path, array: Any, name: str) -> Any:
    """Labels as an Arrow array of text; a list, such as a path of categories, becomes one text joined by ``' > '``."""
    try:
        if _is_list(array.type):
            return pc.binary_join(array.cast(pa.list_(pa.string())), " > ")
        return array.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: column {name!r} holds {array.type}, which cannot be a label: name another") from error


def _holds_vectors(kind: Any) -> bool:
    return _is_list(kind) and (is_number(kind.value_type) or pa.types.is_null(kind.value_type))


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


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


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def _check_no_nulls(path: Path, array: Any, name: str, width: int, first_row: int) -> None:
    """Raise an error for a null; ``width`` entries of ``array`` belong to one row."""
    if array.null_count:
        row = first_row + _first_null(array) // width
        raise UserError(f"{place(path, row)}: column {name!r} has a value missing or NaN: fix or remove that row")


def _numbers(path: Path, array: Any, name: str, width: int, first_row: int) -> npt.NDArray[Any]:
    _check_no_nulls(path, array, name, width, first_row)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _parsed(path: Path, array: Any, name: str, first_row: int) -> Any:
    """Parse texts such as ``"[0.1, 0.2]"`` or ``"0.1 0.2"`` into lists."""

    def parse(rows: int) -> Any:
        """The lists of the first ``rows``, ``None`` if one of them cannot be parsed."""
        parts = pc.split_pattern_regex(pc.utf8_trim(array[:rows], " \t\r\n[]"), r"\s*,\s*|\s+")
        try:
            return parts.cast(pa.list_(pa.float64()))
        except pa.ArrowInvalid:
            return None

    if (lists := parse(len(array))) is not None:
        return lists
    wrong = bisect.bisect_left(range(len(array)), True, key=lambda row: parse(row + 1) is None)
    shown = array[wrong].as_py()
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    raise UserError(
        f"{place(path, first_row + wrong)}: column {name!r} is {shown!r}, expected numbers such as [0.1, 0.2]: "
        "fix or remove that row, or name another column with --column"
    )
