"""From the codes of a history to the codes of an item, code after code: the T5 of the transformers library."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ghrq.ids import PrefixTrie, Vocabulary
from ghrq.nets.beam_search import Found, Prefixes, search
from ghrq.nets.layer import check_sizes
from ghrq.system.errors import require


class T5Generator(nn.Module):
    """Probabilities of tuples after the codes of histories ``(B, T, N)``, -1 where a history has ended.

    Every code is a token, and each stage has tokens and an output layer of its own. The softmax of a stage is over all
    of its codes; a search finds tuples of a trie only. Beside :class:`ghrq.nets.code_decoder.CodeDecoder` it needs
    neither states nor an encoder of items, and some hundred times the computation.

    Args:
        sizes: number of codes of each stage.
        width: of the token vectors; a multiple of ``heads``.
        layers: of the encoder, and of the decoder.
        heads: of each attention.
        feedforward: the inner width of the feed-forward networks.
        dropout: of T5.

    """

    offsets: Tensor

    def __init__(
        self, sizes: Sequence[int], width: int, layers: int, heads: int, feedforward: int, dropout: float
    ) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads, dropout=dropout, layers=layers, feedforward=feedforward)
        vocabulary = Vocabulary.of(sizes, tie_break=False)
        self.sizes, self._start = vocabulary.sizes, vocabulary.special["bos"]
        self.register_buffer("offsets", torch.tensor(vocabulary.offsets), persistent=False)
        self.tokens = nn.Embedding(vocabulary.size, width)
        self.encoder = _stack(False, width, layers, heads, feedforward, dropout)
        self.decoder = _stack(True, width, layers, heads, feedforward, dropout)
        self.outputs = nn.ModuleList(nn.Linear(width, size) for size in self.sizes)

    def log_probabilities(self, histories: Tensor, tuples: Tensor) -> Tensor:
        """``(B, N)``: log-probabilities of each code of ``tuples (B, N)`` after the codes before it."""
        memory, there = self._encode(histories)
        states = self._decode(memory, there, tuples[:, :-1])
        scores = [
            output(state).float().log_softmax(-1).gather(1, codes.unsqueeze(1))
            for output, state, codes in zip(self.outputs, states.unbind(1), tuples.unbind(1), strict=True)
        ]
        return torch.cat(scores, dim=1)

    def search(self, histories: Tensor, beam: int, trie: PrefixTrie, among: PrefixTrie | None = None) -> Found:
        """The ``beam`` most probable tuples of ``among``, by default ``trie``, after each of ``histories``.

        Memory is proportional to ``B · beam · T · N · width``.
        """
        step = _Generation(self, *self._encode(histories), trie if among is None else among)
        return search(step, len(self.sizes), beam, trie)

    def all_log_probabilities(self, histories: Tensor, trie: PrefixTrie) -> Tensor:
        """``(B, num_tuples)``: log-probabilities of every tuple of the trie, in its order."""
        found = self.search(histories, trie.num_tuples, trie)
        return torch.empty_like(found.scores).scatter_(1, found.nodes, found.scores)

    def _encode(self, histories: Tensor) -> tuple[Tensor, Tensor]:
        """The states ``(B, T·N, width)`` of all codes, and which of them are there."""
        there = (histories >= 0).flatten(1)
        tokens = (histories.clamp(min=0) + self.offsets).flatten(1) * there  # token 0 is padding
        states = self.encoder(inputs_embeds=self.tokens(tokens), attention_mask=there.long()).last_hidden_state
        return states, there

    def _decode(self, memory: Tensor, there: Tensor, prefixes: Tensor) -> Tensor:
        """The states ``(B, m + 1, width)`` that predict the codes after ``prefixes (B, m)``, shorter ones too."""
        start = prefixes.new_full((len(prefixes), 1), self._start)
        tokens = torch.cat((start, prefixes + self.offsets[: prefixes.shape[1]]), dim=1)
        found = self.decoder(
            inputs_embeds=self.tokens(tokens),
            encoder_hidden_states=memory,
            encoder_attention_mask=there.long(),
            use_cache=False,
        )
        states: Tensor = found.last_hidden_state
        return states


class _Generation:
    """The steps of a search."""

    def __init__(self, model: T5Generator, memory: Tensor, there: Tensor, allowed: PrefixTrie) -> None:
        self._model, self._memory, self._there, self._allowed = model, memory, there, allowed
        self._prefixes = there.new_empty(len(there), 1, 0, dtype=torch.int64)

    def __call__(self, stage: int, prefixes: Prefixes | None) -> Tensor:
        nodes = self._prefixes.new_zeros(len(self._there), 1)
        if prefixes is not None:
            before = self._prefixes.take_along_dim(prefixes.parent.unsqueeze(2), 1)
            self._prefixes, nodes = torch.cat((before, prefixes.codes.unsqueeze(2)), dim=2), prefixes.nodes
        count = self._prefixes.shape[1]
        memory, there = (each.repeat_interleave(count, 0) for each in (self._memory, self._there))
        states = self._model._decode(memory, there, self._prefixes.flatten(0, 1))[:, -1]
        scores = self._model.outputs[stage](states).float().log_softmax(-1).view(*nodes.shape, -1)
        return scores.masked_fill(~self._allowed.children(nodes, stage), -torch.inf)


def _stack(decoder: bool, width: int, layers: int, heads: int, feedforward: int, dropout: float) -> Any:
    """The encoder or decoder of T5, which takes vectors: the token table is ours."""
    t5 = require("transformers.models.t5.modeling_t5", "rec")
    config = require("transformers", "rec").T5Config(
        vocab_size=1,
        d_model=width,
        d_kv=width // heads,
        d_ff=feedforward,
        num_layers=layers,
        num_heads=heads,
        dropout_rate=dropout,
    )
    config.is_decoder, config.is_encoder_decoder, config.use_cache = decoder, False, False
    stack = t5.T5Stack(config)
    stack.embed_tokens = None
    return stack
