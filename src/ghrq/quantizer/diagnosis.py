"""Measurements of quantization quality on given points, in float64."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.quantizer.cascade import Aggregation, aggregate, prefixes, residual
from ghrq.quantizer.routes import squared_distance

BOUNDARY_RADIUS = 0.99


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

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = ["stage  d²(ẑ,z)    usage  perplexity  code radius  residual radius"]
        columns = (self.residual_error, self.usage, self.perplexity, self.code_radius, self.residual_radius)
        for i, (error, usage, perplexity, code, left) in enumerate(zip(*columns, strict=True), start=1):
            lines.append(f"{i:5d}  {error:9.4g}  {usage:5.1%}  {perplexity:10.1f}  {code:11.3f}  {left:15.3f}")
        lines.append(
            f"telescoping error {self.telescoping_error:.2g}, radius {self.radius['median']:.3f} (median) "
            f"{self.radius['greatest']:.6f} (greatest), beyond {BOUNDARY_RADIUS}: {self.boundary_fraction:.1%}"
        )
        return "\n".join(lines)


def diagnose(points: Tensor, codes: Tensor, codebooks: Tensor, c: float, aggregation: Aggregation) -> Diagnosis:
    """Measure ``codes (n, N)`` of ``points (n, d)`` on the ball under ``codebooks (N, K, d)``; all sums in float64."""
    size = codebooks.shape[1]
    z, parts = points.double(), [book.double()[codes[:, i]] for i, book in enumerate(codebooks.detach())]
    depths = prefixes(parts, c, aggregation, [ball.gap(part, c) for part in parts]).point
    r, left = z, []
    for part in parts:
        r = residual(r, part, c, aggregation)
        left.append(r)
    shares = torch.stack([column.bincount(minlength=size) for column in codes.unbind(-1)]).double() / len(codes)
    radii = _radius(z, c)
    return Diagnosis(
        residual_error=squared_distance(depths, z.unsqueeze(1), c).mean(0).tolist(),
        telescoping_error=float(squared_distance(aggregate([*parts, r], c, aggregation).point, z, c).mean()),
        usage=(shares > 0).double().mean(-1).tolist(),
        perplexity=(-torch.special.xlogy(shares, shares).sum(-1)).exp().tolist(),
        radius={"median": float(radii.median()), "greatest": float(radii.max())},
        code_radius=[float(_radius(part, c).median()) for part in parts],
        residual_radius=[float(_radius(part, c).median()) for part in left],
        boundary_fraction=float((radii > BOUNDARY_RADIUS).double().mean()) if c > 0.0 else 0.0,
    )


def _radius(x: Tensor, c: float) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1) * (c**0.5 if c > 0.0 else 1.0)
