"""Codebooks fitted together: every code moves to where it serves the whole tuples that it is part of.

Residual k-means fits each stage to what the stages before it leave over, and never looks back. Here, with the tuples of
all points fixed, each stage in turn is fitted to the points and all other stages. What a code q of stage i should be for
one point z is solved by undoing what is around it. Under the nested rule, with ``t = q_{i+1} ⊕ (… ⊕ q_N)``,

    z = q_1 ⊕ (… q_{i-1} ⊕ (q ⊕ t))   has the solution   q = r_{i-1} ⊞ (-t),   r_{i-1} = (-q_{i-1}) ⊕ (… (-q_1) ⊕ z)

(left cancellation, then right cancellation); the chained rule has its mirror image. The code becomes the midpoint of the
solutions of all its points. In flat space that is ``z - Σ_{j≠i} q_j`` and its mean, which minimises the error exactly:
block coordinate descent on the least-squares problem of all codebooks, without its matrix. On the ball the distance
from a code to a solution is not exactly that from ẑ to z, so a round counts only if the error falls.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ghrq.geometry import ball, numerics
from ghrq.geometry.kmeans import perplexity
from ghrq.geometry.nearest import code_table
from ghrq.quantizer.beam import beam_tables, ranked_candidates
from ghrq.quantizer.cascade import Aggregation, aggregate
from ghrq.quantizer.codebook import uneven
from ghrq.quantizer.start import Start

# Candidates of the search for the tuples of the points.
BEAM = 5

# Rows computed at a time.
_ROWS = 1024

# The old place of a code counts as much as so many points: codes without points stay.
_INERTIA = 1.0


@torch.no_grad()
def refit_codebooks(
    points: Tensor,
    gaps: Tensor,
    codebooks: Tensor,
    sizes: Sequence[int],
    c: float,
    aggregation: Aggregation,
    rounds: int,
    each_round: Callable[[], object] | None = None,
) -> Start:
    """Better codebooks than ``(num_stages, largest size, d)`` for ``points (n, d)`` with gaps ``(n, 1)``.

    A round finds the tuples of all points by a beam search, and moves all codes. The error is the mean squared
    distance of the points from their tuples; the codebooks of the lowest one are returned. Ends early where it does
    not fall.
    """
    best, kept, found = torch.inf, codebooks, torch.empty(0)
    for left in reversed(range(rounds + 1)):
        codes, error = _tuples(points, gaps, codebooks, sizes, c, aggregation)
        if not error < best:
            break
        best, kept, found = error, codebooks, codes
        if left:
            codebooks = moved(points, gaps, codebooks, codes, c, aggregation)
        if each_round is not None:
            each_round()
    used = [
        float(perplexity(column.bincount(minlength=size) / len(points)))
        for column, size in zip(found.unbind(1), sizes, strict=True)
    ]
    return Start(kept, used)


def _tuples(
    points: Tensor, gaps: Tensor, codebooks: Tensor, sizes: Sequence[int], c: float, aggregation: Aggregation
) -> tuple[Tensor, float]:
    """The tuples of all points ``(n, num_stages)`` that a beam search finds, and the mean of their squared distances."""
    table = code_table(codebooks, c, uneven(sizes))
    tables = beam_tables(table, table, c, aggregation)
    parts, total = [], 0.0
    for point, gap in zip(points.split(_ROWS), gaps.split(_ROWS), strict=True):
        codes, u = ranked_candidates(point, gap, tables, c, aggregation, len(sizes), BEAM)
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
            solution = (
                ball.mobius_coadd(outer[rows], -inner[rows], c)
                if nested
                else ball.mobius_sub(inner[rows], outer[rows], c)
            )
            more_s, more_t = ball.midpoint_sums(solution, q, len(old), c)
            s += more_s
            t += more_t
        books[i] = ball.project(ball.midpoint_from_sums(s, t, c).to(books.dtype), c)
        new_gap = ball.gap(books[i], c).to(books.dtype)
        for rows in chunks:
            q = codes[rows, i]
            outer[rows], outer_gap[rows] = _without(outer[rows], outer_gap[rows], books[i][q], new_gap[q], c, nested)
    return books


def _without(x: Tensor, gap: Tensor, q: Tensor, q_gap: Tensor, c: float, left: bool) -> tuple[Tensor, Tensor]:
    """What ``x`` is without the term q on its left or its right: ``(-q) ⊕ x`` or ``x ⊞ (-q)``; and the gap of that."""
    if left:
        return ball.mobius_add_with_gaps(-q, q_gap, x, gap, c)
    rest = ball.mobius_coadd(x, -q, c)
    return rest, ball.gap(rest, c).to(gap.dtype)
