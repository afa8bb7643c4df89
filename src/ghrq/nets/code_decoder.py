"""From a state to the codes of an item, code after code: an MLP for each stage, and a softmax over a trie's children.

A code that no item continues with has no share of the probability. Where only one code follows a prefix, its
probability is 1 and nothing is computed: with semantic IDs that is so for most prefixes of two codes and more.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

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

    def log_probability(
        self, states: Tensor, tuples: Tensor, paths: Tensor, trie: PrefixTrie, owner: Tensor | None = None
    ) -> Tensor:
        """``(R,)``: log-probabilities of whole tuples.

        Args:
            states: ``(B, width)``.
            tuples: ``(R, N)`` int64.
            paths: ``(R, N + 1)`` int64, their ``trie.path``.
            trie: the softmax of each stage is over the children that a prefix has in it.
            owner: ``(R,)`` int64, the state that each tuple follows: several tuples of a state share their prefixes. By
                default there is one for each state.

        """
        total = states.new_zeros(len(tuples))
        prefix = states if owner is None else states.index_select(0, owner)
        for stage in range(len(self.sizes)):
            rows = (trie.span(paths[:, stage], stage)[1] > 1).nonzero().squeeze(1)
            if len(rows):
                shown, which = rows, torch.arange(len(rows), device=rows.device)
                if owner is not None:
                    pairs, which = torch.unique(
                        owner[rows] * trie.num_nodes(stage) + paths[rows, stage], return_inverse=True
                    )
                    shown = rows.new_empty(len(pairs)).scatter_(0, which, rows)
                logits = self.stages[stage](prefix.index_select(0, shown))
                # Of the first stage all have the same children.
                nodes = paths[shown, stage] if stage else paths[:1, 0]
                scores = logits.masked_fill(~trie.children(nodes, stage), -torch.inf).log_softmax(-1)
                total = total.index_add(0, rows, scores[which, tuples[rows, stage]])
            prefix = prefix + self._embedded(tuples[:, stage], stage)
        return total

    def search(self, states: Tensor, beam: int, trie: PrefixTrie, among: PrefixTrie | None = None) -> Found:
        """The ``beam`` most probable tuples of a trie after each of ``states (B, width)``.

        ``among``: ``trie`` restricted to the items that may be found. It changes no probability.
        """
        return search(_Generation(self, states, trie, among), len(self.sizes), beam, trie)

    def all_log_probabilities(self, states: Tensor, trie: PrefixTrie) -> Tensor:
        """``(B, num_tuples)``: log-probabilities of every tuple of the trie, in its order; ``states (B, width)``."""
        total = states.new_zeros(len(states), 1)
        prefix = states.new_zeros(1, states.shape[1])
        for stage in range(len(self.sizes)):
            count = trie.span(torch.arange(trie.num_nodes(stage), device=states.device), stage)[1]
            parent = torch.repeat_interleave(count)  # of each node of the next depth
            total = total.index_select(1, parent)
            several = (count > 1).nonzero().squeeze(1)
            # An empty tensor would be split into one empty part.
            for nodes in several.split(max(1, _PAIRS // len(states))) if len(several) else ():
                pairs = (states + prefix[nodes].unsqueeze(1)).flatten(0, 1)
                found = self._children(pairs, nodes.repeat_interleave(len(states)), stage, trie)
                row = found.owner % len(states)
                total.index_put_((row, found.node), found.scores, accumulate=True)
            codes = trie.last_code(torch.arange(trie.num_nodes(stage + 1), device=states.device), stage + 1)
            prefix = prefix.index_select(0, parent) + self._embedded(codes, stage)
        return total

    def logits(self, states: Tensor, codes: Tensor) -> list[Tensor]:
        """For each stage ``(B, size)``: the logits of its codes after ``states (B, width)`` and the codes before it.

        ``codes (B, num_stages - 1)`` int64. No trie is asked.
        """
        found = [self.stages[0](states)]
        for stage, mlp in enumerate(self.stages[1:]):
            states = states + self._embedded(codes[:, stage], stage)
            found.append(mlp(states))
        return found

    def _children(self, prefix: Tensor, nodes: Tensor, stage: int, trie: PrefixTrie) -> "_Children":
        """The children of ``nodes (R,)`` and their log-probabilities; ``prefix (R, width)`` are states plus codes."""
        first, count = trie.span(nodes, stage)
        owner, node = ranges(first, count)
        logits = self.stages[stage](prefix)
        scores = logits.view(-1).gather(0, owner * self.sizes[stage] + trie.last_code(node, stage + 1))
        highest = torch.segment_reduce(scores.detach(), "max", lengths=count)
        scores = scores - highest.index_select(0, owner)
        sums = scores.new_zeros(len(nodes)).index_add(0, owner, scores.exp())
        scores = scores - sums.log().index_select(0, owner)
        return _Children(owner, node, scores)

    def _embedded(self, codes: Tensor, stage: int) -> Tensor:
        return self.codes(codes + self.offsets[stage])


class _Children(NamedTuple):
    """The children of R prefixes, one after the other."""

    owner: Tensor
    """Which prefix each is a child of, from 0 to below R."""
    node: Tensor
    """In the trie, of the depth after the prefixes'."""
    scores: Tensor
    """Log-probabilities; those of the children of one prefix are a softmax."""


class _Generation:
    """The steps of a search: every prefix is a state plus the embeddings of its codes."""

    def __init__(self, decoder: CodeDecoder, states: Tensor, trie: PrefixTrie, among: PrefixTrie | None) -> None:
        self._decoder, self._prefix, self._trie, self._among = decoder, states.unsqueeze(1), trie, among

    def __call__(self, stage: int, prefixes: Prefixes | None) -> Tensor:
        decoder, trie, size = self._decoder, self._trie, self._decoder.sizes[stage]
        count, width, device = *self._prefix.shape[:2], self._prefix.device
        if prefixes is None:
            nodes = torch.zeros(count, 1, dtype=torch.int64, device=device)
        else:
            row = torch.arange(0, count * width, width, device=device).unsqueeze(1) + prefixes.parent
            before, nodes = self._prefix.flatten(0, 1)[row], prefixes.nodes
            self._prefix = before + decoder._embedded(prefixes.codes, stage - 1)
        first, children = trie.span(nodes.flatten(), stage)
        total = self._prefix.new_full((nodes.numel() * size,), -torch.inf)
        alone = (children == 1).nonzero().squeeze(1)
        place = alone * size + trie.last_code(first[alone], stage + 1)
        total[place] = self._scores(total.new_zeros(len(alone)), alone, first[alone], nodes, stage)
        several = (children > 1).nonzero().squeeze(1)
        if len(several):
            prefix = self._prefix.flatten(0, 1).index_select(0, several)
            found = decoder._children(prefix, nodes.flatten()[several], stage, trie)
            owner = several[found.owner]
            place = owner * size + trie.last_code(found.node, stage + 1)
            total[place] = self._scores(found.scores, owner, found.node, nodes, stage)
        return total.view(*nodes.shape, size)

    def _scores(self, scores: Tensor, owner: Tensor, child: Tensor, nodes: Tensor, stage: int) -> Tensor:
        """``scores (R,)`` of the nodes ``child``, minus infinity for those without any item that may be found."""
        if self._among is None:
            return scores
        return scores.masked_fill(~self._among.has_items(child, owner // nodes.shape[1], stage + 1), -torch.inf)
