"""Work on many rows in pieces, at constant extra memory."""

from collections.abc import Callable

import torch
from torch import Tensor

# Rows that encode and decode work on at a time: enough to keep the processor busy, few enough to stay in its cache.
CHUNK_ROWS = 4096


def by_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, share: int = 1) -> Tensor:
    """``function`` of ``rows (n, ...)``, piece by piece, into one result; a graph to export has no pieces.

    ``share``: how many times the usual memory a row takes.
    """
    size = max(1, CHUNK_ROWS // share)
    if torch.compiler.is_exporting() or rows.shape[0] <= size:
        return function(rows)
    first = function(rows[:size])
    result = first.new_empty(rows.shape[0], *first.shape[1:])
    result[:size] = first
    for start in range(size, rows.shape[0], size):
        result[start : start + size] = function(rows[start : start + size])
    return result
