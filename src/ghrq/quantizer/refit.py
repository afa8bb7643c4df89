"""Codebooks fitted together: every code moves to where it serves the whole tuples that it is part of.

Residual k-means fits each stage to what the stages before it leave over, and never looks back. Here, with the tuples of
all points fixed, each stage in turn is fitted to the points and all other stages. What a code q of stage i should be
for one point z is solved by undoing what is around it. Under the nested rule, with ``t = q_{i+1} ⊕ (… ⊕ q_N)``,

    z = q_1 ⊕ (… q_{i-1} ⊕ (q ⊕ t))   has the solution   q = r_{i-1} ⊞ (-t),   r_{i-1} = (-q_{i-1}) ⊕ (… (-q_1) ⊕ z)

(left cancellation, then right cancellation); the chained rule has its mirror image. The code becomes the midpoint of
the solutions of all its points. In flat space that is the mean of ``z - Σ_{j≠i} q_j``, which minimises the error
exactly: block coordinate descent on the least-squares problem of all codebooks, without its matrix. On the ball the
distance from a code to a solution is not exactly that from ẑ to z, so a round counts only if the error falls.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.geometry import ball, midpoints, numerics
from ghrq.geometry.kmeans import POINTS_PER_CODE, kmeans, perplexity
from ghrq.geometry.manifold import coadd
from ghrq.geometry.nearest import code_table
from ghrq.quantizer.beam import beam_tables, ranked_candidates
from ghrq.quantizer.cascade import Aggregation, aggregate, residual
from ghrq.quantizer.codebook import uneven
from ghrq.quantizer.start import Start

# Candidates of the search for the tuples of the points.
BEAM = 5

# Points for each code that the rounds can use. K-means needs fewer, but tuples are many: with as few as it has, new
# points of GloVe have 2 % more error.
POINTS_FOR_ROUNDS = 2 * POINTS_PER_CODE

# Rows computed at a time.
_ROWS = 4096

# Candidates whose squared distance is up to so many times that of the best one count for the next stage.
_NEAR = 1.3

# The old place of a code counts as much as so many points: codes without points stay.
_INERTIA = 1.0


@torch.no_grad()
def refined_codebooks(
    points: Tensor,
    gaps: Tensor,
    sizes: Sequence[int],
    c: float,
    aggregation: Aggregation,
    iterations: int,
    rounds: int,
    each_step: Callable[[], object] | None = None,
) -> Start:
    """Codebooks of ``sizes`` for ``points (n, d)`` with gaps ``(n, 1)``: k-means with a beam, then ``rounds``.

    K-means of a stage is on what is left of some points (all, if they are at most 256 a code) after each of the
    candidates of a beam search, not only the best: so that the stage serves the search, which may turn to any of them.
    A round finds the tuples of all points by a beam search, and moves all codes. The error is the mean squared distance
    of the points from their tuples; the codebooks of the lowest one are returned. Rounds end early where it does not
    fall.
    """
    step = each_step or (lambda: None)
    few, few_gaps = points, gaps
    if len(points) > (most := POINTS_PER_CODE * max(sizes)):
        drawn = torch.randperm(len(points))[:most].to(points.device)
        few, few_gaps = points[drawn], gaps[drawn]
    books = [kmeans(few, sizes[0], c, iterations, progressive=True)]
    for i, size in enumerate(sizes[1:], start=1):
        step()
        left = _residuals(few, few_gaps, _stack(books), sizes[:i], c, aggregation, POINTS_PER_CODE * size)
        books.append(kmeans(left, size, c, iterations, progressive=True))
    step()
    codebooks, best = _stack(books), torch.inf
    kept, found = codebooks, torch.empty(0, dtype=torch.int64)
    for left_over in reversed(range(rounds + 1)):
        codes, error = _tuples(points, gaps, codebooks, sizes, c, aggregation)
        if not error < best:
            break
        best, kept, found = error, codebooks, codes
        if left_over:
            codebooks = moved(points, gaps, codebooks, codes, c, aggregation)
        step()
    columns = zip(found.unbind(1), sizes, strict=True)
    used = [float(perplexity(column.bincount(minlength=size) / len(points))) for column, size in columns]
    return Start(kept, used)


def _stack(books: Sequence[Tensor]) -> Tensor:
    """Codebooks ``(K_i, d)`` -> ``(len(books), largest K, d)``, 0 beyond the size of a stage."""
    largest = max(map(len, books))
    return torch.stack([F.pad(book, (0, 0, 0, largest - len(book))) for book in books])


def _residuals(
    points: Tensor, gaps: Tensor, books: Tensor, sizes: Sequence[int], c: float, aggregation: Aggregation, most: int
) -> Tensor:
    """What is left of the points after each of their candidates: ``(·, d)``, about ``most`` of them at random."""
    share, parts = most / (BEAM * len(points)), []
    for point, codes, u in _searched(points, gaps, books, sizes, c, aggregation):
        near = u <= _NEAR * u[:, :1]
        row, lane = (near & (torch.rand(u.shape, device=u.device) < share)).nonzero(as_tuple=True)
        r = point[row]
        for book, code in zip(books, codes[row, lane].unbind(1), strict=True):
            r = residual(r, book[code], c, aggregation)
        parts.append(r)
    return torch.cat(parts)


def _searched(
    points: Tensor, gaps: Tensor, books: Tensor, sizes: Sequence[int], c: float, aggregation: Aggregation
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some of the points at a time, their candidates, and ``u`` of these: see :func:`ranked_candidates`."""
    table = code_table(books, c, uneven(sizes))
    tables = beam_tables(table, table, c, aggregation)
    for point, gap in zip(points.split(_ROWS), gaps.split(_ROWS), strict=True):
        yield point, *ranked_candidates(point, gap, tables, c, aggregation, len(sizes), BEAM)


