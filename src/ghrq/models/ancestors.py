"""From the codes of a node of a hierarchy to the codes of its ancestors."""

from functools import cached_property
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from ghrq.ids import PrefixTrie
from ghrq.nets.beam_search import beam_search
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.settings import Positive, StagedSection

# Nodes whose ancestors are searched at a time.
_BATCH = 1024


class AncestorTranslatorConfig(StagedSection):
    """What makes an :class:`AncestorTranslator`."""

    size: Positive
    """Nodes of the hierarchy."""
    width: Positive = 256
    layers: Positive = 4
    heads: Positive = 8
    feedforward: Positive = 1024
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1


class AncestorTranslator(nn.Module, Pretrained):
    """A sequence-to-sequence model that predicts the codes of ancestors, with the codes of all nodes.

    Examples:
        >>> Config = ghrq.models.AncestorTranslator.Config
        >>> codes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> config = Config(size=4, num_stages=2, codebook_size=2, width=16, layers=1, heads=2, feedforward=16)
        >>> translator = ghrq.models.AncestorTranslator(config, codes).eval()
        >>> tuples, scores = translator.ancestors(torch.tensor([3]), beam=2)
        >>> tuples.shape  # the likeliest codes of an ancestor of node 3; translator.nodes(tuples[0, 0]) are its nodes
        torch.Size([1, 2, 2])

    Args:
        config: sizes.
        codes: ``(size, num_stages)`` int64, one tuple for each node; by default zeros.

    """

    Config = AncestorTranslatorConfig
    config: AncestorTranslatorConfig
    codes: Tensor
    _format = Format("ghrq-ancestor-translator", "ancestor translator")

    def __init__(self, config: AncestorTranslatorConfig, codes: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        zeros = torch.zeros(config.size, config.num_stages, dtype=torch.int64)
        self.register_buffer("codes", zeros if codes is None else codes)
        self.translator = TupleTranslator(**config.model_dump(exclude={"size"}))

    def ancestors(self, nodes: Tensor, beam: int = 10, known: bool = True) -> tuple[Tensor, Tensor]:
        """The likeliest codes of ancestors of ``nodes (B,)`` int64: ``(B, beam, num_stages)``, the best first.

        And their log-probabilities ``(B, beam)``, see :func:`ghrq.nets.beam_search.beam_search`. ``known`` searches
        among the codes of the nodes only.
        """
        device = self.translator.start.device
        trie = self._trie.to(device) if known else None
        source = self.codes[nodes.to(self.codes.device)].to(device)
        parts = [beam_search(self.translator, part, beam, trie) for part in source.split(_BATCH)]
        tuples, scores = (torch.cat(found).to(nodes.device) for found in zip(*parts, strict=True))
        return tuples, scores

    def nodes(self, code: Tensor) -> Tensor:
        """The nodes that have this ``code (num_stages,)``: int64, in rising order; several may share one."""
        return (self.codes == code.to(self.codes.device)).all(1).nonzero().flatten()

    @cached_property
    def _trie(self) -> PrefixTrie:
        return PrefixTrie(self.codes, self.config.codebook_size)
