"""The losses of a recommender in training: of the next item's codes, and of the next item among sampled ones."""

import math

import torch
from torch import Tensor, nn

from ghrq.ids import PrefixTrie
from ghrq.models.recommender import Recommender
from ghrq.nets.code_decoder import CodeDecoder
from ghrq.nets.t5_generator import T5Generator


class RecommenderLosses(nn.Module):
    """The recommender as it is trained: every item of a history is predicted from those before it.

    Items that never occur in training are no negatives, and the softmax over codes leaves them out: otherwise the model
    would learn never to recommend a new item.

    Args:
        model: the recommender.
        negatives: number of items drawn for each batch, uniformly, that all of its targets are compared with.
        item_dropout: share of the items whose own embedding is left out in a step, so that codes and text must do.

    """

    known: Tensor
    paths: Tensor

    def __init__(self, model: Recommender, negatives: int, item_dropout: float) -> None:
        super().__init__()
        self.recommender, self.negatives, self.item_dropout = model, negatives, item_dropout
        known = model.known.nonzero().squeeze(1)
        self.register_buffer("known", known, persistent=False)
        self.trie: PrefixTrie | None = None
        if "codes" in model.config.outputs:
            self.trie = PrefixTrie(model.codes[known], model.config.sizes)
            paths = torch.zeros(len(model), len(model.config.sizes) + 1, dtype=torch.int64)
            paths[known] = self.trie.path(model.codes[known])
            self.register_buffer("paths", paths, persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The losses of sequences ``items (B, T + 1)``, -1 where one has ended, in nats an item."""
        items, model = batch["items"], self.recommender
        vectors = model.embed(items.clamp(min=0), self.item_dropout)
        there = items[:, 1:] >= 0
        states, target = model.encoder(vectors[:, :-1]), items[:, 1:][there]
        losses = {}
        if self.trie is not None:
            assert isinstance(model.decoder, CodeDecoder)
            self.trie = self.trie.to(target.device)
            scores = model.decoder.log_probability(states[there], model.codes[target], self.paths[target], self.trie)
            losses["codes"] = -scores.mean()
        if "items" in model.config.outputs:
            losses["items"] = self._sampled_softmax(states[there], target, vectors[:, 1:][there])
        return {"loss": torch.stack(list(losses.values())).sum(), **losses}

    def _sampled_softmax(self, states: Tensor, target: Tensor, vectors: Tensor) -> Tensor:
        """Cross-entropy of ``target (R,)``, whose vectors are ``(R, width)``, against shared negatives.

        It is corrected for how few of all items these are.
        """
        drawn = self.known[torch.randint(len(self.known), (self.negatives,), device=target.device)]
        model, correction = self.recommender, math.log(max(1, len(self.known) - 1) / self.negatives)
        right = (states * vectors).sum(-1, keepdim=True)
        wrong = states @ model.embed(drawn, self.item_dropout).T + correction
        wrong = wrong.masked_fill(drawn == target.unsqueeze(1), -torch.inf)
        return (torch.cat((right, wrong), dim=1).logsumexp(1) - right.squeeze(1)).mean()


class T5Losses(nn.Module):
    """The recommender with T5 as it is trained: the last item of a sequence is predicted from those before it.

    Args:
        model: the recommender.

    """

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.recommender = model

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss of sequences ``items (B, T + 1)``, -1 where one has ended, in nats an item."""
        items, model = batch["items"], self.recommender
        assert isinstance(model.decoder, T5Generator)
        last = (items >= 0).sum(1, keepdim=True) - 1
        target = model.codes[items.gather(1, last).squeeze(1)]
        histories = model.codes_of(items.scatter(1, last, -1)[:, :-1])
        loss = -model.decoder.log_probabilities(histories, target).sum(1).mean()
        return {"loss": loss, "codes": loss.detach()}
