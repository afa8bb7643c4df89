"""The most probable target tuples of a translator, found by beam search."""

import torch
from torch import Tensor

from ghrq.ids import PrefixTrie
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.system.checks import at_least


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
        trie: if given, only tuples that it contains are found.
        chunk: sources processed at a time; memory is proportional to ``chunk·beam·K``.

    """
    at_least("beam", beam, 1, whole=True)
    at_least("chunk", chunk, 1, whole=True)
    if trie is not None and (trie.num_stages, trie.codebook_size) != (model.num_stages, model.codebook_size):
        raise ValueError(
            f"expected a trie of {model.num_stages} stages and {model.codebook_size} codes as the model has, "
            f"got {trie.num_stages} stages and {trie.codebook_size} codes"
        )
    training = model.training
    model.eval()
    try:
        parts = [_search(model, part, beam, trie) for part in source.split(chunk)]
    finally:
        model.train(training)
    return torch.cat([tuples for tuples, _ in parts]), torch.cat([score for _, score in parts])


def _search(model: TupleTranslator, source: Tensor, beam: int, trie: PrefixTrie | None) -> tuple[Tensor, Tensor]:
    count, stages = source.shape
    state = model.begin(source)
    score = state.table.new_zeros(count, 1)
    tuples = source.new_empty(count, 1, 0)
    node = source.new_zeros(count, 1)
    # The cache is never reordered: this mask selects the entries of each prefix, at first those of the source.
    seen = torch.ones(count, 1, stages, dtype=torch.bool, device=source.device)
    for stage in range(stages):
        itself = torch.eye(seen.shape[1], dtype=torch.bool, device=seen.device).expand(count, -1, -1)
        seen = torch.cat((seen, itself), dim=2)
        total = score.unsqueeze(2) + model.grow(state, tuples[:, :, -1] if stage else None, stage, seen)
        if trie is not None:
            total.masked_fill_(~trie.children(node, stage), -torch.inf)
        size = total.shape[2]
        score, place = total.flatten(1).topk(min(beam, size * total.shape[1]), dim=1)
        parent, code = place // size, place % size
        tuples, seen = (values.take_along_dim(parent.unsqueeze(2), 1) for values in (tuples, seen))
        tuples = torch.cat((tuples, code.unsqueeze(2)), dim=2)
        if trie is not None:
            node, _ = trie.child(node.gather(1, parent), code, stage)
    tuples = torch.where(score.isneginf().unsqueeze(2), tuples[:, :1], tuples)
    missing = beam - score.shape[1]
    if missing:
        tuples = torch.cat((tuples, tuples[:, :1].expand(-1, missing, -1)), dim=1)
        score = torch.nn.functional.pad(score, (0, missing), value=-torch.inf)
    return tuples, score
