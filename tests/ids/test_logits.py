"""The constraint inside transformers' own generate, on tiny models with random weights."""

import subprocess
import sys

import pytest
import torch

from ghrq.ids import PrefixTrie
from ghrq.ids.logits import TrieLogitsProcessor

transformers = pytest.importorskip("transformers")

SIZES = (6, 6, 3)
PAD, EOS, FIRST = 0, 1, 2
VOCABULARY = FIRST + sum(SIZES) + 4  # some tokens are nobody's
NEW = len(SIZES) + 3  # room for the end and more


@pytest.fixture
def catalogue():
    codes = torch.stack([torch.randint(size, (25,)) for size in SIZES], dim=1)
    return {tuple(row) for row in codes.tolist()}, PrefixTrie(codes, SIZES)


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY}
    tokens = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **tokens)).eval()


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": VOCABULARY}
    tokens = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": EOS}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens)).eval()


WAYS = {
    "greedy": {"do_sample": False},
    "beams": {"num_beams": 5, "num_return_sequences": 5, "do_sample": False},
    "sampling": {"do_sample": True, "num_return_sequences": 20},
    "sampling from few": {"do_sample": True, "top_k": 2, "top_p": 0.5, "num_return_sequences": 5},
    "sampling beams": {"do_sample": True, "num_beams": 5, "num_return_sequences": 5},
}


def generate(model, processor, **how):
    inputs = torch.randint(FIRST, VOCABULARY, (4, 7))
    return model.generate(
        input_ids=inputs,
        attention_mask=torch.ones_like(inputs),
        logits_processor=transformers.LogitsProcessorList([processor]),
        max_new_tokens=NEW,
        **how,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("make", "prompt_length"), [(t5, 1), (gpt2, 7)])
def test_every_id_that_comes_out_is_in_the_catalogue(catalogue, make, prompt_length, how):
    known, trie = catalogue
    processor = TrieLogitsProcessor(trie, eos_token=EOS, pad_token=PAD, first_token=FIRST, prompt_length=prompt_length)
    sequences = generate(make(), processor, **how)
    assert len(sequences) == 4 * how.get("num_return_sequences", 1)
    assert {tuple(row) for row in processor.codes(sequences).tolist()} <= known
    rest = sequences[:, prompt_length + len(SIZES) :]
    assert bool((rest[:, 0] == EOS).all())
    assert bool((rest[:, 1:] == PAD).all())


@pytest.mark.slow
def test_without_the_constraint_the_models_know_no_id(catalogue):
    known, trie = catalogue
    processor = TrieLogitsProcessor(trie, eos_token=EOS, first_token=FIRST)
    sequences = generate(t5(), lambda _, scores: scores, do_sample=True, num_return_sequences=20, min_new_tokens=NEW)
    assert (
        not {tuple(row) for row in (sequences[:, 1 : 1 + len(SIZES)] - torch.tensor(processor.offsets)).tolist()}
        <= known
    )
    with pytest.raises(ValueError, match="which is no ID"):
        processor.codes(sequences)


@pytest.mark.slow
def test_beams_are_the_most_probable_ids(catalogue):
    # As many beams as items leave nothing out: the order must be that of the model's own probabilities.
    known, trie = catalogue
    model, source = t5(), torch.randint(FIRST, VOCABULARY, (1, 7))
    processor = TrieLogitsProcessor(trie, eos_token=EOS, first_token=FIRST)
    found = model.generate(
        input_ids=source,
        logits_processor=[processor],
        num_beams=len(known),
        num_return_sequences=len(known),
        max_new_tokens=len(SIZES),
        do_sample=False,
    )
    codes = processor.codes(found)
    assert {tuple(row) for row in codes.tolist()} == known
    labels = found[:, 1:].contiguous()
    logits = model(input_ids=source.expand(len(known), -1), labels=labels).logits.log_softmax(-1)
    score = logits.gather(2, labels.unsqueeze(2)).sum((1, 2))
    assert bool((score.diff() <= 1e-5).all())


