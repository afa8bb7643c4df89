"""The two models of the WordNet task: synsets to codes, and the codes of a synset to those of its ancestors."""

import numpy as np
import torch
from torch import Tensor, nn

from ghrq.data.closure import Negatives
from ghrq.geometry.gradients import to_ball
from ghrq.nets.contrast import info_nce
from ghrq.nets.embedding import Embedding
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.quantizer import ResidualQuantizer, ball_units
from ghrq.tasks.wordnet.recipe import Contrast


class HierarchyEmbedding(nn.Module):
    """Points of the ball that lie close to their ancestors', and the codes they are quantized into.

    The loss is InfoNCE over geodesic distances plus ``quantizer_weight`` times the quantizer's losses of both ends of
    a pair, in the units of the ball (see :func:`ghrq.quantizer.config.ball_units`).
    """

    def __init__(
        self,
        encoder: Embedding,
        quantizer: ResidualQuantizer,
        negatives: Negatives,
        contrast: Contrast,
        quantizer_weight: float,
    ) -> None:
        super().__init__()
        self.encoder, self.quantizer, self.negatives, self.contrast = encoder, quantizer, negatives, contrast
        self.quantizer_weight = quantizer_weight

    def forward(self, pairs: Tensor) -> dict[str, Tensor]:
        """The losses of ``pairs (B, 2)``, synset and ancestor."""
        settings, c = self.contrast, self.quantizer.curvature
        drawn = self._draw(pairs)
        z = self.encoder()
        points, gaps = to_ball(z, c)
        nodes = pairs.T.reshape(-1)
        losses, quantized = {}, None
        if self.quantizer_weight > 0.0:
            quantized = self.quantizer(z.index_select(0, nodes))
            # The mean over both ends, so twice it: one for each.
            losses["quantizer"] = 2.0 * ball_units(self.quantizer) * quantized.loss
        if settings.on == "codes" and quantized is not None:
            ends, end_gaps = to_ball(quantized.z_hat, c)
        else:
            ends, end_gaps = points[nodes], gaps[nodes]
        (u, v), (alpha, beta) = ends.chunk(2), end_gaps.chunk(2)
        losses["contrast"] = info_nce(
            u, alpha, v, beta, points, gaps, drawn, c, temperature=settings.temperature, itself=settings.itself
        )
        loss = losses["contrast"] + self.quantizer_weight * losses.get("quantizer", 0.0)
        return {"loss": loss, **losses}

    def _draw(self, pairs: Tensor) -> Tensor:
        """Negatives ``(B, k)``: uniform ones, the first of them replaced by ancestors of other pairs where allowed."""
        u, v = pairs.unbind(1)
        drawn = self.negatives(u, self.contrast.negatives)
        hard = round(self.contrast.ancestor_share * self.contrast.negatives)
        if hard:
            ancestors = v[torch.randint(len(v), (len(u), hard), device=v.device)]
            drawn[:, :hard] = torch.where(self.negatives.allows(u, ancestors), ancestors, drawn[:, :hard])
        return drawn

    @torch.no_grad()
    def points(self) -> Tensor:
        """Where every synset is: ``(n, dim)`` on the ball, or in flat space."""
        return to_ball(self.encoder(), self.quantizer.curvature)[0]


class AncestorTranslator(nn.Module):
    """A :class:`TupleTranslator` that knows the codes of all synsets and which ancestors to learn.

    ``codes (n, N)``; ``train (M, 2)`` pairs of synset and ancestor. Neither is saved with the model: the quantizer
    and the split are.
    """

    codes: Tensor
    starts: Tensor
    ancestors: Tensor

    def __init__(self, translator: TupleTranslator, codes: Tensor, train: np.ndarray) -> None:
        super().__init__()
        self.translator = translator
        order = np.lexsort((train[:, 1], train[:, 0]))
        starts = np.searchsorted(train[order, 0], np.arange(len(codes) + 1))
        self.register_buffer("codes", codes, persistent=False)
        self.register_buffer("starts", torch.from_numpy(starts), persistent=False)
        self.register_buffer("ancestors", torch.from_numpy(train[order, 1]), persistent=False)

    def forward(self, nodes: Tensor) -> dict[str, Tensor]:
        """The loss of predicting all training ancestors of ``nodes (B,)``."""
        start, count = self.starts[nodes], self.starts[nodes + 1] - self.starts[nodes]
        owner = torch.repeat_interleave(count)
        within = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
        targets = self.codes[self.ancestors[start[owner] + within]]
        return {"loss": self.translator(self.codes[nodes], targets, owner)}
