"""Read pickles of arrays without running code: CIFAR-100's python version and MNIST's wheel are pickles.

A pickle names functions and calls them. Only the names below are allowed, and each gets our own replacement: even
``numpy.dtype``, because pickled flags of a type can make NumPy take bytes for pointers.

A pickle of few bytes can take gigabytes. So Python's own unpickler is used, which keeps objects in a dict and not in an
array as long as the largest number that the pickle names; and steps and bytes are counted.
"""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from ghrq.system.errors import UserError
from ghrq.system.unpacking import LimitedReader

# The pickle of CIFAR-100 has 200,000 steps. One makes a number, a string or an empty list, of some 100 bytes.
_STEPS = 2**21

# NumPy's names of the number types in pickles: a letter and the bytes.
_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"f2", "f4", "f8"}


def read(file: IO[bytes] | gzip.GzipFile, path: Path, packed: int) -> Any:
    """The content of an open pickle: dicts, lists, tuples, str, bytes, numbers, arrays.

    ``path`` is for the errors, ``packed`` its size on the disk.
    """
    try:
        return _Unpickler(LimitedReader(file, path, packed), encoding="latin1").load()  # Python 2's strings become str
    except UserError:
        raise
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


def _counted(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """A step of the unpickler that is counted."""

    def step(unpickler: "_Unpickler") -> None:
        unpickler.steps += 1
        if unpickler.steps > _STEPS:
            raise pickle.UnpicklingError(f"it has more than {_STEPS:,} steps")
        load(unpickler)

    return step


_SETS = (pickle.EMPTY_SET, pickle.FROZENSET, pickle.BYTEARRAY8)  # large for the byte that each takes


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[Any] = {
        code: _counted(load)
        for code, load in pickle._Unpickler.dispatch.items()
        if code not in {each[0] for each in _SETS} | {pickle.STOP[0]}
    } | {pickle.STOP[0]: pickle._Unpickler.dispatch[pickle.STOP[0]]}
    steps = 0

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not an array")
        return _ALLOWED[module, name]