def test_fewer_ids_than_beams(catalogue):
    trie = PrefixTrie(torch.tensor([[0, 1, 2], [0, 1, 1], [5, 5, 0]]), SIZES)
    processor = TrieLogitsProcessor(trie, eos_token=EOS, pad_token=PAD, first_token=FIRST)
    codes = processor.codes(generate(t5(), processor, num_beams=8, num_return_sequences=8, do_sample=False))
    rows = {tuple(row) for row in codes.tolist()}
    assert rows == {(0, 1, 2), (0, 1, 1), (5, 5, 0)}


def test_scores_of_allowed_tokens_stay_and_all_others_are_minus_infinity(catalogue):
    known, trie = catalogue
    offsets = (3, 3, 12)  # the first two stages share their tokens
    processor = TrieLogitsProcessor(trie, eos_token=EOS, pad_token=PAD, offsets=offsets, prompt_length=2)
    for depth in range(len(SIZES)):
        codes = torch.stack([torch.randint(size, (50,)) for size in SIZES[:depth]] or [torch.zeros(50)], dim=1)
        codes = codes[:, :depth].long()
        codes[0] = torch.tensor(next(iter(known)))[:depth]
        tokens = torch.cat((torch.randint(20, (50, 2)), codes + torch.tensor(offsets[:depth], dtype=torch.int64)), 1)
        scores = torch.randn(50, VOCABULARY)
        result = processor(tokens, scores)
        for row, prefix in enumerate(map(tuple, codes.tolist())):
            expected = {offsets[depth] + item[depth] for item in known if item[:depth] == prefix}
            assert set(result[row].isfinite().nonzero().flatten().tolist()) == expected
        assert torch.equal(result[result.isfinite()], scores[result.isfinite()])
    whole = torch.randint(20, (5, 2 + len(SIZES)))
    whole[0, 2:] = torch.tensor(next(iter(known))) + torch.tensor(offsets)
    scores = torch.randn(5, VOCABULARY)
    for tokens, only in ((whole, EOS), (torch.cat((whole, whole[:, :1]), 1), PAD)):
        result = processor(tokens, scores)
        assert torch.equal(result[:, only], scores[:, only])
        assert int(result.isfinite().sum()) == 5


def test_stages_follow_each_other_by_default(catalogue):
    _, trie = catalogue
    assert TrieLogitsProcessor(trie, eos_token=EOS, first_token=10).offsets == (10, 16, 22)


def test_mistakes_are_named(catalogue):
    _, trie = catalogue
    with pytest.raises(ValueError, match="code 4 of stage 1"):
        TrieLogitsProcessor(trie, eos_token=12, first_token=2)
    with pytest.raises(ValueError, match="each of 3 stages"):
        TrieLogitsProcessor(trie, eos_token=1, offsets=(2, 8))
    with pytest.raises(ValueError, match="an offset must be 0 or above"):
        TrieLogitsProcessor(trie, eos_token=1, offsets=(2, 8, -4))
    processor = TrieLogitsProcessor(trie, eos_token=EOS, first_token=FIRST)
    with pytest.raises(ValueError, match="vocabulary of 10 tokens, the IDs need 17"):
        processor(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 10))
    with pytest.raises(ValueError, match="is prompt_length right"):
        processor(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, VOCABULARY))
    with pytest.raises(ValueError, match=r"row 0 has codes \[-2, -8, -14\] after its first 1 tokens.*prompt_length"):
        processor.codes(torch.zeros(2, 7, dtype=torch.int64))
    with pytest.raises(ValueError, match="is prompt_length right"):  # not an end token, as if the prompt were an ID
        generate(gpt2(), processor)
    with pytest.raises(ValueError, match="raise max_new_tokens"):
        processor.codes(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="prompts of 9 tokens, got 7"):
        generate(gpt2(), TrieLogitsProcessor(trie, eos_token=EOS, first_token=FIRST, prompt_length=9))


@pytest.mark.slow
def test_it_needs_no_transformers_to_import():
    program = "import sys, ghrq.ids; sys.exit(any(m in sys.modules for m in ('transformers', 'pyarrow', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
