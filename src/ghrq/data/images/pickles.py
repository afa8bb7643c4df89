"""Pickles of old data sets, without what makes pickles dangerous: they can build arrays of numbers and nothing else.

A pickle names functions and calls them. Here a name either stands for one of the small classes below or is refused,
so nothing outside of this module runs, not even of NumPy.
"""

import gzip
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ghrq.system.errors import UserError

# Names of NumPy's types of numbers in pickles: one letter and the bytes.
_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8"}


def read(file: IO[bytes] | gzip.GzipFile, path: Path) -> Any:
    """The content of an open pickle: dicts, lists, tuples, str, bytes, numbers, arrays; ``path`` is for the errors.

    Text of Python 2 comes as bytes, but str where it is the key of a dict.
    """
    try:
        return _plain(_Unpickler(file, encoding="bytes").load())
    except UserError:
        raise
    except Exception as error:  # a damaged pickle fails in any way there is
        reason = str(error) or type(error).__name__
        raise UserError(f"{path} cannot be read as a pickle of arrays ({reason}): get it again") from error


class _Dtype:
    """Stands for ``numpy.dtype``, of numbers only."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _NUMBERS:
            raise pickle.UnpicklingError(f"it has an array of type {self.name!r}")
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        self.order = {"<": "<", ">": ">"}.get(order, "=")


class _Array:
    """Stands for an array: empty at first, as pickles make them, then filled."""

    values: npt.NDArray[Any]

    def __init__(self, *_: object) -> None:
        self.values = np.zeros(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it has an array of something else than numbers")
        flat = np.frombuffer(content, dtype=np.dtype(kind.order + kind.name))
        self.values = flat.reshape(shape, order="F" if fortran else "C")


def _as_bytes(text: str, encoding: str | bytes) -> bytes:
    """Stands for ``_codecs.encode``: bytes as Python 3 puts them into pickles for Python 2."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it has text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _as_bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not an array")
        return _ALLOWED[module, name]


def _plain(value: Any) -> Any:
    """``value`` with arrays in place of what stands for them. Lists are left: data sets keep labels in them."""
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, dict):
        return {key.decode() if isinstance(key, bytes) else key: _plain(part) for key, part in value.items()}
    return value
