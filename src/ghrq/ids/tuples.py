"""Code tuples as single integers, to sort, group and count them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Codes = Tensor | npt.NDArray[np.integer]
"""Codes as a quantizer or a tokenizer returns them."""


def tuple_keys(codes: Codes, size: int | Sequence[int]) -> Tensor:
    """One int64 for each row of ``codes (n, m)``, from 0 to below ``size``: equal for equal tuples, in their order.

    ``size`` is one for all columns, or one for each.
    """
    columns = codes.unbind(1) if isinstance(codes, Tensor) else codes.T
    device = codes.device if isinstance(codes, Tensor) else None
    key, bound = torch.zeros(len(codes), dtype=torch.int64, device=device), 1
    sizes = size if isinstance(size, Sequence) else (size,) * len(columns)
    for column, width in zip(columns, sizes, strict=True):
        if bound * width >= 2**63:  # would overflow: renumber the keys that occur
            names, key = torch.unique(key, return_inverse=True)
            bound = len(names)
        # One column at a time, in place: of 100 million rows each copy takes 800 MB.
        key.mul_(width).add_(column.long() if isinstance(column, Tensor) else torch.from_numpy(column.astype(np.int64)))
        bound *= width
    return key


def tuple_ids(codes: Codes) -> npt.NDArray[np.int64]:
    """``codes (n, m)`` -> ``(n,)``: the number of each row's tuple, from 0, in the order of the tuples."""
    size = int(codes.max()) + 1 if len(codes) else 1
    return torch.unique(tuple_keys(codes, size), return_inverse=True)[1].cpu().numpy()


def count_distinct(codes: Codes) -> int:
    """Number of distinct tuples among ``codes (n, m)``."""
    if not len(codes):
        return 0
    keys = tuple_keys(codes, int(codes.max()) + 1).cpu().numpy()
    keys.sort()  # in place
    return 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))
