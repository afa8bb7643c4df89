"""Measurements of quantization quality on given points, in float64."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.gradients import to_ball
from ghrq.geometry.kmeans import perplexity
from ghrq.quantizer.cascade import Aggregation, aggregate, prefixes, residual
from ghrq.quantizer.routes import squared_distance

BOUNDARY_RADIUS = 0.99
# A stage is healthy if its perplexity is at least this share of its codes.
FEW_CODES = 0.1
# A share of the median norm that all vectors have in common; collapsed encoders have .94 and more.
LARGE_OFFSET = 0.9


@dataclass(frozen=True)
class Diagnosis:
    """Each field is a float or a list with one float per stage. Distances are geodesic; in flat space ``‖x - y‖``."""

    residual_error: list[float]
    """Mean ``d(ẑ_i, z)²`` when only the first i codes are used."""
    telescoping_error: float
    """Mean ``d(z', z)²`` of the sum z' of the codes and the last residual: 0 if the rule telescopes."""
    usage: list[float]
    """Share of the codes that were chosen at all."""
    perplexity: list[float]
    """``exp`` of the entropy of the choice of codes: ``codebook_size`` if all are used equally."""
    radius: dict[str, float]
    """Median and greatest radius ``√c‖z‖`` of the points (``‖z‖`` in flat space)."""
    code_radius: list[float]
    """Median radius of the codes chosen."""
    residual_radius: list[float]
    """Median radius of what is left after each stage."""
    boundary_fraction: float
    """Share of the points beyond radius 0.99 of the ball."""
    offset: float = 0.0
    """``‖mean‖ / median norm`` of the vectors: 0 if they lie around the origin, 1 if all are one constant."""
    codebook_size: int | list[int] = 0
    """One for all stages, or one for each."""
    curvature: float = 0.0
    """In units of the vectors: it may be learnt, or follow the data."""

    def warnings(self) -> list[str]:
        """What is wrong, one sentence each, with the remedy; empty for a healthy quantizer."""
        found = []
        idle = few_codes(self.perplexity, self.codebook_size)
        if idle:
            found.append(idle)
        if self.offset > LARGE_OFFSET:
            found.append(
                f"the vectors are nearly one constant (offset {self.offset:.2f}): if the training loss no longer "
                "falls, the encoder has collapsed, so lower the weight of the quantizer's loss; else try centre=True"
            )
        if self.boundary_fraction > 0.5:
            found.append(
                f"{self.boundary_fraction:.0%} of the points lie beyond radius {BOUNDARY_RADIUS} of the ball, where "
                "few codes serve all: scale them down, set a radius (that of calibrated is 0.15), or train or "
                "initialize it on such vectors"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = ["stage  d²(ẑ,z)    usage  perplexity  code radius  residual radius"]
        columns = (self.residual_error, self.usage, self.perplexity, self.code_radius, self.residual_radius)
        for i, (error, usage, even, code, left) in enumerate(zip(*columns, strict=True), start=1):
            lines.append(f"{i:5d}  {error:9.4g}  {usage:5.1%}  {even:10.1f}  {code:11.3f}  {left:15.3f}")
        lines.append(
            f"telescoping error {self.telescoping_error:.2g}, radius {self.radius['median']:.3f} (median) "
            f"{self.radius['greatest']:.6f} (greatest), beyond {BOUNDARY_RADIUS}: {self.boundary_fraction:.1%}, "
            f"offset {self.offset:.2f}, curvature {self.curvature:.3g}"
        )
        lines.extend(f"warning: {warning}" for warning in self.warnings())
        return "\n".join(lines)


def few_codes(values: list[float], codebook_size: int | Sequence[int], distinct: int | None = None) -> str:
    """The warning about stages that use few of their codes, by their perplexities; empty if all use enough.

    ``distinct``: how many of the vectors differ, if that is known.
    """
    sizes = list(codebook_size) if isinstance(codebook_size, Sequence) else [codebook_size] * len(values)
    pairs = enumerate(zip(values, sizes, strict=True), start=1)
    idle = [f"stage {i}: {value:.1f}" for i, (value, size) in pairs if value < FEW_CODES * size]
    if not idle:
        return ""
    told = str(sizes[0]) if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    remedy = "train or initialize it on such vectors, or use fewer codes"
    if distinct is not None and distinct < max(sizes):
        remedy = f"only {distinct} of the vectors differ; initialize it on more that do, or use fewer codes"
    return f"less than a tenth of the {told} codes is in use (perplexity of {', '.join(idle)}): {remedy}"


class Totals:
    """The sums behind a :class:`Diagnosis`, in float64: vectors are added in parts of any size.

    Memory is that of a part, and one number per vector and stage for the medians. ``c`` is the curvature of the codes'
    ball, ``data_curvature`` that in units of the vectors; ``sizes`` are those of the stages.
    """

    def __init__(
        self, codebooks: Tensor, sizes: Sequence[int], c: float, aggregation: Aggregation, data_curvature: float
    ) -> None:
        self._sizes = list(sizes)
        self._books, self._c, self._aggregation = codebooks.detach().double(), c, aggregation
        self._data_curvature = data_curvature
        stages, size, dim = codebooks.shape
        self._error, self._telescoping = self._books.new_zeros(stages), self._books.new_zeros(())
        self._counts = torch.zeros(stages, size, dtype=torch.int64, device=codebooks.device)
        self._mean = self._books.new_zeros(dim)
        self._norms: list[Tensor] = []
        self._radii: list[Tensor] = []

    def add(self, v: Tensor, codes: Tensor) -> None:
        """Add ``codes (n, N)`` of the tangent vectors ``v (n, d)``."""
        c, aggregation = self._c, self._aggregation
        z = to_ball(v, c)[0].double()
        parts = [book[codes[:, i]] for i, book in enumerate(self._books)]
        depths = prefixes(parts, c, aggregation, [ball.gap(part, c) for part in parts]).point
        r, left = z, []
        for part in parts:
            r = residual(r, part, c, aggregation)
            left.append(r)
        self._error += squared_distance(depths, z.unsqueeze(1), c).sum(0)
        self._telescoping += squared_distance(aggregate([*parts, r], c, aggregation).point, z, c).sum()
        for counts, column in zip(self._counts, codes.unbind(-1), strict=True):
            counts += column.bincount(minlength=counts.shape[0])
        self._mean += v.double().sum(0)
        self._norms.append(torch.linalg.vector_norm(v, dim=-1))
        self._radii.append(torch.stack([_radius(x, c) for x in (z, *parts, *left)]))

    def result(self) -> Diagnosis:
        """The diagnosis of all vectors added."""
        stages, sizes = len(self._sizes), self._sizes
        radii, norms = torch.cat(self._radii, dim=1), torch.cat(self._norms)
        count = norms.shape[0]
        shares = self._counts.double() / count
        medians = [float(radius.median()) for radius in radii]
        return Diagnosis(
            residual_error=(self._error / count).tolist(),
            telescoping_error=float(self._telescoping / count),
            usage=[float((share[:size] > 0).double().mean()) for share, size in zip(shares, sizes, strict=True)],
            perplexity=perplexity(shares).tolist(),
            radius={"median": medians[0], "greatest": float(radii[0].max())},
            code_radius=medians[1 : 1 + stages],
            residual_radius=medians[1 + stages :],
            boundary_fraction=float((radii[0] > BOUNDARY_RADIUS).double().mean()) if self._c > 0.0 else 0.0,
            offset=float((self._mean / count).norm() / norms.median().clamp(min=1e-30)),
            codebook_size=sizes[0] if len(set(sizes)) == 1 else sizes,
            curvature=self._data_curvature,
        )


def _radius(x: Tensor, c: float) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1) * (c**0.5 if c > 0.0 else 1.0)
