"""Codes as tokens of a language model, and back."""

import json

import numpy as np
import pytest
import torch

from ghrq import Tokenizer
from ghrq.ids import PrefixTrie, TrieLogitsProcessor, Vocabulary, resolve_append
from ghrq.system.errors import UserError


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(num_stages=2, codebook_size=8).fit(np.random.default_rng(0).standard_normal((300, 4)))


def test_tokens_are_special_ones_then_the_stages_without_gaps():
    found = Vocabulary.of([5, 7, 3], tie_break=True)
    assert (found.sizes, found.offsets, found.tie_break, found.size) == ((5, 7, 3), (3, 8, 15), 3, 18)
    assert found.special == {"pad": 0, "bos": 1, "eos": 2}
    codes = torch.cartesian_prod(*map(torch.arange, found.sizes))
    tokens = found.tokens(codes)
    assert sorted(set(tokens.flatten().tolist()) | set(found.special.values())) == list(range(found.size))
    assert torch.equal(found.codes(tokens), codes)
    assert torch.equal(found.codes(found.tokens(codes[:, :2].numpy())), codes[:, :2])
    assert json.loads(json.dumps(found.to_dict()))["offsets"] == [3, 8, 15]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([[0, 0, 0], [0, 7, 0]], "row 1, stage 2: expected codes from 0 to 6, got 7: use the tokenizer"),
        ([[0, 0, 3]], "row 0, the tie-break token: expected codes from 0 to 2, got 3: raise .*tie_break_size_"),
        ([[-1, 0, 0]], "stage 1"),
        ([[0, 0, 0, 0]], r"shape \(n, 1 to 3\)"),
        ([[0.5]], "integer codes"),
        ([0], "got shape"),
    ],
)
def test_other_codes_are_refused(codes, message):
    with pytest.raises(UserError, match=message):
        Vocabulary.of([5, 7, 3], tie_break=True).tokens(torch.tensor(codes))


def test_other_tokens_are_refused():
    with pytest.raises(UserError, match="row 0, stage 2: expected tokens from 8 to 14, got 2"):
        Vocabulary.of([5, 7], tie_break=False).codes(torch.tensor([[3, 2]]))


def test_a_tokenizer_has_one_and_keeps_the_size_of_its_tie_break_token(tokenizer, tmp_path):
    assert tokenizer.vocabulary().sizes == (8, 8, 256)
    assert tokenizer.vocabulary("reassign") == Vocabulary.of([8, 8], tie_break=False)
    with pytest.raises(ValueError, match="collisions"):
        tokenizer.vocabulary("other")
    tokenizer.tie_break_size_ = 32
    tokenizer.save(tmp_path / "tok")
    loaded = Tokenizer.load(tmp_path / "tok").vocabulary()
    assert loaded == tokenizer.vocabulary()
    assert (loaded.tie_break, loaded.size) == (32, 3 + 8 + 8 + 32)


def test_the_numbers_fit_the_trie_and_the_processor(tokenizer):
    ids = resolve_append(tokenizer.encode(np.random.default_rng(0).standard_normal((300, 4))), 64)
    tokenizer.tie_break_size_ = 64
    words = tokenizer.vocabulary()
    trie = PrefixTrie(ids, words.sizes)
    processor = TrieLogitsProcessor(
        trie, eos_token=words.special["eos"], pad_token=words.special["pad"], offsets=words.offsets
    )
    start = torch.full((300, 1), words.special["bos"])
    assert torch.equal(processor.codes(torch.cat((start, words.tokens(ids)), dim=1)), ids)
    assert processor(start, torch.zeros(300, words.size)).shape == (300, words.size)


def test_more_items_than_the_tie_break_token_has_codes_are_an_error():
    codes = torch.tensor([[1, 2]] * 5 + [[0, 0]])
    assert resolve_append(codes, 5)[:, 2].tolist() == [0, 1, 2, 3, 4, 0]
    with pytest.raises(
        UserError, match=r"5 items share the tuple \[1, 2\], but .* has 4 codes: remove .*'reassign', or fit"
    ):
        resolve_append(codes, 4)


def test_full_tuples_and_the_items_that_overflow_them_are_counted():
    taken = torch.tensor([[1, 2, 0], [1, 2, 1], [0, 0, 2], [7, 7, 0]])
    codes = torch.tensor([[1, 2], [0, 0], [7, 7], [1, 2], [0, 0], [1, 2]])
    told = r"^4 of the 6 new items find no free token in 2 tuples, such as the tuple \[0, 0\]: the tie-break "
    with pytest.raises(UserError, match=told):
        resolve_append(codes, 3, taken=taken)
    assert resolve_append(codes, 5, taken=taken)[:, 2].tolist() == [2, 3, 1, 3, 4, 4]
