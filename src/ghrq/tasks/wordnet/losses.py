"""The losses of the WordNet task: contrast between ancestors and other nodes, and the codes of ancestors."""

import numpy as np
import torch
from torch import Tensor, nn

from ghrq.data.closure import Edges, Negatives
from ghrq.geometry.gradients import to_ball
from ghrq.models.ancestors import AncestorTranslator
from ghrq.models.hierarchy import HierarchyEmbedding
from ghrq.nets.contrast import info_nce
from ghrq.quantizer import ball_units
from ghrq.tasks.wordnet.recipe import Contrast


class ContrastiveLosses(nn.Module):
    """InfoNCE over geodesic distances plus ``quantizer_weight`` times the quantizer's losses of both ends of a pair.

    The quantizer's losses are in the units of the ball, see :func:`ghrq.quantizer.config.ball_units`.
    """

    def __init__(
        self, model: HierarchyEmbedding, negatives: Negatives, contrast: Contrast, quantizer_weight: float
    ) -> None:
        super().__init__()
        self.encoder, self.quantizer = model.encoder, model.quantizer
        self.negatives, self.contrast, self.quantizer_weight = negatives, contrast, quantizer_weight

    def forward(self, pairs: Tensor) -> dict[str, Tensor]:
        """The losses of ``pairs (B, 2)``, node and ancestor."""
        settings, c = self.contrast, self.quantizer.curvature
        negatives = self.sample_negatives(pairs)
        z = self.encoder()
        points, gaps = to_ball(z, c)
        nodes = pairs.T.reshape(-1)
        losses, quantized = {}, None
        if self.quantizer_weight > 0.0:
            quantized = self.quantizer(z.index_select(0, nodes))
            # Its loss is the mean over both ends: twice it is the sum of their means.
            losses["quantizer"] = 2.0 * ball_units(self.quantizer) * quantized.loss
        if settings.on == "codes" and quantized is not None:
            ends, end_gaps = to_ball(quantized.z_hat, c)
        else:
            ends, end_gaps = points[nodes], gaps[nodes]
        (u, v), (alpha, beta) = ends.chunk(2), end_gaps.chunk(2)
        losses["contrast"] = info_nce(
            u, alpha, v, beta, points, gaps, negatives, c, temperature=settings.temperature, itself=settings.itself
        )
        loss = losses["contrast"] + self.quantizer_weight * losses.get("quantizer", 0.0)
        return {"loss": loss, **losses}

    def sample_negatives(self, pairs: Tensor) -> Tensor:
        """Negatives ``(B, k)``: uniform, the first ones replaced by ancestors of other pairs where that is allowed."""
        u, v = pairs.unbind(1)
        sampled = self.negatives(u, self.contrast.negatives)
        hard = round(self.contrast.ancestor_share * self.contrast.negatives)
        if hard:
            ancestors = v[torch.randint(len(v), (len(u), hard), device=v.device)]
            sampled[:, :hard] = torch.where(self.negatives.allows(u, ancestors), ancestors, sampled[:, :hard])
        return sampled


class AncestorLoss(nn.Module):
    """The loss of predicting the codes of all training ancestors; ``train (M, 2)`` are pairs of node and ancestor."""

    codes: Tensor
    starts: Tensor
    ancestors: Tensor

    def __init__(self, model: AncestorTranslator, train: Edges) -> None:
        super().__init__()
        self.translator = model.translator
        order = np.lexsort((train[:, 1], train[:, 0]))
        starts = np.searchsorted(train[order, 0], np.arange(len(model.codes) + 1))
        # Buffers, so that they move with the model; not saved.
        self.register_buffer("codes", model.codes, persistent=False)
        self.register_buffer("starts", torch.from_numpy(starts), persistent=False)
        self.register_buffer("ancestors", torch.from_numpy(train[order, 1]), persistent=False)

    def forward(self, nodes: Tensor) -> dict[str, Tensor]:
        """The loss of ``nodes (B,)``."""
        start, count = self.starts[nodes], self.starts[nodes + 1] - self.starts[nodes]
        owner = torch.repeat_interleave(count)
        within = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
        targets = self.codes[self.ancestors[start[owner] + within]]
        return {"loss": self.translator(self.codes[nodes], targets, owner)}
