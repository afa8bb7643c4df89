"""A training step of the residual quantizer: codes, gradients and losses, and what the codes learn from it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.nearest import sample
from ghrq.quantizer.codebook import revive, stretch
from ghrq.quantizer.coder import Coder
from ghrq.quantizer.depth import DepthDropout, RowWeights
from ghrq.quantizer.quantized import Quantized, QuantizedDetails
from ghrq.quantizer.routes import Commitment, Gradient, Routed, Units, attached_route, transport_route
from ghrq.quantizer.scale import EncoderScale
from ghrq.system import distributed
from ghrq.system.checks import check_vectors

# Differences of float32 vectors below this share of their norm may be rounding errors.
_ROUNDING = 1e-5

# Multipliers that differ by less are the same but for rounding.
_EQUAL = 1e-6


class Learner(Coder):
    """Quantize with gradients, and learn; :class:`ghrq.quantizer.residual.ResidualQuantizer` sets it up."""

    gradient: Gradient
    commitment: Commitment
    units: Units
    discount: bool
    codebook_dim: int
    commitment_weight: float
    revive_below: float
    temperature: float
    depth_dropout: DepthDropout | None
    generator: torch.Generator | None
    frozen: bool

    def forward(self, z: Tensor, mask: Tensor | None = None, *, details: bool = False) -> Quantized | QuantizedDetails:
        """Quantize encoder outputs.

        Args:
            z: ``(..., dim)`` any vectors of flat space; the exponential map at the origin takes them to the ball.
            mask: ``(...)`` true for valid vectors. Elsewhere (padding) the output is 0, the codes are meaningless, and
                the vectors have no effect on training.

            details: return the losses of the stages and the drawn depths as well.

        Returns:
            ``z_hat (..., dim)`` close to ``z``, ``codes (..., num_stages)``, ``loss ()``.

        ``z_hat`` is ``decode(codes)`` of the codebooks before the call; in training mode moving midpoints and revived
        codes change in it. In evaluation mode the two are equal in float64 to the last bit. In float32 the codes are
        summed in float32 here, in float64 there, to keep training steps short. They then agree to about 1e-5 while the
        distances of a tuple's codes from the origin sum to at most 48; codes on the boundary are 17 away.

        """
        if self.training and torch.compiler.is_compiling():
            if self.learned is not None:
                return _uncompiled(self, z, mask, details)
        elif self.training:
            _refuse_recomputation()
        z = self._vectors(z, mask)
        if mask is not None:
            z = torch.where(mask.unsqueeze(-1), z, 0.0)
        rows = self._rows(z, mask)
        v = self.project_in(z).reshape(-1, self.codebook_dim)
        with torch.autocast(v.device.type, enabled=False):
            v = self._computable(v)
            if self.training and not self.frozen:
                self._follow(v, rows.weights)
            routed = self._quantize(*self._to_ball(v), rows)
            v_hat = self._from_ball(routed.point, routed.gap)
            if self.learned is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling():
                v_hat, routed = self.learned.attach(
                    self._centred(v), v_hat, routed, self.codebooks, rows, self.aggregation
                )
        z_hat = self.project_out(v_hat.to(z.dtype).reshape(*z.shape[:-1], self.codebook_dim))
        if mask is not None:
            z_hat = torch.where(mask.unsqueeze(-1), z_hat, 0.0)
        codes = routed.codes.reshape(*z.shape[:-1], self.num_stages)
        result, unit = Quantized(self._outward(z_hat), codes, self._loss(routed, self.scale)), self._unit(self.scale)
        if self.scale is not None:
            self.scale.unlimit()
        if not details:
            return result
        depths = None if rows.depths is None else rows.depths.reshape(z.shape[:-1])
        return QuantizedDetails(*result, routed.codebook_loss * unit, routed.commitment_loss * unit, depths)

    def quantize(self, p: Tensor, mask: Tensor | None = None) -> Quantized:
        """:meth:`forward` on points of the ball: ``p (..., codebook_dim)``, no scale control, no linear maps."""
        check_vectors(p, self.codebook_dim, mask)
        if mask is not None:
            p = torch.where(mask.unsqueeze(-1), p, 0.0)
        with torch.autocast(p.device.type, enabled=False):
            points = self._computable(p.reshape(-1, self.codebook_dim))
            points = ball.project(points, self.curvature) if self.curvature > 0.0 else points
            gaps = ball.gap(points.detach(), self.curvature).to(points.dtype)
            routed = self._quantize(points, gaps, self._rows(p, mask))
        codes = routed.codes.reshape(*p.shape[:-1], self.num_stages)
        return Quantized(routed.point.to(p.dtype).reshape(p.shape), codes, self._loss(routed, None))

    def stage_losses(self, z: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Codebook and commitment loss of each stage, ``(num_stages,)`` each, unweighted; changes no state."""
        z = self._vectors(z, mask)
        if mask is not None:
            z = torch.where(mask.unsqueeze(-1), z, 0.0)
        v = self.project_in(z).reshape(-1, self.codebook_dim)
        with torch.autocast(v.device.type, enabled=False):
            routed = self._route(*self._to_ball(self._computable(v)), self._rows(z, mask, dropout=False))
        unit = self._unit(self.scale)
        return routed.codebook_loss * unit, routed.commitment_loss * unit

    # --- inside --------------------------------------------------------------------------------------------

    def _follow(self, v: Tensor, weights: Tensor) -> None:
        """Update mean and scale from the encoder's outputs ``v (n, codebook_dim)``."""
        least: Tensor | float = 0.0
        if self.mean is not None:
            self.mean.update(v, weights)
            # Of equal vectors rounding errors are left, which have no scale.
            least = _ROUNDING * torch.linalg.vector_norm(self.mean())
        if self.scale is not None:
            before, begun = self.scale.average(), self.scale.weight > 0.0
            self.scale.update(self._centred(v), weights, least)
            if self.units == "encoder":
                factor = self.scale.average() / before
                self._keep_codes(torch.where(begun & ((factor - 1.0).abs() > _EQUAL), factor, 1.0))
        if self.learned is not None:
            self.learned.follow(self._centred(v), weights, self.codebooks, least)

    @torch.no_grad()
    def _keep_codes(self, factor: Tensor) -> None:
        """Keep codes where they are in units of the encoder, after its multiplier was multiplied by ``factor ()``.

        Left where they are on the ball, they would follow any growth of the vectors at once, and commitment would pull
        the vectors after them, farther and farther out.
        """
        stretch(self.codebooks, factor, self.curvature)
        if self.midpoints is not None:
            self.midpoints.stretch(factor)

    def _unit(self, scale: EncoderScale | None) -> Tensor | float:
        """The factor from squared distances on the ball to the losses in ``units``."""
        if self.units == "ball":
            return 1.0
        origin = 4.0 if self.curvature > 0.0 else 1.0
        return 1.0 / origin if scale is None else 1.0 / (origin * scale().square())

    def _rows(self, z: Tensor, mask: Tensor | None, dropout: bool = True) -> RowWeights:
        dropping = self.depth_dropout if self.training and dropout else None
        like = z.new_empty(0, dtype=self._dtype(z.dtype))
        return RowWeights.of(z.shape[:-1], mask, like, self.num_stages, dropping, self.generator)

    def _route(self, points: Tensor, gaps: Tensor, rows: RowWeights) -> Routed:
        given = points, gaps, self.codebooks.to(points.dtype), self._table(points.dtype), self.curvature, rows
        axes: dict[str, Any] = {"aggregation": self.aggregation, "commitment": self.commitment}
        axes |= {"discount": self.discount, "unit": 1.0 if self.units == "ball" else 4.0}
        if self.training and self.temperature > 0.0:
            axes["choose"] = partial(sample, c=self.curvature, temperature=self.temperature, generator=self.generator)
        if self.curvature == 0.0 or (self.gradient == "transport" and self.commitment != "every"):
            return transport_route(*given, **axes)
        return attached_route(*given, gradient=self.gradient, **axes)

    def _quantize(self, points: Tensor, gaps: Tensor, rows: RowWeights) -> Routed:
        routed = self._route(points, gaps, rows)
        if self.training and not self.frozen:
            self._learn(routed, rows)
        return routed

    @torch.no_grad()
    def _learn(self, routed: Routed, rows: RowWeights) -> None:
        """Update the state that has no gradient: usage, moving midpoints, dead codes."""
        weights = rows.stages(self.num_stages).mT
        self.usage.update(routed.codes, weights)
        if self.midpoints is not None:
            self.midpoints.update(self.codebooks, routed.codes, routed.residuals, weights)
        if self.revive_below == 0.0 or (self.midpoints is None and not self.codebooks.requires_grad):
            return
        dead = self.usage.dead(self.revive_below)
        self.revived.logical_or_(dead)
        if torch.compiler.is_compiling() or bool(dead.any()):
            revive(self.codebooks, dead, routed.residuals, weights)
            self.usage.reset(dead)
            if self.midpoints is not None:
                self.midpoints.restart(self.codebooks, dead, distributed.mean_(weights.sum(0)))

    def _loss(self, routed: Routed, scale: EncoderScale | None) -> Tensor:
        loss = self.commitment_weight * routed.commitment_loss.sum()
        return (loss if self.midpoints is not None else loss + routed.codebook_loss.sum()) * self._unit(scale)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _uncompiled(quantizer: Learner, z: Tensor, mask: Tensor | None, details: bool) -> Quantized | QuantizedDetails:
    """A training step in which the curvature changes: a compiled graph would keep it as a constant."""
    return quantizer.forward(z, mask, details=details)


def _refuse_recomputation() -> None:
    """A training step changes state, so gradient checkpointing, which runs it again in the backward pass, is wrong."""
    if torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            "the quantizer was run again during the backward pass: in training mode it updates codes, usage and scale, "
            "so exclude it from gradient checkpointing"
        )
