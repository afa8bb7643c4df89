"""Tables of numbers in memory or memory-mapped, as rows: numpy, torch, pandas, polars, lists.

They are read in chunks and never copied whole. The same numbers give the same chunks in every container.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.system.errors import UserError, require
from ghrq.system.progress import Bar

# Size of a chunk: fits into the processor's cache, with enough rows that Python's overhead does not matter.
_CHUNK_BYTES, _LEAST_ROWS = 2**23, 256

Which = slice | npt.NDArray[np.int64]


@dataclass(frozen=True)
class ArrayRows:
    """The ``count`` rows of a table, each of ``dim`` numbers."""

    count: int
    dim: int
    read: Callable[[Which], Any]
    """Returns some rows unchecked: an array or tensor ``(m, dim)``."""

    def take(self, which: Which) -> Tensor:
        """``(m, dim)`` float32, or float64 if the numbers may need it. NaN and infinity are errors."""
        x = _floats(self.read(which))
        if bool(x.sum().isfinite()):  # one fast pass; the sum may also have overflowed
            return x
        for place, column in (~x.isfinite()).nonzero()[:1].tolist():
            row = (which.start or 0) + place if isinstance(which, slice) else int(which[place])
            raise UserError(
                f"row {row} of X has a NaN or infinite value, in column {column}; expected finite numbers: "
                "leave such rows out or fill them in"
            )
        return x

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """All rows in order, in chunks ``(m, dim)``, each with the number of its first row."""
        size = max(_LEAST_ROWS, _CHUNK_BYTES // (4 * self.dim))
        for start in range(0, self.count, size):
            yield start, self.take(slice(start, start + size))

    def check(self, bar: Bar) -> None:
        """Read all rows, for the errors of :meth:`take`."""
        for _, x in self.chunks():
            bar.advance(len(x))


def as_rows(table: Any) -> ArrayRows:
    """A table ``(n, d)`` as rows; anything else is an error."""
    if isinstance(table, ArrayRows):
        return table
    home = type(table).__module__.partition(".")[0]
    if hasattr(table, "toarray") or (isinstance(table, Tensor) and table.layout != torch.strided):
        raise UserError(f"X is a sparse {type(table).__name__}, expected dense data: pass X.toarray() or X.to_dense()")
    if isinstance(table, Tensor):
        tensor = table.detach()
        return _checked(tensor, lambda which: tensor[which].cpu())
    if home == "pandas" and table.ndim == 2:
        is_number = require("pandas.api.types", "tokenizer").is_numeric_dtype
        types = [(name, getattr(dtype, "numpy_dtype", dtype)) for name, dtype in table.dtypes.items()]
        _only_numbers([name for name, dtype in types if not is_number(dtype) or dtype.kind == "c"])
        wide = np.float64 if any(_is_wide(dtype) for _, dtype in types) else np.float32
        return _checked(table, lambda which: table.iloc[which].to_numpy(dtype=wide, na_value=np.nan))
    if home == "polars" and len(table.shape) == 2:
        _only_numbers([n for n, dtype in table.schema.items() if not (dtype.is_numeric() or str(dtype) == "Boolean")])
        return _checked(table, lambda which: table[which].to_numpy())
    array = _as_array(table)
    return _checked(array, lambda which: array[which])


def _checked(table: Any, read: Callable[[Which], Any]) -> ArrayRows:
    shape = tuple(table.shape)
    if len(shape) != 2:
        raise UserError(
            f"Expected 2D array, got {len(shape)}D array instead, of shape {shape}. Reshape your data: "
            "X.reshape(1, -1) is a single vector, X.reshape(-1, 1) many of one number each"
        )
    if 0 in shape:
        found, remedy = ("sample(s)", "rows") if shape[0] == 0 else ("feature(s)", "columns of numbers")
        raise UserError(
            f"Found array with 0 {found} (shape={shape}) while a minimum of 1 is required. Pass some {remedy}"
        )
    return ArrayRows(*shape, read)


def _only_numbers(others: list[Any]) -> None:
    if others:
        raise UserError(f"column {others[0]!r} of X does not hold numbers: choose the columns of the vectors")


def _as_array(table: Any) -> npt.NDArray[Any]:
    """Convert anything else to a numpy array; rows of unequal lengths are an error."""
    if hasattr(table, "to_numpy") and not isinstance(table, np.ndarray):
        table = table.to_numpy()  # a column of lists
    nested = isinstance(table, list | tuple) or (
        isinstance(table, np.ndarray) and table.dtype == object and table.ndim == 1
    )
    if nested and len(table) and hasattr(table[0], "__len__") and not isinstance(table[0], str):
        lengths = np.array([len(row) if hasattr(row, "__len__") else -1 for row in table])
        odd = np.flatnonzero(lengths != lengths[0])
        if len(odd):
            raise UserError(
                f"row {odd[0]} of X has {lengths[odd[0]]} numbers, row 0 has {lengths[0]}; expected rows of "
                "one length: leave such rows out"
            )
        table = list(table)
    array = np.asarray(table)
    if array.dtype.kind == "c":
        raise UserError("Complex data not supported: expected real numbers, pass X.real and X.imag side by side")
    if array.dtype.kind not in "fiubO":
        raise UserError(f"X holds {array.dtype}, expected numbers: choose the columns of the vectors")
    return array


def _is_wide(dtype: Any) -> bool:
    """Whether float32 may round numbers of this type."""
    return not (dtype.kind == "f" and dtype.itemsize <= 4)


def _floats(part: Any) -> Tensor:
    if isinstance(part, Tensor):
        if part.is_complex():
            raise UserError("Complex data not supported: expected real numbers, pass torch.view_as_real(X)")
        wide = part.dtype == torch.float64 or not part.is_floating_point()
        return part.to(torch.float64 if wide else torch.float32)
    array = np.ascontiguousarray(part, dtype=np.float64 if _is_wide(part.dtype) else np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
