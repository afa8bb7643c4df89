"""Memory: keep what was freed for the next training step, and refuse what does not fit."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

from ghrq.system.errors import UserError

# From glibc's malloc.h: how much free memory the process keeps, and the size from which blocks are not part of it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# The larger threshold is above the documented limit, which older versions enforce.
_KEPT, _BLOCKS = 2**30, (2**28, 2**25)


# What errors say if there is not enough memory: those of allocators, and of C++.
_EXHAUSTED = ("allocate", "out of memory", "bad_alloc")


def keep_freed() -> bool:
    """Ask the C library to keep up to 1 GiB of freed memory; returns whether it does.

    Otherwise the activations of each step are returned to the system, and new pages are cleared for the next: about a
    tenth of the training time of an image tokenizer on two cores. The user's ``MALLOC_…`` or ``GLIBC_TUNABLES`` win.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return any(mallopt(_MMAP_THRESHOLD, size) for size in _BLOCKS) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))


def available() -> int | None:
    """The bytes that the process can still get, at most; ``None`` if the system does not tell."""
    found = []
    with suppress(OSError, ValueError, KeyError):
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(sum(1024 * int(fields[name].split()[0]) for name in ("MemAvailable", "SwapFree")))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):  # of a container
        with suppress(OSError, ValueError):  # none, or "max"
            found.append(int(Path(limit).read_text()))
    if not found:
        with suppress(AttributeError, OSError, ValueError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def check_room(needed: int, what: str, remedy: str) -> None:
    """Raise an error if ``what`` needs more bytes than there are."""
    there = available()
    if there is not None and needed > there:
        raise UserError(f"{what} would take {_size(needed)} of memory, {_size(there)} are free: {remedy}")


def is_exhausted(error: BaseException) -> bool:
    """Whether ``error`` says that there is not enough memory; torch raises a ``RuntimeError`` for it."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _EXHAUSTED)


def _size(count: int) -> str:
    """``12.3 GB``"""
    return f"{count / 1e9:.1f} GB" if count < 1e12 else f"{count / 1e12:,.0f} TB"
