"""Beam search over the stages: keep several candidates instead of the best one."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.gradients import to_ball
from ghrq.geometry.nearest import CodeTable, smallest, smallest_ratios, without_copies
from ghrq.quantizer.cascade import Aggregation, Sum, aggregate, walk

# Tables of products pay from this many dimensions on, and up to this many bytes of them.
_TABLE_DIM, _TABLE_BYTES = 24, 64 * 2**20

# Nearer to the boundary the sums of products lose too many digits.
_LEAST_GAP = 0.05

# Rounding errors of the order of candidates are less than this, relative to (1 + ‖z‖²)/α².
_ROUNDING = 1e-5


class BeamTables(NamedTuple):
    """Codebooks prepared for a beam search, by :func:`beam_tables`."""

    table: CodeTable
    """In the type of the vectors; copies of codes are never near."""
    wide: CodeTable
    """The same in float64, to compare tuples exactly."""
    products: list[Tensor] | None
    """For each stage i the products of the codes of all earlier stages with its own, ``(i·K + 2, K)``: see
    :func:`_by_products`. None where residuals are as fast."""

    def share(self, beam: int) -> int:
        """Memory of a row, relative to that of a search without a beam; tables need less, and pay in larger parts."""
        return beam if self.products is None else max(1, beam // 4)


@torch.no_grad()
def beam_tables(table: CodeTable, wide: CodeTable, c: float, aggregation: Aggregation) -> BeamTables:
    """Prepare the codebooks ``table`` and their float64 version ``wide``."""
    stages, largest, dim = table.codes.shape
    size = stages * stages * largest * largest * table.codes.element_size() // 2
    table = without_copies(table)
    if dim < _TABLE_DIM or size > _TABLE_BYTES or (aggregation == "chained" and c > 0.0):
        return BeamTables(table, wide, None)
    products, earlier = [], table.codes.new_empty(0, dim)
    for i, stage in enumerate(table.stages()):
        last = stage.matrix[-1:]
        products.append(torch.cat((torch.ones_like(last), last, earlier @ stage.matrix[:-1])))
        earlier = torch.cat((earlier, table.codes[i]))
    return BeamTables(table, wide, products)


def beam_search(
    v: Tensor, tables: BeamTables, greedy: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int
) -> Tensor:
    """Codes ``(n, depth)`` of tangent vectors ``v (n, d)``: the nearest of ``beam`` candidates and the greedy ones.

    ``greedy`` is the table of the search without a beam.
    """
    point, gap = to_ball(v, c)
    steps = list(walk(point, gap, greedy, c, aggregation, depth))
    codes, error = ranked_candidates(point, gap, tables, c, aggregation, depth, beam)
    first, last = torch.stack([step.chosen for step in steps], dim=-1), steps[-1]
    codes = torch.cat((first.unsqueeze(1), codes[:, :2]), dim=1)
    error = torch.cat((last.square / (last.gap * last.code_gap), error[:, :2]), dim=1)
    if aggregation == "chained" and c > 0.0:  # the residual of the walk is not that of the sum
        error[:, 0] = torch.nan
    # The tuples in order are greedy, best, second best: exact distances where rounding may decide between them.
    reach = _ROUNDING * (1.0 + point.square().sum(-1)) / gap.squeeze(-1).square()
    same = (codes[:, 0] == codes[:, 1]).all(-1)
    clear = (error[:, 0] - error[:, 1] > reach) | same
    if error.shape[1] > 2:
        clear &= error[:, 2] - error[:, 1] > reach
    best = torch.ones_like(codes[:, 0, 0])
    close = (~clear).nonzero().squeeze(-1)
    best[close] = distances(v[close], codes[close], tables.wide, c, aggregation).argmin(dim=1)
    return codes.gather(1, best.view(-1, 1, 1).expand(-1, -1, depth)).squeeze(1)


def beam_candidates(v: Tensor, tables: BeamTables, c: float, aggregation: Aggregation, depth: int, beam: int) -> Tensor:
    """The ``min(beam, K^depth)`` distinct tuples that remain after the last stage: ``v (n, d)`` -> ``(n, ·, depth)``.

    Adding ẑ on the left is an isometry, so a candidate's error after one more code y is ``d(y, R)``, R being the
    residual of the point: the tracked one under the nested rule, ``(-ẑ) ⊕ z`` under the chained one. Candidates are
    ranked by products in the type of v, so their order is approximate; :func:`distances` are exact. Of equal codes the
    first comes first.
    """
    return ranked_candidates(*to_ball(v, c), tables, c, aggregation, depth, beam)[0]


def ranked_candidates(
    point: Tensor, gap: Tensor, tables: BeamTables, c: float, aggregation: Aggregation, depth: int, beam: int
) -> tuple[Tensor, Tensor]:
    """:func:`beam_candidates` of points ``(n, d)`` with gaps ``(n, 1)``, and how far they are.

    ``(n, ·, depth)``, and ``u = ‖z - ẑ‖²/(αβ)`` of each ``(n, ·)``, rising; ``d² = (4/c) asinh²(√(cu))``.
    """
    if tables.products is not None and point.shape[0] and (c == 0.0 or float(gap.min()) > _LEAST_GAP):
        found = _by_products(point, gap, tables.table, tables.products, c, depth, beam)
        if found is not None:
            return found
    return _by_residuals(point, gap, tables.table, c, aggregation, depth, beam)


def _by_residuals(
    point: Tensor, gap: Tensor, table: CodeTable, c: float, aggregation: Aggregation, depth: int, beam: int
) -> tuple[Tensor, Tensor]:
    count, d = point.shape
    left, left_gap = point.unsqueeze(1), gap.unsqueeze(1)
    codes = point.new_empty((count, 1, 0), dtype=torch.int64)
    best = point.new_zeros((count, 1))
    copied = best.unsqueeze(-1)  # infinite for candidates with a copy of an earlier code: the last resort
    for i, stage in enumerate(table.stages()[:depth]):
        size = stage.codes.shape[0]
        square = left.square().sum(-1, keepdim=True)
        few = min(beam, left.shape[1] * size)
        best, place = smallest_ratios(left, square, left_gap, copied, stage, few)
        copied = torch.where(best == torch.inf, torch.inf, 0.0).unsqueeze(-1).to(best.dtype)
        parent, chosen = (place // size).unsqueeze(-1), place % size
        codes = torch.cat((codes.gather(1, parent.expand(-1, -1, i)), chosen.unsqueeze(-1)), dim=-1)
        if aggregation == "nested" or c == 0.0:
            parents, gaps = left.gather(1, parent.expand(-1, -1, d)), left_gap.gather(1, parent)
            subtract = -stage.codes[chosen], stage.gaps[chosen].unsqueeze(-1)
        else:
            parents, gaps = point.unsqueeze(1), gap.unsqueeze(1)
            total = _together(codes, table, c, aggregation)
            subtract = -total.point, total.gap
        left, left_gap = ball.mobius_add_with_gaps(*subtract, parents, gaps, c)
    return codes, best


def _by_products(
    point: Tensor, gap: Tensor, table: CodeTable, products: list[Tensor], c: float, depth: int, beam: int
) -> tuple[Tensor, Tensor] | None:
    """The same under the nested rule without any residual: a residual is ``R = a z + Σ b_j q_j``, so its products are.

    With ``u = ‖R - q‖²/(αβ)``, which the search gives, α being the gap of R and β that of the code q, the next one is

        (-q) ⊕ R = (R/α - (1/α + cu) q) / (1 + cu),   its gap 1/(1 + cu),   its squared norm u/(1 + cu)

    and u itself is ``(2/α) ⟨R, -y/β⟩ + (2/α - 1) ‖y‖²/β + ‖R‖²/α`` (:mod:`ghrq.geometry.nearest`). So one row of the
    products of z with all codes, and one for each code chosen so far, give u for all codes of a stage; the first two
    rows of ``products`` are ones and ``‖y‖²/β``. None if copies of codes are among the candidates: they have no u.
    """
    count = point.shape[0]
    left_gap, square = gap.unsqueeze(1), point.square().sum(-1, keepdim=True).unsqueeze(1)
    weights = torch.ones_like(left_gap)  # (n, b, 1 + i): a, and then the b_j
    rows = point.new_tensor([[[0, 1]]], dtype=torch.int64).expand(count, 1, 2)  # of products
    start = 2
    for stage, product in zip(table.stages()[:depth], products[:depth], strict=True):
        size, inverse = stage.codes.shape[0], 1.0 / left_gap
        scaled = 2.0 * inverse * weights
        given = torch.cat((square * inverse, 2.0 * inverse - 1.0, scaled[..., 1:]), dim=-1)
        width = given.shape[-1]
        sums = F.embedding_bag(
            rows.reshape(-1, width), product, mode="sum", per_sample_weights=given.reshape(-1, width)
        )
        values = sums.view(count, -1, size).addcmul_(scaled[..., :1], (point @ stage.matrix[:-1]).unsqueeze(1))
        best, place = smallest(values, min(beam, values.shape[1] * size))
        if not bool(best.isfinite().all()):
            return None
        parent, u = (place // size).unsqueeze(-1), best.clamp(min=0.0).unsqueeze(-1)
        rows = torch.cat((rows.gather(1, parent.expand(-1, -1, width)), (place % size + start).unsqueeze(-1)), dim=-1)
        start += table.codes.shape[1]
        inverse, left_gap = inverse.gather(1, parent), 1.0 / (1.0 + c * u)
        kept = weights.gather(1, parent.expand(-1, -1, width - 1)) * inverse
        weights = torch.cat((kept, -(inverse + c * u)), dim=-1) * left_gap
        square = u * left_gap
    stages = torch.arange(depth, device=rows.device)
    return rows[..., 2:] - 2 - stages * table.codes.shape[1], square.squeeze(-1) / left_gap.squeeze(-1)


def distances(v: Tensor, codes: Tensor, wide: CodeTable, c: float, aggregation: Aggregation) -> Tensor:
    """Distances between tangent vectors ``v (n, d)`` and the sums of ``codes (n, b, depth)``: ``(n, b)`` float64.

    Geodesic distances; in flat space ``‖x - y‖``. ``wide``: a table in float64.
    """
    z, gap = to_ball(v.double(), c)
    z_hat = _together(codes, wide, c, aggregation)
    length = torch.linalg.vector_norm(z_hat.point - z.unsqueeze(1), dim=-1)
    if c == 0.0:
        return length
    return ball.distance_from_length(length, (gap.unsqueeze(1) * z_hat.gap).squeeze(-1), c)


def _together(codes: Tensor, table: CodeTable, c: float, aggregation: Aggregation) -> Sum:
    """The sum of ``codes (..., depth)``: ``(..., d)`` and its gap, from the gaps of the table."""
    columns = codes.unbind(-1)
    parts = [table.codes[i][column] for i, column in enumerate(columns)]
    return aggregate(parts, c, aggregation, [table.gaps[i][column].unsqueeze(-1) for i, column in enumerate(columns)])
