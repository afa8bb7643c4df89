"""Balanced assignment: points to codes at the least total squared distance, equally many to each code.

That is optimal transport from n points to K codes of capacity n/K. Its dual is one price a code: a point chooses the
code of the least squared distance plus price, and the prices are right when all codes are chosen equally often.
Sinkhorn's iteration finds them: choices are softened by a temperature, and a price rises by the logarithm of how much
too often its code is chosen.
"""

import torch
from torch import Tensor

from ghrq.geometry import numerics
from ghrq.geometry.nearest import CHUNK_BYTES, CodeTable, ratios

# Sinkhorn's temperatures, from the first iteration to the last, as shares of how much nearer the nearest code of a
# point is than an average one: a high one finds rough prices fast, a low one right prices.
_HOT, _COLD = 0.1, 0.002

# Prices are found by this many points for each code, or fewer if that is more distances of points to codes than
# _MOST_DISTANCES, but not by fewer than _LEAST_POINTS.
_POINTS, _MOST_DISTANCES, _LEAST_POINTS = 64, 2**25, 4


@torch.no_grad()
def squared_distances(x: Tensor, square: Tensor, gap: Tensor, table: CodeTable, c: float) -> Tensor:
    """``d²`` of every row of ``x (n, d)`` and code: ``(n, K)``. Arguments as for :func:`ghrq.geometry.nearest.search`.

    By one product, so small values are not exact.
    """
    ratio = ratios(x, square, gap, table).clamp_(min=0.0)
    return numerics.asinh((c * ratio).sqrt_()).square_() * (4.0 / c) if c > 0.0 else ratio


@torch.no_grad()
def find_prices(cost: Tensor, prices: Tensor, iterations: int) -> Tensor:
    """Prices ``(K,)`` under which all codes are chosen about equally often, by ``cost (n, K)`` and first ``prices``."""
    count, codes = cost.shape
    gain = (cost.mean() - cost.amin(1).mean()).clamp(min=torch.finfo(cost.dtype).tiny)
    parts = cost.split(max(1, CHUNK_BYTES // (codes * cost.element_size())))
    for step in range(iterations):
        temperature = _HOT * (_COLD / _HOT) ** (step / max(1, iterations - 1)) * gain
        chosen = torch.stack([((prices + part) / -temperature).softmax(1).sum(0) for part in parts]).sum(0)
        prices = prices + temperature * (chosen * (codes / count)).clamp(min=torch.finfo(cost.dtype).tiny).log()
        prices = prices - prices.mean()
    return prices


@torch.no_grad()
def balanced_search(
    x: Tensor, square: Tensor, gap: Tensor, table: CodeTable, c: float, prices: Tensor, iterations: int = 10
) -> tuple[Tensor, Tensor]:
    """Assign the rows of ``x (n, d)`` to codes, nearly equally many to each: ``(n,)`` int64, and the prices ``(K,)``.

    ``prices (K,)`` are those to start from. A random order of the rows is expected: of many, the first find the prices.
    Memory is at most that of ``2^25`` distances, or of those of 4 rows for each code if that is more.
    """
    codes = table.codes.shape[0]
    few = slice(0, min(_POINTS * codes, max(_LEAST_POINTS * codes, _MOST_DISTANCES // codes)))
    cost = squared_distances(x[few], square[few], gap[few], table, c)
    prices = find_prices(cost, prices, iterations)
    chunk = max(1, CHUNK_BYTES // (codes * x.element_size()))
    chosen = [(part + prices).argmin(1) for part in cost.split(chunk)]
    for start in range(len(cost), len(x), chunk):
        part = slice(start, start + chunk)
        chosen.append((squared_distances(x[part], square[part], gap[part], table, c) + prices).argmin(1))
    return torch.cat(chosen), prices
