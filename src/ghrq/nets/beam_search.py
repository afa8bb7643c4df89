"""The most probable code tuples of a model, found by beam search: one search, whatever the model."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ghrq.ids import PrefixTrie
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.system.checks import at_least


class Prefixes(NamedTuple):
    """The M prefixes of each of B rows that a search has kept."""

    parent: Tensor
    """``(B, M)`` int64: which of the prefixes of the step before each one extends."""
    codes: Tensor
    """``(B, M)`` int64: the last code of each."""
    nodes: Tensor
    """``(B, M)`` int64: their nodes in the trie; arbitrary without a trie and for prefixes that are not in it."""


Step = Callable[[int, Prefixes | None], Tensor]
"""``step(stage, prefixes)``: log-probabilities ``(B, M, K)`` of the codes of ``stage`` after the prefixes, minus
infinity for codes that may not follow. ``None`` are the empty prefixes of stage 0, where M is 1."""


class Found(NamedTuple):
    """The tuples of a search, the most probable first."""

    tuples: Tensor
    """``(B, beam, N)`` int64."""
    scores: Tensor
    """``(B, beam)`` log-probabilities; minus infinity where there are fewer tuples: these repeat the best one."""
    nodes: Tensor
    """``(B, beam)`` int64: the tuples as nodes of the trie; arbitrary without one."""


def search(step: Step, stages: int, beam: int, trie: PrefixTrie | None = None) -> Found:
    """Keep the ``beam`` most probable prefixes of each row after each of ``stages`` steps."""
    score: Tensor | None = None
    prefixes: Prefixes | None = None
    for stage in range(stages):
        total = step(stage, prefixes)
        if score is None or prefixes is None:
            score, node = total.new_zeros(len(total), 1), total.new_zeros(len(total), 1, dtype=torch.int64)
            tuples = node.new_empty(len(total), 1, 0)
        else:
            node = prefixes.nodes
        total = total.add_(score.unsqueeze(2))
        size = total.shape[2]
        score, place = total.flatten(1).topk(min(beam, size * total.shape[1]), dim=1)
        parent, codes = place // size, place % size
        tuples = torch.cat((tuples.take_along_dim(parent.unsqueeze(2), 1), codes.unsqueeze(2)), dim=2)
        node = node.gather(1, parent)
        prefixes = Prefixes(parent, codes, node if trie is None else trie.child(node, codes, stage)[0])
    assert score is not None
    assert prefixes is not None
    lost = score.isneginf()
    tuples = torch.where(lost.unsqueeze(2), tuples[:, :1], tuples)
    nodes = torch.where(lost, prefixes.nodes[:, :1], prefixes.nodes)
    missing = beam - score.shape[1]
    if missing:
        tuples = torch.cat((tuples, tuples[:, :1].expand(-1, missing, -1)), dim=1)
        nodes = torch.cat((nodes, nodes[:, :1].expand(-1, missing)), dim=1)
        score = torch.nn.functional.pad(score, (0, missing), value=-torch.inf)
    return Found(tuples, score, nodes)


@torch.no_grad()
def beam_search(
    model: TupleTranslator, source: Tensor, beam: int, trie: PrefixTrie | None = None, chunk: int = 128
) -> tuple[Tensor, Tensor]:
    """Tuples ``(B, beam, N)`` int64 and their log-probabilities ``(B, beam)``, the most probable first, all distinct.

    A log-probability is ``log p(tuple | source)`` of the model, with or without a trie. If there are fewer than
    ``beam`` tuples, the remaining entries repeat the best tuple with log-probability minus infinity. Dropout is off.

    Args:
        model: the translator.
        source: ``(B, N)`` int64.
        beam: how many prefixes of each source are kept after every stage.
        trie: if given, only tuples that it contains are found. Its stages may have fewer codes than the model's.
        chunk: sources processed at a time; memory is proportional to ``chunk·beam·K``.

    """
    at_least("beam", beam, 1, whole=True)
    at_least("chunk", chunk, 1, whole=True)
    if trie is not None and (
        trie.num_stages != model.num_stages
        or any(own > size for own, size in zip(trie.sizes, model.sizes, strict=True))
    ):
        raise ValueError(
            f"expected a trie of {model.num_stages} stages and {model.codebook_size} codes as the model has, "
            f"got {trie.num_stages} stages and {trie.codebook_size} codes"
        )
    training = model.training
    model.eval()
    try:
        parts = [search(_Translation(model, part, trie), model.num_stages, beam, trie) for part in source.split(chunk)]
    finally:
        model.train(training)
    return torch.cat([part.tuples for part in parts]), torch.cat([part.scores for part in parts])


class _Translation:
    """The steps of a translator. Its cache is never reordered: a mask selects the entries of each prefix."""

    def __init__(self, model: TupleTranslator, source: Tensor, trie: PrefixTrie | None) -> None:
        self._model, self._state, self._trie = model, model.begin(source), trie
        # At first the entries of the source.
        self._seen = torch.ones(len(source), 1, source.shape[1], dtype=torch.bool, device=source.device)

    def __call__(self, stage: int, prefixes: Prefixes | None) -> Tensor:
        seen = self._seen
        if prefixes is not None:
            seen = seen.take_along_dim(prefixes.parent.unsqueeze(2), 1)
        itself = torch.eye(seen.shape[1], dtype=torch.bool, device=seen.device).expand(len(seen), -1, -1)
        self._seen = torch.cat((seen, itself), dim=2)
        total = self._model.grow(self._state, None if prefixes is None else prefixes.codes, stage, self._seen)
        if self._trie is None:
            return total
        root = torch.zeros(len(seen), 1, dtype=torch.int64, device=seen.device)
        allowed = self._trie.children(root if prefixes is None else prefixes.nodes, stage)
        return total[:, :, : allowed.shape[2]].masked_fill(~allowed, -torch.inf)
