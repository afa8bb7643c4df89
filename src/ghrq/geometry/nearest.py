"""Search for the nearest code: one matrix product, in chunks that stay in the cache.

asinh is monotone and the gap of x is the same for all codes, so with ``w_j = 1/(1 - c‖y_j‖²)``

    argmin_j d(x, y_j)  =  argmin_j w_j‖x - y_j‖²  =  argmin_j  (1 + c‖x‖²)/2 · w_j‖y_j‖² - ⟨x, w_j y_j⟩

(the last step uses ``w_j = 1 + c w_j‖y_j‖²`` and drops what is constant along j). That is one product of matrices
``(N, d+1)`` and ``(d+1, K)``, the same as in flat space: no transcendental function, no ``(N, K, d)`` tensor.

The product is rounded, and not the same way in every batch: BLAS has other kernels for other shapes. So rows whose best
two values differ by no more than the rounding error are searched again, by differences in float64, which do not depend
on the batch; of codes at the same distance the first counts. Such rows are rare unless codes coincide.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.numerics import Curvature

# A chunk of the (N, K) matrix of values: a product and its minimum run several times faster inside the cache.
CHUNK_BYTES = 8 * 2**20

# Bound on the difference of two rounding errors of a product of d+1 terms, in units of eps·√(d+1).
_REACH = 4.0

# Candidates of the search in an exported graph that are compared by their differences.
_FEW = 4

# torch finds the minimum of a row about ten times faster than its argmin. So rows are cut into blocks of this many
# values (wide rows: of _WIDE_BLOCK): minimum of each block, index of the best block, index within it. Narrow rows
# are one block.
_BLOCK, _WIDE_BLOCK, _NARROW, _WIDE = 32, 64, 256, 512

# Larger than any index divided by any relevant difference of two values.
_FAR = 1e30


class CodeTable(NamedTuple):
    """Codebooks prepared for search; all leading dimensions ``...`` are those of the codebooks."""

    codes: Tensor
    """``(..., K, d)`` points of the ball."""
    gaps: Tensor
    """``(..., K)`` their gaps ``1 - c‖y‖²``."""
    least: Tensor
    """``(..., 1)`` the smallest of the gaps."""
    matrix: Tensor
    """``(..., d+1, K)`` minus the codes, and then their squared norms, all divided by the gaps."""
    sizes: tuple[int, ...] | None = None
    """Of a stack: how many first codes of each stage exist, if not all; the others are 0."""

    def stages(self) -> "list[CodeTable]":
        """The tables of the stages of a stack."""
        tensors = self.codes, self.gaps, self.least, self.matrix
        tables = [CodeTable(*fields) for fields in zip(*(field.unbind() for field in tensors), strict=True)]
        if self.sizes is None:
            return tables
        return [
            CodeTable(codes[:size], gaps[:size], least, matrix[:, :size])
            for (codes, gaps, least, matrix, _), size in zip(tables, self.sizes, strict=True)
        ]


class Nearest(NamedTuple):
    """The result of a search over ``N`` rows."""

    chosen: Tensor
    """``(N,)`` int64."""
    gap: Tensor
    """``(N, 1)`` the gap of the code found."""


def nearest(x: Tensor, codes: Tensor, c: Curvature = 1.0) -> Tensor:
    """The index of the code nearest to each row: ``x (N, d)``, ``codes (K, d)`` on the ball -> ``(N,)`` int64."""
    gap = ball.gap(x, c).to(x.dtype)
    square = x.square().sum(-1, keepdim=True)
    return search(x, square, gap, code_table(codes, c)).chosen


@torch.no_grad()
def code_table(codes: Tensor, c: Curvature, sizes: tuple[int, ...] | None = None) -> CodeTable:
    """Prepare codebooks ``(..., K, d)`` for :func:`search`; ``sizes`` as in :class:`CodeTable`."""
    codes = codes.detach()
    gaps = ball.gap(codes, c).to(codes.dtype)
    matrix = torch.cat((-codes, codes.square().sum(-1, keepdim=True)), dim=-1) / gaps
    return CodeTable(codes, gaps.squeeze(-1), gaps.amin(-2), matrix.mT, sizes)


@torch.no_grad()
def without_copies(table: CodeTable) -> CodeTable:
    """The table ``(N, K, ·)`` whose products are infinite for codes that equal an earlier one of their stage."""
    size, matrix = table.codes.shape[-2], table.matrix.clone()
    places = torch.arange(size, device=matrix.device)
    # Comparing all codes is slow; those that differ on one random line are different.
    chance = torch.Generator().manual_seed(0)
    line = torch.rand(table.codes.shape[-1], dtype=torch.float64, generator=chance).to(table.codes.device)
    for stage, codes in zip(matrix, table.codes, strict=True):
        if len((codes.double() @ line).unique()) == size:
            continue
        group = (codes + 0.0).unique(dim=0, return_inverse=True)[1]  # -0.0 equals 0.0
        first = torch.full_like(places, size).scatter_reduce_(0, group, places, "amin")
        stage[-1, first[group] < places] = torch.inf
    return table._replace(matrix=matrix)


@torch.no_grad()
def search(x: Tensor, square: Tensor, gap: Tensor, table: CodeTable) -> Nearest:
    """Find the nearest code of one table for each row of ``x (N, d)``, float32 or float64.

    ``square (N, 1)`` is ``‖x‖²`` and ``gap (N, 1)`` is ``1 - c‖x‖²``; a cascade has both already. Extra memory is a
    few numbers per row and one chunk.
    """
    if torch.compiler.is_exporting():
        index = _exact_search(x, table.codes, table.gaps)
        return Nearest(index, table.gaps[index].unsqueeze(1))
    if torch.compiler.is_compiling():
        index = _search_op(x, square, gap, table.codes, table.gaps, table.least, table.matrix)
        return Nearest(index, table.gaps.index_select(0, index).unsqueeze(1))
    return _search(x, square, gap, table)


@torch.no_grad()
def sample(
    x: Tensor,
    square: Tensor,
    gap: Tensor,
    table: CodeTable,
    c: float,
    temperature: float,
    generator: torch.Generator | None = None,
) -> Nearest:
    """Draw a code for each row, with probability proportional to ``exp(-d²/(τ m))``. Arguments as for :func:`search`.

    m is the mean of the smallest ``d²`` of the rows, so that the ``temperature`` τ does not depend on units: at 0.1
    nearly all rows get their nearest code, at 1 the choice is soft.
    """
    chunk = max(1, CHUNK_BYTES // (table.codes.shape[0] * x.element_size()))
    parts = []
    for rows in torch.arange(x.shape[0], device=x.device).split(chunk):
        ratio = ratios(x[rows], square[rows], gap[rows], table).clamp_(min=0.0)
        squared = numerics.asinh((c * ratio).sqrt_()).square_() * (4.0 / c) if c > 0.0 else ratio
        unit = squared.amin(1).mean().clamp(min=torch.finfo(x.dtype).tiny)
        noise = torch.empty_like(squared).exponential_(generator=generator).log_()
        parts.append((squared / -(temperature * unit) - noise).argmax(1))
    index = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64, device=x.device)
    return Nearest(index, table.gaps.index_select(0, index).unsqueeze(1))


def ratios(x: Tensor, square: Tensor, gap: Tensor, table: CodeTable) -> Tensor:
    """``‖x - y‖²/(αβ)`` of every row of ``x (..., n, d)`` and code y: ``(..., n, K)``, in the order of the distances.

    By one product, so small values are not exact.
    """
    values = torch.cat((x, 1.0 - 0.5 * gap), dim=-1) @ table.matrix
    return (2.0 * values + square) / gap


def smallest_ratios(
    x: Tensor, square: Tensor, gap: Tensor, handicap: Tensor, table: CodeTable, count: int
) -> tuple[Tensor, Tensor]:
    """The ``count`` smallest :func:`ratios` over all rows of ``x (N, n, d)`` and codes, in order: values and places.

    Both are ``(N, count)``; a place is ``row · K + code``. ``handicap (N, n, 1)`` is added to the ratios of a row.
    """
    # One product gives all of them: scaled by 2 / gap, with the rest as one more column.
    left = torch.cat((x, 1.0 - 0.5 * gap), dim=-1) * (2.0 / gap)
    left = torch.cat((left, square / gap + handicap), dim=-1)
    matrix = torch.cat((table.matrix, torch.ones_like(table.matrix[:1])))
    return smallest(left @ matrix, count)


def smallest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` smallest of each ``values (N, n, K)``, in order, and their places ``row · K + code``."""
    codes, values = values.shape[-1], values.flatten(1)
    if codes % _BLOCK or values.shape[1] <= count * _BLOCK:
        return values.topk(count, dim=1, largest=False)
    # They are in the blocks that have the smallest minima.
    blocks = values.unflatten(1, (-1, _BLOCK))
    chosen = blocks.amin(2).topk(count, dim=1, largest=False).indices
    few = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, _BLOCK)).flatten(1)
    best, place = few.topk(count, dim=1, largest=False)
    return best, chosen.gather(1, place // _BLOCK) * _BLOCK + place % _BLOCK


def _search(x: Tensor, square: Tensor, gap: Tensor, table: CodeTable) -> Nearest:
    rows, codes = x.shape[0], table.codes.shape[0]
    chunk = max(1, CHUNK_BYTES // (codes * x.element_size()))
    # The norms are one more column: addmm would first copy an added row to every row.
    left = torch.cat((x, torch.rsub(gap, 1.0, alpha=0.5)), dim=1)
    # One buffer for all products: allocating a new one takes longer than filling it.
    if rows <= chunk:
        best, index, margin = _minimum(left @ table.matrix)
    else:
        values = x.new_empty((chunk, codes))
        index = torch.empty(rows, dtype=torch.int64, device=x.device)
        best, margin = torch.empty_like(gap), torch.empty_like(gap)
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            product = torch.mm(left[part], table.matrix, out=values[: len(left[part])])
            best[part], index[part], margin[part] = _minimum(product)
    code_gap = table.gaps.index_select(0, index).unsqueeze(1)
    # The terms of a product are at most (‖x‖² + w‖x - y‖²) / smallest: a code that is much nearer to x than the one
    # found has about the gap of x.
    smallest = torch.minimum(code_gap, torch.maximum(gap, table.least))
    size = torch.add(square, best).mul_(2.0).div_(smallest)
    reach = _REACH * left.shape[1] ** 0.5 * torch.finfo(x.dtype).eps
    again = (margin <= reach * size).squeeze(1).nonzero().squeeze(1)
    if again.shape[0]:
        for part in again.split(chunk):
            index[part] = _exact_search(x[part], table.codes, table.gaps)
        code_gap = table.gaps.index_select(0, index).unsqueeze(1)
    return Nearest(index, code_gap)


def _minimum(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The smallest value ``(rows, 1)``, its place ``(rows,)``, and how much larger the next one is ``(rows, 1)``.

    ``values (rows, columns)`` may be overwritten.
    """
    rows, columns = values.shape
    size = _WIDE_BLOCK if columns >= _WIDE else _BLOCK
    if values.device.type != "cpu":
        best, place = values.min(dim=1, keepdim=True)
        return best, place.squeeze(1), values.scatter_(1, place, torch.inf).amin(1, keepdim=True) - best
    if columns < _NARROW or columns % size:
        best = values.amin(dim=1, keepdim=True)
        return best, *_place(values, best)
    blocks = values.view(rows, columns // size, size)
    minima = blocks.amin(dim=2)
    best, block = minima.min(dim=1, keepdim=True)
    other = minima.scatter_(1, block, torch.inf).amin(dim=1, keepdim=True) - best
    block = block.squeeze(1)
    starts = torch.arange(0, rows * blocks.shape[1], blocks.shape[1], device=values.device)
    place, margin = _place(blocks.view(-1, size).index_select(0, block + starts), best)
    return best, block * size + place, torch.minimum(margin, other)


def _place(values: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """The first index ``(rows,)`` of ``best (rows, 1)`` in each row, and how much larger the next value is.

    ``values`` is overwritten:
    ``index + _FAR · (value - best)`` is the index where the value is the best, and huge elsewhere; its minimum is fast.
    """
    place = torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    torch.add(place, values.sub_(best), alpha=_FAR, out=values)
    first = values.amin(dim=1, keepdim=True).long().clamp_(min=0)  # NaN has no index
    second = values.scatter_(1, first, torch.inf).amin(dim=1, keepdim=True)
    return first.squeeze(1), second / _FAR


def _exact_search(x: Tensor, codes: Tensor, gaps: Tensor) -> Tensor:
    """Compare all codes by their differences from x, in float64; the first of equals is chosen.

    An exported graph has no such operator: there a product finds the best few, around the mean of the codes.
    """
    wide = numerics.wide_dtype(x)
    x, codes, gaps = x.to(wide), codes.to(wide), gaps.to(wide)
    if not torch.compiler.is_exporting():
        length = torch.cdist(x, codes, compute_mode="donot_use_mm_for_euclid_dist")
        return (length.square_() / gaps).argmin(dim=1)
    centre = codes.mean(0)
    x, codes = x - centre, codes - centre
    square = (x * x).sum(-1, keepdim=True)
    left = torch.cat((x, square, torch.ones_like(square)), dim=1)
    right = torch.cat((-2.0 * codes, torch.ones_like(codes[:, :1]), (codes * codes).sum(-1, keepdim=True)), dim=1)
    few = (
        (left @ (right / gaps.unsqueeze(-1)).mT)
        .topk(min(_FEW, codes.shape[0]), dim=1, largest=False)
        .indices.sort(dim=1)
        .values
    )
    delta = codes[few] - x.unsqueeze(1)
    best = ((delta * delta).sum(-1) / gaps[few]).argmin(dim=1, keepdim=True)
    return few.gather(1, best).squeeze(1)


@torch.library.custom_op("ghrq::search", mutates_args=())
def _search_op(
    x: Tensor, square: Tensor, gap: Tensor, codes: Tensor, gaps: Tensor, least: Tensor, matrix: Tensor
) -> Tensor:
    """The search as one operator, so that a compiled graph keeps the chunks and the second search."""
    return _search(x, square, gap, CodeTable(codes, gaps, least, matrix)).chosen


@_search_op.register_fake
def _(x: Tensor, square: Tensor, gap: Tensor, codes: Tensor, gaps: Tensor, least: Tensor, matrix: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.int64)
