"""Constrained generation: a language model can only generate the tuples of a catalogue."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ghrq.ids.trie import PrefixTrie
from ghrq.system.checks import at_least


class TrieLogitsProcessor:
    """Restrict ``transformers``' ``generate`` to the IDs of a trie, for whole batches and beams at once.

    Examples:
        >>> trie = ghrq.ids.PrefixTrie(torch.tensor([[0, 1], [0, 2], [3, 1]]), codebook_size=4)
        >>> processor = ghrq.ids.TrieLogitsProcessor(trie, eos_token=1, first_token=2)
        >>> scores = processor(torch.tensor([[0]]), torch.zeros(1, 10))  # what may come after the start token 0
        >>> scores.isfinite().nonzero()[:, 1].tolist()  # code 0 is token 2, code 3 is token 5
        [2, 5]

        In practice ``model.generate(**inputs, logits_processor=[processor], num_beams=20, max_new_tokens=2)``, then
        ``processor.codes(tokens)``.

    The i-th token after the prompt encodes the i-th code: ``offsets[i] + code``. After the last code only
    ``eos_token`` is allowed, after that only ``pad_token``. The options of ``generate`` for sampling (temperature,
    top_k, top_p) apply to the constrained scores.

    Args:
        trie: the tuples that may be generated.
        eos_token: ends an ID; it cannot be the token of a code.
        first_token: the token of code 0 of the first stage, the other stages following without gaps:
            ``offsets[i] = first_token + i·codebook_size`` where all stages have one size.
        offsets: the token of code 0 of each stage, if they are not contiguous.
        pad_token: follows ``eos_token``; by default ``eos_token`` again.
        prompt_length: number of tokens before the ID in each row: 1, the start token, for encoder-decoder models;
            ``input_ids.shape[1]`` of the call for decoder-only models (pad prompts on the left).

    """

    def __init__(
        self,
        trie: PrefixTrie,
        *,
        eos_token: int,
        first_token: int = 0,
        offsets: Sequence[int] | None = None,
        pad_token: int | None = None,
        prompt_length: int = 1,
    ) -> None:
        pad_token = eos_token if pad_token is None else pad_token
        starts = tuple(accumulate(trie.sizes[:-1], initial=first_token)) if offsets is None else tuple(offsets)
        if len(starts) != trie.num_stages:
            raise ValueError(f"expected an offset for each of {trie.num_stages} stages, got {len(starts)}: {starts}")
        numbers = {"eos_token": eos_token, "pad_token": pad_token, "prompt_length": prompt_length}
        for name, number in [*numbers.items(), *(("an offset", start) for start in starts)]:
            at_least(name, number, 0, whole=True)
        for stage, (start, size) in enumerate(zip(starts, trie.sizes, strict=True)):
            if start <= eos_token < start + size:
                raise ValueError(
                    f"eos_token={eos_token} is the token of code {eos_token - start} of stage {stage} "
                    f"(tokens {start} to {start + size - 1}): generation would end there. Move the offsets"
                )
        self.trie = trie
        self.offsets, self.eos_token, self.pad_token, self.prompt_length = starts, eos_token, pad_token, prompt_length
        self._tokens = 1 + max(
            eos_token, pad_token, *(start + size - 1 for start, size in zip(starts, trie.sizes, strict=True))
        )

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """``scores (B, vocabulary)`` after ``input_ids (B, length)``, minus infinity for forbidden tokens.

        A beam outside the trie (there were fewer IDs than beams) has no token that can come next.
        """
        depth = input_ids.shape[1] - self.prompt_length
        if depth < 0:
            raise ValueError(f"expected prompts of {self.prompt_length} tokens, got {input_ids.shape[1]}")
        if scores.shape[1] < self._tokens:
            raise ValueError(
                f"the model has a vocabulary of {scores.shape[1]} tokens, the IDs need {self._tokens}: "
                "give the model a larger vocabulary, or check the offsets"
            )
        result, trie = torch.full_like(scores, -torch.inf), self.trie.to(scores.device)
        node, known = trie.walk(self._codes(input_ids, min(depth, trie.num_stages)))
        if not known.any():
            raise ValueError(
                f"no row begins an ID after its first {self.prompt_length} tokens: is prompt_length right? "
                "It is 1 for encoder-decoder models, the length of the prompts for decoder-only models"
            )
        if depth >= trie.num_stages:
            token = self.eos_token if depth == trie.num_stages else self.pad_token
            result[:, token] = scores[:, token]
            return result
        stage = slice(self.offsets[depth], self.offsets[depth] + trie.sizes[depth])
        allowed = trie.children(node, depth) & known.unsqueeze(1)
        result[:, stage] = scores[:, stage].masked_fill(~allowed, -torch.inf)
        return result

    def codes(self, sequences: Tensor) -> Tensor:
        """The IDs in the output of ``generate``: ``(B, length)``, at least prompts and IDs -> ``(B, num_stages)``.

        Raises:
            ValueError: if a row is not an ID of the trie.

        """
        length = self.prompt_length + self.trie.num_stages
        if sequences.dim() != 2 or sequences.shape[1] < length:
            raise ValueError(
                f"expected sequences of at least {length} tokens (a prompt of {self.prompt_length}, then "
                f"{self.trie.num_stages} codes), got shape {tuple(sequences.shape)}: raise max_new_tokens"
            )
        codes = self._codes(sequences, self.trie.num_stages)
        known = self.trie.to(codes.device).walk(codes)[1]
        if not known.all():
            row = int((~known).nonzero()[0])
            raise ValueError(
                f"row {row} has codes {codes[row].tolist()} after its first {self.prompt_length} tokens, which is no "
                "ID: check prompt_length, and ask for no more sequences than there are IDs"
            )
        return codes

    def _codes(self, sequences: Tensor, depth: int) -> Tensor:
        tokens = sequences[:, self.prompt_length : self.prompt_length + depth]
        return tokens - torch.tensor(self.offsets[:depth], dtype=tokens.dtype, device=tokens.device)
