"""From a state to the codes of an item, code after code: an MLP for each stage, and a softmax over a trie's children.

A code that no item continues with has no share of the probability. Where only one code follows a prefix, its
probability is 1 and nothing is computed: with semantic IDs that is so for most prefixes of two codes and more.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from ghrq.ids import PrefixTrie
from ghrq.ids.trie import ranges
from ghrq.nets.beam_search import Found, Prefixes, search
from ghrq.nets.mlp import MLP

# Pairs of a state and a prefix whose logits are in memory at once.
_PAIRS = 2**15


class CodeDecoder(nn.Module):
    """Probabilities of tuples after states ``(..., width)``: at each stage an MLP of the state plus the codes so far.

    Args:
        width: of the states.
        sizes: number of codes of each stage.
        hidden: the inner width of the MLPs.

    """

    def __init__(self, width: int, sizes: Sequence[int], hidden: int = 256) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.offsets = tuple(accumulate(self.sizes[:-1], initial=0))
        self.codes = nn.Embedding(sum(self.sizes), width)
        nn.init.normal_(self.codes.weight, std=0.1)
        self.stages = nn.ModuleList(MLP((width, hidden, size)) for size in self.sizes)

    def log_probability(self, states: Tensor, tuples: Tensor, paths: Tensor, trie: PrefixTrie) -> Tensor:
        """``(R,)``: log-probabilities of whole tuples.

        Args:
            states: ``(R, width)``.
            tuples: ``(R, N)`` int64, one for each state.
            paths: ``(R, N + 1)`` int64, their ``trie.path``.
            trie: the softmax of each stage is over the children that a prefix has in it.

        """
        total = states.new_zeros(len(states))
        prefix = states
        for stage in range(len(self.sizes)):
            rows = (trie.span(paths[:, stage], stage)[1] > 1).nonzero().squeeze(1)
            if len(rows):
                logits = self._log_softmax(prefix.index_select(0, rows), paths[rows, stage], stage, trie)
                total = total.index_add(0, rows, logits.gather(1, tuples[rows, stage : stage + 1]).squeeze(1))
            prefix = prefix + self._embedded(tuples[:, stage], stage)
        return total

    def search(self, states: Tensor, beam: int, trie: PrefixTrie, among: PrefixTrie | None = None) -> Found:
        """The ``beam`` most probable tuples of a trie after each of ``states (B, width)``.

        ``among``: ``trie`` restricted to the items that may be found. It changes no probability.
        """

        class Steps:
            prefix = states.unsqueeze(1)

            def __call__(steps, stage: int, prefixes: Prefixes | None) -> Tensor:  # noqa: N805
                if prefixes is None:
                    nodes = torch.zeros(len(states), 1, dtype=torch.int64, device=states.device)
                else:
                    before = steps.prefix.take_along_dim(prefixes.parent.unsqueeze(2), 1)
                    steps.prefix, nodes = before + self._embedded(prefixes.codes, stage - 1), prefixes.nodes
                total = self._after(steps.prefix.flatten(0, 1), nodes.flatten(), stage, trie).view(*nodes.shape, -1)
                return total if among is None else total.masked_fill_(~among.children(nodes, stage), -torch.inf)

        return search(Steps(), len(self.sizes), beam, trie)

    def all_log_probabilities(self, states: Tensor, trie: PrefixTrie) -> Tensor:
        """``(B, num_tuples)``: log-probabilities of every tuple of the trie, in its order; ``states (B, width)``."""
        total = states.new_zeros(len(states), 1)
        prefix = states.new_zeros(1, states.shape[1])
        for stage in range(len(self.sizes)):
            nodes = torch.arange(trie.num_nodes(stage), device=states.device)
            count = trie.span(nodes, stage)[1]
            parent = torch.repeat_interleave(count)  # of each node of the next depth
            total = total.index_select(1, parent)
            several = (count > 1).nonzero().squeeze(1)
            for part in several.split(max(1, _PAIRS // len(states))):
                owner, place = ranges(*trie.span(part, stage))
                pairs = (states.unsqueeze(1) + prefix[part]).flatten(0, 1)
                found = self._log_softmax(pairs, part.repeat(len(states)), stage, trie).view(len(states), len(part), -1)
                total.index_add_(1, place, found[:, owner, trie.last_code(place, stage + 1)])
            codes = trie.last_code(torch.arange(trie.num_nodes(stage + 1), device=states.device), stage + 1)
            prefix = prefix.index_select(0, parent) + self._embedded(codes, stage)
        return total

    def _after(self, prefix: Tensor, nodes: Tensor, stage: int, trie: PrefixTrie) -> Tensor:
        """Log-probabilities ``(R, K)`` of the codes of ``stage`` after nodes ``(R,)``; ``prefix (R, width)``."""
        total = prefix.new_full((len(nodes), self.sizes[stage]), -torch.inf)
        first, count = trie.span(nodes, stage)
        alone = (count == 1).nonzero().squeeze(1)
        total[alone, trie.last_code(first[alone], stage + 1)] = 0.0
        several = (count > 1).nonzero().squeeze(1)
        if len(several):
            total[several] = self._log_softmax(prefix[several], nodes[several], stage, trie)
        return total

    def _log_softmax(self, prefix: Tensor, nodes: Tensor, stage: int, trie: PrefixTrie) -> Tensor:
        """Log-probabilities ``(R, K)`` of the children of ``nodes (R,)``, minus infinity for all other codes."""
        logits = self.stages[stage](prefix)
        return logits.masked_fill(~trie.children(nodes, stage), -torch.inf).log_softmax(-1)

    def _embedded(self, codes: Tensor, stage: int) -> Tensor:
        return self.codes(codes + self.offsets[stage])
