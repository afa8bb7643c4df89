"""k-means on the ball: hyperbolic distance to assign, gyromidpoint to update.

The initial centres decide the quality of the result, more so in high dimensions, where nearly all points are about as
far from each other and centres hardly move. So k-means first runs on few points in few dimensions, where a round is
cheap, to find the initial centres.
"""

import torch
from torch import Tensor

from ghrq.geometry import ball, midpoints, numerics
from ghrq.geometry.balance import balanced_search
from ghrq.geometry.nearest import code_table, search

# More points per code than this do not change the centres noticeably.
POINTS_PER_CODE = 256

# Initial centres: points per code to draw from, points per code of the first rounds, and their principal directions.
_DRAWN_FROM, _MOVED_ON, _DIRECTIONS = 32, 64, 128

# A progressive start runs so many rounds on the first 2, 4, 8 … of the principal directions.
_STEP_ROUNDS = 5

# How far a centre without points moves from the centre of another group towards one of its points.
_SPLIT = 0.1

# If the perplexity of the groups is below _UNEVEN of their number, groups of up to _TINY points start anew, unless that
# is more than _SMALL of an equal share.
_UNEVEN, _TINY, _SMALL = 0.5, 2.0, 0.2

# Initial centres are drawn in this many rounds, by the distances to the centres of all earlier rounds.
_ROUNDS = 32


@torch.no_grad()
def kmeans(
    x: Tensor, count: int, c: float, iterations: int = 10, balance: bool = False, progressive: bool = False
) -> Tensor:
    """``count`` centres of the points ``x (n, d)``: ``(count, d)``. Needs at least ``count`` points.

    Starts from distinct random points that lie apart from each other (the global random generator decides) and stops
    when no point changes its centre any more, or after ``iterations``. A centre that loses all its points splits
    another group, a large one most likely. ``balance`` assigns nearly equally many points to each centre instead of
    each point to the nearest one, see :mod:`ghrq.geometry.balance`. ``progressive`` finds the initial centres in 2
    principal directions, then in 4 and so on: large directions first, so fewer centres end up with one point each.
    """
    if x.shape[0] < count:
        raise ValueError(
            f"k-means for {count} codes needs at least as many vectors, got {x.shape[0]}: pass more of them"
        )
    if not bool(x.square().sum(-1).isfinite().all()):  # on the ball there are no such points
        raise ValueError(
            f"these vectors are too long for {x.dtype}: their squares overflow; scale them down, or use float64"
        )
    order = torch.randperm(x.shape[0], device=x.device)
    x = x[order[: POINTS_PER_CODE * count]]
    few = low = x[: _MOVED_ON * count]
    if progressive or min(few.shape) > _DIRECTIONS:
        # Orthogonal directions, so points stay in the ball.
        low = few @ torch.pca_lowrank(few, q=min(_DIRECTIONS, *few.shape))[2]
    centres, index = _rounds(*_first(low, count, c, balance, progressive), c, iterations, balance)
    if low is not few:
        centres = _midpoints(few, 2.0 / ball.gap(few, c), index, few[:count], c)
    return _rounds(x, centres, c, iterations, balance)[0]


def _first(x: Tensor, count: int, c: float, balance: bool, progressive: bool) -> tuple[Tensor, Tensor]:
    """The points ``x (n, d)``, whose first columns vary most, and the first ``count`` centres of them."""
    drawn, width = _DRAWN_FROM * count, 2
    if not progressive or width >= x.shape[1]:
        return x, _draw(x[:drawn], count, c)
    part = x[:, :width].contiguous()
    centres = _draw(part[:drawn], count, c)
    while True:
        _, index = _rounds(part, centres, c, _STEP_ROUNDS, balance)
        width = min(2 * width, x.shape[1])
        part = x[:, :width].contiguous()
        centres = _midpoints(part, 2.0 / ball.gap(part, c), index, part[:count], c)
        if width == x.shape[1]:
            return part, centres


def _draw(x: Tensor, count: int, c: float) -> Tensor:
    """``count`` of the points ``x (n, d)``: the farther from those drawn before, the greater a point's chance."""
    gap, square = ball.gap(x, c).to(x.dtype), x.square().sum(-1, keepdim=True)
    rows = torch.randint(x.shape[0], (1,), device=x.device)
    nearest = torch.full_like(gap, torch.inf)
    new = rows
    while rows.shape[0] < count:
        chord = (square + square[new].mT - 2.0 * x @ x[new].mT).clamp(min=0.0) / (gap * gap[new].mT)
        nearest = torch.minimum(nearest, chord.amin(1, keepdim=True))
        # Proportional to d²: asinh²(√(c‖y - x‖²/(αβ))) is c/4 times the square of ball.distance.
        chance = (numerics.asinh((c * nearest).sqrt()).square() if c > 0.0 else nearest).squeeze(1)
        # If all points coincide, all distances are 0: then all have the same small probability.
        chance = chance / chance.max().clamp(min=torch.finfo(chance.dtype).tiny) + 1e-9
        new = torch.multinomial(chance, min(max(1, count // _ROUNDS), count - rows.shape[0]))
        rows = torch.cat((rows, new))
    return x[rows]


def _rounds(x: Tensor, centres: Tensor, c: float, iterations: int, balance: bool) -> tuple[Tensor, Tensor]:
    """Assign and move, from ``centres (count, d)`` on: the new centres, and the last assignment ``(n,)``."""
    gap, square = ball.gap(x, c), x.square().sum(-1, keepdim=True)
    factor, narrow = 2.0 / gap, gap.to(x.dtype)
    index, prices = square.new_empty(0, dtype=torch.int64), x.new_zeros(centres.shape[0])
    for _ in range(iterations):
        before, table = index, code_table(centres, c)
        if balance:
            index, prices = balanced_search(x, square, narrow, table, c, prices)
        else:
            index = search(x, square, narrow, table).chosen
        if torch.equal(before, index):
            break
        moved = _midpoints(x, factor, index, centres, c)
        counts = index.bincount(minlength=centres.shape[0])
        empty = counts <= _least_count(counts)
        if empty.any():
            # Beside the centre of a random point, towards it: large groups are split. A centre put onto a far point
            # would keep that point only.
            rows = torch.randint(x.shape[0], (int(empty.sum()),), device=x.device)
            moved[empty] = moved[index[rows]].lerp(x[rows], _SPLIT)
        centres = moved
    return centres, index


def _least_count(counts: Tensor) -> float:
    """The size up to which a group counts as empty: 0, unless most points are in few of the groups.

    In high dimensions a large group has its centre near the origin, which is the nearest one for nearly all points; the
    other centres keep one point each.
    """
    few = float(perplexity(counts / counts.sum())) < _UNEVEN * len(counts)
    return min(_TINY, _SMALL * float(counts.sum()) / len(counts)) if few else 0.0


def perplexity(shares: Tensor) -> Tensor:
    """``exp`` of the entropy of ``shares (..., K)``: ``(...)``."""
    return (-torch.special.xlogy(shares, shares).sum(-1)).exp()


def _midpoints(x: Tensor, factor: Tensor, index: Tensor, centres: Tensor, c: float) -> Tensor:
    """The midpoint of each group of points ``x (n, d)``; a group without points keeps its old centre.

    ``factor (n, 1)`` are the conformal factors, ``index (n,)`` the groups.
    """
    s, t = midpoints.sums_sorted(x, factor, index, centres.shape[0])
    moved = ball.project(midpoints.from_sums(s, t, c).to(x.dtype), c)
    return torch.where(t == 0.0, centres, moved)
