"""Encode and decode with given codebooks, without training."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ghrq.geometry import ball, numerics
from ghrq.geometry.gradients import from_ball, to_ball
from ghrq.geometry.manifold import ManifoldParameter
from ghrq.geometry.nearest import CodeTable, code_table
from ghrq.quantizer import cascade
from ghrq.quantizer.beam import BeamTables, beam_candidates, beam_search, beam_tables, distances
from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.codebook import MovingMidpoints, Usage, check_inside, uneven
from ghrq.quantizer.convention import LEARNED, check_convention, convention
from ghrq.quantizer.curvature import LearnedCurvature
from ghrq.quantizer.diagnosis import Diagnosis, Totals
from ghrq.quantizer.kinds import Kind, Update
from ghrq.quantizer.scale import EncoderMean, EncoderScale
from ghrq.system.checks import at_least, check_codes, check_vectors, has_values

# Rows that encode and decode process at a time: a compromise between overhead and cache size.
CHUNK_ROWS = 4096


class Coder(nn.Module):
    """Encode and decode by given codebooks; :class:`ghrq.quantizer.residual.ResidualQuantizer` sets them up.

    Shapes are those of vectors with the channels last. With ``channel_dim=1`` vectors are ``(B, dim, ...)`` instead.
    """

    dim: int
    codebook_size: int | Sequence[int]
    sizes: tuple[int, ...]
    num_stages: int
    channel_dim: int
    kind: Kind
    codebook_update: Update
    radius: float | None
    aggregation: Aggregation
    convention: Tensor
    codebooks: ManifoldParameter
    usage: Usage
    revived: Tensor
    midpoints: MovingMidpoints | None
    scale: EncoderScale | None
    mean: EncoderMean | None
    learned: LearnedCurvature | None
    project_in: nn.Module
    project_out: nn.Module
    _curvature: float
    _told_outside = False

    @property
    def curvature(self) -> float:
        """C of the ball ``{x : c‖x‖² < 1}`` that the codes are on; 0 is flat space."""
        learned = self.learned
        if learned is not None and not learned.isp_c.is_meta and not torch.compiler.is_compiling():
            self._curvature = float(learned.c.detach())  # in a graph it is a constant
        return self._curvature

    def train(self, mode: bool = True) -> Self:
        """Training or, as ``eval()``, evaluation: exported graphs have the curvature that was last seen here."""
        self._settle()
        return super().train(mode)

    def _settle(self) -> None:
        """After a change of a learned curvature: take note of it, keep the codes inside."""
        if self.learned is not None and not self.learned.isp_c.is_meta:
            _ = self.curvature
            self.learned.keep_inside(self.codebooks)

    @property
    def data_curvature(self) -> float:
        """The curvature in units of ``z``: ``c s²`` with the encoder scale s, which may follow the data."""
        return self.curvature if self.scale is None else self.curvature * float(self.scale()) ** 2

    @torch.no_grad()
    def encode(self, z: Tensor, depth: int | None = None, beam: int = 1) -> Tensor:
        """The codes of ``z (..., dim)``: ``(..., depth)`` int64, by default at full depth. Constant extra memory.

        ``beam > 1`` keeps that many candidates from stage to stage. The result is never farther from z than with
        ``beam=1``, and takes several times as long.
        """
        depth = self.num_stages if depth is None else depth
        at_least("depth", depth, 1, whole=True)
        if not 1 <= depth <= self.num_stages:
            raise ValueError(f"depth must be from 1 to num_stages={self.num_stages}, got {depth}")
        at_least("beam", beam, 1, whole=True)
        z = self._vectors(z)
        table = self._table(z.dtype)
        tables = self._beam_tables(table) if beam > 1 else None
        share = beam if tables is None else tables.share(beam)
        codes = _by_chunks(lambda rows: self._encode(rows, table, depth, tables, beam), z.reshape(-1, self.dim), share)
        return codes.reshape(*z.shape[:-1], depth)

    @torch.no_grad()
    def candidates(self, z: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        """All tuples of codes that a beam search ends with for ``z (..., dim)``.

        Returns:
            ``codes (..., b, num_stages)`` int64, all different, the nearest first, and their :meth:`distance`
            ``(..., b)``. b is ``beam``, or the number of tuples that there are if that is less.

        """
        at_least("beam", beam, 1, whole=True)
        z = self._vectors(z)
        tables = self._beam_tables(self._table(z.dtype))
        rows = z.reshape(-1, self.dim).split(max(1, CHUNK_ROWS // tables.share(beam)))
        parts = [self._candidates(part, tables, beam) for part in rows]
        codes, distance = (torch.cat(column) for column in zip(*parts, strict=True))
        lead = (*z.shape[:-1], codes.shape[1])
        return codes.view(*lead, self.num_stages), distance.view(lead)

    @torch.no_grad()
    def distance(self, z: Tensor, codes: Tensor) -> Tensor:
        """The distance between ``z (..., dim)`` and the decoded ``codes (..., depth)``: ``(...)`` float64.

        The geodesic distance on the ball; in flat space ``‖x - y‖``.
        """
        z = self._vectors(z)
        check_codes(codes, self.num_stages, self.sizes)
        if codes.shape[:-1] != z.shape[:-1]:
            raise ValueError(f"expected a tuple for each vector, got shapes {tuple(z.shape)} and {tuple(codes.shape)}")
        flat, wide = z.reshape(-1, self.dim), self._table(torch.float64)
        tuples = codes.long().reshape(-1, 1, codes.shape[-1])

        def measure(rows: Tensor) -> Tensor:
            with torch.autocast(z.device.type, enabled=False):
                return distances(self._tangent(flat[rows]), tuples[rows], wide, self.curvature, self.aggregation)

        return _by_chunks(measure, torch.arange(len(flat), device=z.device)).view(z.shape[:-1])

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """The vectors that ``codes (..., depth)`` stand for: ``(..., dim)``, for any depth from 1 to ``num_stages``.

        The first codes alone are the coarse version: ``decode(codes[..., :2])``. A code of -1 is a stage that is not
        used.
        """
        return self._outward(self._decode(codes, prefixes=False))

    @torch.no_grad()
    def prefixes(self, codes: Tensor) -> Tensor:
        """:meth:`decode` at every depth at once: ``codes (..., depth)`` -> ``(..., depth, dim)``, channels last."""
        return self._decode(codes, prefixes=True)

    @torch.no_grad()
    def points(self, z: Tensor) -> Tensor:
        """The points of ``z (..., dim)`` on the ball, ``(..., codebook_dim)``; in flat space the vectors."""
        z = self._vectors(z)
        points, _ = to_ball(self._tangent(z.reshape(-1, self.dim)), self.curvature)
        return points.reshape(*z.shape[:-1], points.shape[-1])

    @torch.no_grad()
    def diagnose(self, z: Tensor) -> Diagnosis:
        """Measure how well ``z (..., dim)`` is quantized; see :class:`ghrq.quantizer.diagnosis.Diagnosis`."""
        if z.numel() == 0:
            raise ValueError(f"diagnose needs at least one vector, got shape {tuple(z.shape)}")
        table = self._table(z.dtype)
        totals = Totals(self.codebooks, self.sizes, self.curvature, self.aggregation, self.data_curvature)
        for rows in self._vectors(z).reshape(-1, self.dim).split(CHUNK_ROWS):
            totals.add(self._tangent(rows), self._encode(rows, table, self.num_stages))
        return totals.result()

    # --- inside --------------------------------------------------------------------------------------------

    def _vectors(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Check the vectors of a caller; the channels come last: ``(..., dim)``."""
        if self.channel_dim != -1 and isinstance(z, Tensor) and z.dim() > 1:
            z = z.movedim(self.channel_dim, -1)
        check_vectors(z, self.dim, mask)
        return z

    def _outward(self, z: Tensor) -> Tensor:
        """Vectors ``(..., dim)`` in the caller's order of dimensions."""
        return z if self.channel_dim == -1 or z.dim() < 2 else z.movedim(-1, self.channel_dim)

    def _dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The type that the cascade is computed in: float32, or float64 if vectors or codebooks are."""
        return torch.float64 if torch.float64 in (dtype, self.codebooks.dtype) else torch.float32

    def _computable(self, v: Tensor) -> Tensor:
        return v.to(self._dtype(v.dtype))

    def _table(self, dtype: torch.dtype) -> CodeTable:
        table = code_table(self.codebooks.to(self._dtype(dtype)), self.curvature, uneven(self.sizes))
        self._check_inside(table.codes, table.gaps)
        return table

    def _check_inside(self, codebooks: Tensor, gaps: Tensor) -> None:
        if self.curvature > 0.0 and has_values(gaps):
            self._told_outside = check_inside(codebooks, gaps, self.curvature, self._told_outside)

    def _centred(self, v: Tensor) -> Tensor:
        return v if self.mean is None else v - self.mean().to(v.dtype)

    def _scaled(self, v: Tensor) -> Tensor:
        v = self._centred(v)
        return v if self.scale is None else v * self.scale().to(v.dtype)

    def _to_ball(self, v: Tensor) -> tuple[Tensor, Tensor]:
        return to_ball(self._scaled(v), self.curvature)

    def _from_ball(self, point: Tensor, gap: Tensor) -> Tensor:
        v = from_ball(point, gap, self.curvature)
        v = v if self.scale is None else v / self.scale().to(v.dtype)
        return v if self.mean is None else v + self.mean().to(v.dtype)

    def _tangent(self, z: Tensor) -> Tensor:
        """The vectors ``(n, codebook_dim)`` that the exponential map takes to the ball, of ``z (n, dim)``."""
        return self._scaled(self._computable(self.project_in(z)))

    def _beam_tables(self, table: CodeTable) -> BeamTables:
        return beam_tables(table, self._table(torch.float64), self.curvature, self.aggregation)

    def _candidates(self, z: Tensor, tables: BeamTables, beam: int) -> tuple[Tensor, Tensor]:
        c, aggregation = self.curvature, self.aggregation
        with torch.autocast(z.device.type, enabled=False):
            v = self._tangent(z)
            codes = beam_candidates(v, tables, c, aggregation, self.num_stages, beam)
            distance, order = distances(v, codes, tables.wide, c, aggregation).sort(dim=1, stable=True)
            return codes.gather(1, order.unsqueeze(-1).expand_as(codes)), distance

    def _encode(
        self, z: Tensor, table: CodeTable, depth: int, tables: BeamTables | None = None, beam: int = 1
    ) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            v = self._tangent(z)
            if tables is not None:
                return beam_search(v, tables, table, self.curvature, self.aggregation, depth, beam)
            point, gap = to_ball(v, self.curvature)
            steps = cascade.walk(point, gap, table, self.curvature, self.aggregation, depth)
            return torch.stack([step.chosen for step in steps], dim=-1)

    def _decode(self, codes: Tensor, prefixes: bool) -> Tensor:
        check_codes(codes, self.num_stages, self.sizes, unused=True)
        depth = codes.shape[-1]
        put_together = cascade.prefixes if prefixes else cascade.aggregate
        # Partial sums may come close to the boundary: float64 keeps their digits.
        books, book_gaps = (
            self.codebooks.to(numerics.wide_dtype(self.codebooks)),
            ball.gap(self.codebooks, self.curvature),
        )
        self._check_inside(self.codebooks, book_gaps.squeeze(-1))

        def vectors(rows: Tensor) -> Tensor:
            rows = rows.long()
            columns = rows.clamp(min=0).unbind(-1)
            parts = [books[i].index_select(0, column) for i, column in enumerate(columns)]
            gaps = [book_gaps[i].index_select(0, column) for i, column in enumerate(columns)]
            unused = rows.unsqueeze(-1) < 0
            if torch.compiler.is_compiling() or bool(unused.any()):
                parts = [part.masked_fill(skip, 0.0) for part, skip in zip(parts, unused.unbind(-2), strict=True)]
                gaps = [gap.masked_fill(skip, 1.0) for gap, skip in zip(gaps, unused.unbind(-2), strict=True)]
            v = self._from_ball(*put_together(parts, self.curvature, self.aggregation, gaps))
            return self.project_out(v.to(self.codebooks.dtype))

        shape = (*codes.shape, self.dim) if prefixes else (*codes.shape[:-1], self.dim)
        return _by_chunks(vectors, codes.reshape(-1, depth)).reshape(shape)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}convention" in state_dict:
            check_convention(state_dict[f"{prefix}convention"], self._own_convention())
        manifold = self.codebooks.manifold
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._keep_manifold(manifold)  # load_state_dict(assign=True)
        # What is not saved begins anew; a module from meta has no values there, or any.
        if self.revived.is_meta:
            self.revived = torch.empty_like(self.revived, device=self.codebooks.device)
            if self.scale is not None:
                self.scale.limit = torch.full_like(self.scale.limit, torch.inf, device=self.codebooks.device)
        self.revived.zero_()

    def _own_convention(self) -> Tensor:
        curved = LEARNED if self.learned is not None else self.curvature
        return convention(curved, self.aggregation, uneven(self.sizes))

    def _keep_manifold(self, manifold: Any) -> None:
        """Make codebooks that PyTorch has replaced by a plain parameter a :class:`ManifoldParameter` again."""
        if not isinstance(self.codebooks, ManifoldParameter):
            self.codebooks = ManifoldParameter(self.codebooks.data, manifold, self.codebooks.requires_grad)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep statistics in their type, and codes inside the ball when a change of type rounds them."""
        modules = [module for module in (self.usage, self.midpoints, self.scale, self.mean) if module is not None]
        kept = [(module, name, buffer) for module in modules for name, buffer in module.named_buffers()]
        manifold = self.codebooks.manifold
        super()._apply(fn, recurse)
        self._keep_manifold(manifold)  # to_empty() from meta
        for module, name, buffer in kept:
            now = getattr(module, name)
            setattr(module, name, now.to(buffer.dtype) if buffer.is_meta else buffer.to(now.device))
        if self.curvature > 0.0 and self.codebooks.dtype not in (torch.float32, torch.float64):
            self.codebooks.data = ball.project(self.codebooks.data, self.curvature)
        return self

    def extra_repr(self) -> str:
        """Text for ``print(rq)``."""
        sizes = f"{self.dim}, codebook_size={self.codebook_size}, num_stages={self.num_stages}"
        how = " (learned)" if self.learned is not None else ""
        if self.scale is not None and self.curvature > 0.0:
            how = " (follows the data)"
        radius = "" if self.radius is None else f", radius={self.radius:g}"
        update = f"codebook_update={self.codebook_update!r}"
        return f"{sizes}, kind={self.kind!r}, {update}{radius}, curvature={self.data_curvature:g}{how}"


def _by_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, share: int = 1) -> Tensor:
    """``function`` of ``rows (n, ...)``, chunk by chunk; without chunks in an exported graph.

    ``share``: memory of a row, relative to the usual.
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
