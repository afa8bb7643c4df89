"""Read pickles of arrays without running code: CIFAR-100's python version and MNIST's wheel are pickles.

A pickle names functions and calls them. Only the names below are allowed, and each gets our own replacement: even
``numpy.dtype``, because pickled flags of a type can make NumPy take bytes for pointers.
"""

import gzip
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np

from ghrq.system.errors import UserError

# NumPy's names of the number types in pickles: a letter and the bytes.
_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8"}


def read(file: IO[bytes] | gzip.GzipFile, path: Path) -> Any:
    """The content of an open pickle: dicts, lists, tuples, str, bytes, numbers, arrays; ``path`` is for the errors."""
    try:
        return _Unpickler(file, encoding="latin1").load()  # strings of Python 2 become str
    except Exception as error:  # a damaged pickle raises exceptions of any kind
        reason = str(error) or type(error).__name__
        raise UserError(f"{path} cannot be read as a pickle of arrays ({reason}): get it again") from error


class _Dtype:
    """Replaces ``numpy.dtype``: numbers only."""

    def __init__(self, name: str, *_: object) -> None:
        if name not in _NUMBERS:
            raise pickle.UnpicklingError(f"it has an array of type {name!r}")
        self.name, self.order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1] if state[1] in ("<", ">") else "="


class _Array(np.ndarray[Any, Any]):
    """Replaces ``numpy.ndarray``: created empty, then filled from bytes."""

    def __new__(cls, *_: object) -> "_Array":
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content  # of Python 2
        if not isinstance(kind, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it has an array of something else than numbers")
        super().__setstate__((1, shape, np.dtype(kind.order + kind.name), fortran, content))


def _encode(text: str, encoding: str) -> bytes:
    """Replaces ``_codecs.encode``: bytes as Python 3 writes them into pickles for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it has text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not an array")
        return _ALLOWED[module, name]
