"""Search for the nearest code: one matrix product, in chunks that stay in the cache.

asinh is monotone and the gap of x is the same for all codes, so with ``w_j = 1/(1 - c‖y_j‖²)``

    argmin_j d(x, y_j)  =  argmin_j w_j‖x - y_j‖²  =  argmin_j  (1 + c‖x‖²)/2 · w_j‖y_j‖² - ⟨x, w_j y_j⟩

(the last step uses ``w_j = 1 + c w_j‖y_j‖²`` and drops what is constant along j). That is one product of matrices
``(N, d+1)`` and ``(d+1, K)``, the same as in flat space: no transcendental function, no ``(N, K, d)`` tensor.

In float32 the product cannot tell codes apart that are much nearer to x than x is to the origin. Of the rows where the
best value is that small, those with a second value within the rounding error are searched again in float64, centred on
the codebook. Such rows are rare unless codes coincide.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.numerics import Curvature

# A chunk of the (N, K) matrix of values: a product and its minimum run several times faster inside the cache.
CHUNK_BYTES = 8 * 2**20

# Relative rounding error of a row's best value above which the row is searched again, in units of eps.
_DOUBT = 2.0**17

# Bound on the rounding error of a value of the product, in units of eps for each of its d+1 terms, with a factor 2.
_REACH = 8.0

# Candidates of the second search that are compared by their differences.
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

    def stages(self) -> "list[CodeTable]":
        """The tables of the stages of a stack."""
        return [CodeTable(*fields) for fields in zip(*(field.unbind() for field in self), strict=True)]


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
def code_table(codes: Tensor, c: Curvature) -> CodeTable:
    """Prepare codebooks ``(..., K, d)`` for :func:`search`."""
    codes = codes.detach()
    gaps = ball.gap(codes, c).to(codes.dtype)
    matrix = torch.cat((-codes, codes.square().sum(-1, keepdim=True)), dim=-1) / gaps
    return CodeTable(codes, gaps.squeeze(-1), gaps.amin(-2), matrix.mT)


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
        index = _search_op(x, square, gap, *table)
        return Nearest(index, table.gaps.index_select(0, index).unsqueeze(1))
    return _search(x, square, gap, table)


def _search(x: Tensor, square: Tensor, gap: Tensor, table: CodeTable) -> Nearest:
    rows, codes = x.shape[0], table.codes.shape[0]
    chunk = max(1, CHUNK_BYTES // (codes * x.element_size()))
    # The norms are one more column: addmm would first copy an added row to every row.
    left = torch.cat((x, torch.rsub(gap, 1.0, alpha=0.5)), dim=1)
    # One buffer for all products: allocating a new one takes longer than filling it.
    if rows <= chunk:
        values = left @ table.matrix
        best, index = _minimum(values)
    else:
        values = x.new_empty((chunk, codes))
        index = torch.empty(rows, dtype=torch.int64, device=x.device)
        best = torch.empty_like(gap)
        for start in range(0, rows, chunk):
            part = left[start : start + chunk]
            stop = start + len(part)
            best[start:stop], index[start:stop] = _minimum(torch.mm(part, table.matrix, out=values[: len(part)]))
    code_gap = table.gaps.index_select(0, index).unsqueeze(1)
    # Rows where rounding may have decided: w is at most 1/smallest, because a code that is much nearer to x than the
    # one found has about the gap of x.
    smallest = torch.minimum(code_gap, torch.maximum(gap, table.least))
    eps = torch.finfo(x.dtype).eps
    doubtful = torch.add(square, best, alpha=2.0).mul_(smallest) < _DOUBT * eps * square
    again = doubtful.squeeze(1).nonzero().squeeze(1)
    if again.shape[0]:
        reach = _REACH * left.shape[1] * eps * square / smallest
        for part in again.split(chunk):
            second = torch.mm(left.index_select(0, part), table.matrix, out=values[: len(part)])
            part = part[_rivalled(second, reach.index_select(0, part))]
            if part.shape[0]:
                index[part] = _exact_search(x[part], table.codes, table.gaps)
        code_gap = table.gaps.index_select(0, index).unsqueeze(1)
    return Nearest(index, code_gap)


def _minimum(values: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest value ``(rows, 1)`` and its place ``(rows,)``; ``values (rows, columns)`` may be overwritten."""
    rows, columns = values.shape
    if values.device.type != "cpu":
        best, place = values.min(dim=1, keepdim=True)
        return best, place.squeeze(1)
    size = _WIDE_BLOCK if columns >= _WIDE else _BLOCK
    if columns < _NARROW or columns % size:
        best = values.amin(dim=1, keepdim=True)
        return best, _place(values, best)
    blocks = values.view(rows, columns // size, size)
    best, block = blocks.amin(dim=2).min(dim=1, keepdim=True)
    block = block.squeeze(1)
    starts = torch.arange(0, rows * blocks.shape[1], blocks.shape[1], device=values.device)
    return best, block * size + _place(blocks.view(-1, size).index_select(0, block + starts), best)


def _place(values: Tensor, best: Tensor) -> Tensor:
    """The first index of ``best (rows, 1)`` in each row of ``values``, which is overwritten.

    ``index + _FAR · (value - best)`` is the index where the value is the best, and huge elsewhere; its minimum is fast.
    """
    place = torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    torch.add(place, values.sub_(best), alpha=_FAR, out=values)
    return values.amin(dim=1).long().clamp_(min=0)  # NaN has no index


def _rivalled(values: Tensor, reach: Tensor) -> Tensor:
    """Whether a row of ``values (rows, K)``, which is overwritten, has a second value within ``reach (rows, 1)`` / 2.

    Differences from the smallest are clipped at ``reach``. One is 0; a second small one lowers the sum of the others by
    half of ``reach``. Comparing and counting would take ten times longer.
    """
    torch.minimum(values.sub_(values.amin(1, keepdim=True)), reach, out=values)
    return values.sum(1) < (values.shape[1] - 1.5) * reach.squeeze(1)


def _exact_search(x: Tensor, codes: Tensor, gaps: Tensor) -> Tensor:
    """Search in float64 around the mean of the codes; the best few are compared by their differences from x.

    If x itself is float64, a product is not precise enough: all codes are compared by their differences.
    """
    wide = numerics.wide_dtype(x)
    if x.dtype == wide and not torch.compiler.is_exporting():
        length = torch.cdist(x, codes, compute_mode="donot_use_mm_for_euclid_dist")
        return (length.square_() / gaps).argmin(dim=1)
    x, codes, gaps = x.to(wide), codes.to(wide), gaps.to(wide)
    centre = codes.mean(0)
    x, codes = x - centre, codes - centre
    square = (x * x).sum(-1, keepdim=True)
    left = torch.cat((x, square, torch.ones_like(square)), dim=1)
    right = torch.cat((-2.0 * codes, torch.ones_like(codes[:, :1]), (codes * codes).sum(-1, keepdim=True)), dim=1)
    few = (left @ (right / gaps.unsqueeze(-1)).mT).topk(min(_FEW, codes.shape[0]), dim=1, largest=False).indices
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
