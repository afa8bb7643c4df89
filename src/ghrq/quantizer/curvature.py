"""A curvature that is learnt by gradient, beside the codebooks."""

import torch
from torch import Tensor

from ghrq.geometry import ball
from ghrq.geometry.gradients import also_by
from ghrq.geometry.manifold import PoincareBall
from ghrq.quantizer.cascade import Aggregation, aggregate, residual
from ghrq.quantizer.depth import RowWeights
from ghrq.quantizer.routes import Routed, squared_distance
from ghrq.quantizer.scale import fitting_scale
from ghrq.system import distributed


class LearnedCurvature(PoincareBall):
    """The ball of a quantizer whose curvature is a parameter, ``c = softplus(isp_c)``; codes keep their coordinates.

    It starts at the tensor ``start``. If that is ``"learn"``, the first vectors set c such that their median radius on
    the ball, ``tanh(√c‖v‖)``, is ``radius``.
    """

    isp_c: Tensor
    started: Tensor

    def __init__(self, start: Tensor | str, radius: float) -> None:
        given = isinstance(start, Tensor)
        if isinstance(start, Tensor) and start.numel() != 1:
            raise ValueError(f"curvature must be one number, got a tensor of shape {tuple(start.shape)}")
        super().__init__(float(start.detach()) if isinstance(start, Tensor) else 1.0, learnable=True)
        self.start_radius = radius
        self.register_buffer("started", torch.tensor(given))

    @torch.no_grad()
    def follow(self, v: Tensor, weights: Tensor, codebooks: Tensor, least: Tensor | float) -> None:
        """Before a training step on tangent vectors ``v (n, d)``: start c, keep codes inside; see ``fitting_scale``."""
        if not bool(self.started):
            scale, valid = fitting_scale(v, weights, self.start_radius, least=least)
            if bool(valid):
                before, c = self.c, scale.square()
                self.isp_c.copy_(c + torch.log(-torch.expm1(-c)))
                distributed.broadcast_(self.isp_c.data)
                self.started.fill_(True)
                codebooks.mul_((before / self.c).sqrt().to(codebooks.dtype))
        self.keep_inside(codebooks)

    @torch.no_grad()
    def keep_inside(self, codebooks: Tensor) -> None:
        """Project codes ``(..., d)`` that a step of c has left outside."""
        codebooks.copy_(ball.project(codebooks, float(self.c)))

    def attach(
        self, v: Tensor, v_hat: Tensor, routed: Routed, codebooks: Tensor, rows: RowWeights, rule: Aggregation
    ) -> tuple[Tensor, Routed]:
        """Give ``v_hat (n, d)`` and the losses of a route their derivatives by c, at fixed codes.

        To ``v (n, d)`` and to the codes, gradients go by that route, as with a fixed curvature.
        """
        c, v = self.c.to(v.dtype), v.detach()
        r, parts, squared = ball.expmap0(v, c), [], []
        for i, (book, chosen) in enumerate(zip(codebooks.detach().to(v.dtype), routed.codes.unbind(-1), strict=True)):
            q = book.index_select(0, chosen)
            squared.append((rows.stage(i) * squared_distance(r, q, c)).sum())
            r = residual(r, q, c, rule)
            parts.append(q if rows.depths is None else torch.where((rows.depths > i).unsqueeze(-1), q, 0.0))
        exact = ball.logmap0(aggregate(parts, c, rule).point, c)
        losses = torch.stack(squared)
        codebook, commitment = (also_by(own, losses) for own in (routed.codebook_loss, routed.commitment_loss))
        return also_by(v_hat, exact), routed._replace(codebook_loss=codebook, commitment_loss=commitment)
