"""A hierarchy such as WordNet's nouns as points of the ball, and as codes."""

import torch
from torch import Tensor, nn

from ghrq.geometry.gradients import to_ball
from ghrq.nets.embedding import Embedding
from ghrq.quantizer import QuantizerConfig
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.settings import Count, Positive, Section, Weight


class HierarchyEmbeddingConfig(Section):
    """What makes a :class:`HierarchyEmbedding`."""

    size: Positive
    """Nodes of the hierarchy."""
    dim: Positive = 16
    initial_scale: Weight = 1.0
    """Vectors start as N(0, 1) times this."""
    hidden: Count = 0
    """0: a table of vectors. Otherwise the width of the fully-connected network behind the table."""
    quantizer: QuantizerConfig = QuantizerConfig()


class HierarchyEmbedding(nn.Module, Pretrained):
    """A vector for each node of a hierarchy, and the quantizer that makes codes of them.

    Nodes are row numbers: of a run of the WordNet task, those of ``ghrq.data.wordnet.load().names``.

    Examples:
        >>> embedding = ghrq.models.HierarchyEmbedding(ghrq.models.HierarchyEmbedding.Config(size=100, dim=8))
        >>> embedding.points().shape, embedding.codes().shape
        (torch.Size([100, 8]), torch.Size([100, 4]))

    """

    Config = HierarchyEmbeddingConfig
    config: HierarchyEmbeddingConfig
    _format = Format("ghrq-hierarchy-embedding", "hierarchy embedding")

    def __init__(self, config: HierarchyEmbeddingConfig) -> None:
        super().__init__()
        self.config = config
        self.quantizer = config.quantizer.build(config.dim)
        self.encoder = Embedding(config.size, config.dim, config.initial_scale, config.hidden)

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """What the quantizer sees: tangent vectors at the origin, ``(size, dim)``."""
        return self.encoder()

    @torch.no_grad()
    def points(self) -> Tensor:
        """The points of all nodes, ``(size, dim)`` on the ball, or in flat space for a Euclidean quantizer."""
        return to_ball(self.encoder(), self.quantizer.curvature)[0]

    def codes(self) -> Tensor:
        """The codes of all nodes, ``(size, num_stages)`` int64."""
        return self.quantizer.encode(self.vectors())
