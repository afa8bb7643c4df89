"""What one training step frees is what the next one asks for: the process keeps it."""

import ctypes
import os
import sys

# From glibc's malloc.h: how much free memory stays with the process, and from which size on a block is none of it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# Blocks of the larger size are more than the manual allows, and than older versions take.
_KEPT, _BLOCKS = 2**30, (2**28, 2**25)


def keep_freed() -> bool:
    """Ask the C library to keep up to 1 GiB of freed memory; whether it does.

    Otherwise the activations of a step go back to the system and come again page by page, each cleared first: about a
    tenth of the training of an image tokenizer on two cores. Someone who sets ``MALLOC_…`` or ``GLIBC_TUNABLES`` has
    decided that already.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return any(mallopt(_MMAP_THRESHOLD, size) for size in _BLOCKS) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