def _tuples(
    points: Tensor, gaps: Tensor, codebooks: Tensor, sizes: Sequence[int], c: float, aggregation: Aggregation
) -> tuple[Tensor, float]:
    """The tuples ``(n, num_stages)`` that a beam search finds for all points, and their mean squared distance."""
    parts, total = [], 0.0
    for _, codes, u in _searched(points, gaps, codebooks, sizes, c, aggregation):
        square = u[:, 0].double().clamp(min=0.0)
        if c > 0.0:
            square = numerics.asinh((c * square).sqrt()).square() * (4.0 / c)
        parts.append(codes[:, 0])
        total += float(square.sum())
    return torch.cat(parts), total / len(points)


def moved(points: Tensor, gaps: Tensor, codebooks: Tensor, codes: Tensor, c: float, aggregation: Aggregation) -> Tensor:
    """Codebooks after each stage in turn was fitted, with the tuples ``codes (n, num_stages)`` fixed.

    Both sides of the stage are kept for all points and change by one code a stage: ``outer`` is the point without the
    stages done, ``inner`` the sum of the stages to come.
    """
    nested, books = aggregation == "nested", codebooks.clone()
    order = range(len(books)) if nested else range(len(books) - 1, -1, -1)
    outer, outer_gap = points.clone(), gaps.clone()
    inner, inner_gap = torch.empty_like(points), torch.empty_like(gaps)
    chunks = [slice(start, start + _ROWS) for start in range(0, len(points), _ROWS)]
    for rows in chunks:
        total = aggregate(
            [book[column] for book, column in zip(books, codes[rows].unbind(1), strict=True)], c, aggregation
        )
        inner[rows], inner_gap[rows] = total.point, total.gap.to(gaps.dtype)
    for i in order:
        old, w = books[i], torch.full_like(books[i][:, :1], _INERTIA)
        old_gap = ball.gap(old, c).to(old.dtype)
        w, mass = ball.midpoint_weights(old, w, c)
        s, t = mass * old, mass - w
        for rows in chunks:
            q = codes[rows, i]
            inner[rows], inner_gap[rows] = _without(inner[rows], inner_gap[rows], old[q], old_gap[q], c, nested)
            solution = coadd(outer[rows], -inner[rows], c) if nested else ball.mobius_sub(inner[rows], outer[rows], c)
            more_s, more_t = midpoints.sums(solution, q, len(old), c)
            s += more_s
            t += more_t
        books[i] = ball.project(midpoints.from_sums(s, t, c).to(books.dtype), c)
        new_gap = ball.gap(books[i], c).to(books.dtype)
        for rows in chunks:
            q = codes[rows, i]
            outer[rows], outer_gap[rows] = _without(outer[rows], outer_gap[rows], books[i][q], new_gap[q], c, nested)
    return books


def _without(x: Tensor, gap: Tensor, q: Tensor, q_gap: Tensor, c: float, left: bool) -> tuple[Tensor, Tensor]:
    """What ``x`` is without the term q on its left or its right: ``(-q) ⊕ x`` or ``x ⊞ (-q)``; and the gap of that."""
    if left:
        return ball.mobius_add_with_gaps(-q, q_gap, x, gap, c)
    rest = coadd(x, -q, c)
    return rest, ball.gap(rest, c).to(gap.dtype)
