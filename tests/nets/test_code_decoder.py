"""The code decoder: its search, its exact scores and its loss are one distribution over the tuples of a trie."""

import pytest
import torch

from ghrq.ids import PrefixTrie
from ghrq.nets.causal_encoder import CausalEncoder
from ghrq.nets.code_decoder import CodeDecoder

SIZES = (6, 5, 4, 3)


@pytest.fixture
def trie():
    codes = torch.stack([torch.randint(size, (80,)) for size in SIZES], dim=1).unique(dim=0)
    # A chain without branches: nothing is left to choose after its first code.
    codes = torch.cat((codes[codes[:, 0] != 5], torch.tensor([[5, 4, 3, 2]])))
    return PrefixTrie(codes, SIZES), codes


@pytest.fixture
def decoder():
    return CodeDecoder(8, SIZES, hidden=16).double()


def plain(decoder, state, code, codes):
    """One tuple, code after code, with sets instead of a trie."""
    total, prefix = 0.0, state
    for stage in range(len(SIZES)):
        logits = decoder.stages[stage](prefix)
        follow = {int(row[stage]) for row in codes if torch.equal(row[:stage], code[:stage])}
        total += logits[code[stage]] - logits[sorted(follow)].logsumexp(0)
        prefix = prefix + decoder.codes.weight[decoder.offsets[stage] + code[stage]]
    return total


def test_scores_of_tuples_are_those_of_a_plain_walk(decoder, trie):
    trie, codes = trie
    states = torch.randn(len(codes), 8, dtype=torch.float64)
    found = decoder.log_probability(states, codes, trie.path(codes), trie)
    wanted = torch.stack([plain(decoder, state, code, codes) for state, code in zip(states, codes, strict=True)])
    torch.testing.assert_close(found, wanted)


def test_all_tuples_have_probability_one_together_and_agree_with_single_ones(decoder, trie):
    trie, codes = trie
    states = torch.randn(5, 8, dtype=torch.float64)
    every = decoder.all_log_probabilities(states, trie)
    torch.testing.assert_close(every.exp().sum(1), torch.ones(5, dtype=torch.float64))
    owner = torch.arange(5).repeat_interleave(len(codes))
    path = trie.path(codes).repeat(5, 1)
    single = decoder.log_probability(states, codes.repeat(5, 1), path, trie, owner)
    torch.testing.assert_close(every[:, trie.path(codes)[:, -1]].flatten(), single)


@pytest.mark.parametrize("restricted", [False, True])
def test_a_beam_as_wide_as_the_catalogue_ranks_exactly(decoder, trie, restricted):
    trie, codes = trie
    states = torch.randn(7, 8, dtype=torch.float64)
    mask = torch.rand(7, len(codes)) < (0.3 if restricted else 2.0)
    found = decoder.search(states, len(codes), trie, trie.restrict(mask) if restricted else None)
    every = decoder.all_log_probabilities(states, trie)[:, trie.path(codes)[:, -1]].masked_fill(~mask, -torch.inf)
    ranked, order = every.sort(dim=1, descending=True)
    torch.testing.assert_close(found.scores, ranked)
    there = ~ranked.isneginf()
    assert torch.equal(trie.first_item(found.nodes)[there], order[there])
    assert torch.equal(found.tuples[there], codes[order][there])


def test_stages_without_a_choice_are_scored_too(decoder):
    # The first two stages decide: after them, and in a catalogue of one tuple everywhere, one code follows each prefix.
    for codes in (torch.tensor([[0, 1, 2, 0], [0, 2, 1, 1], [3, 0, 0, 2]]), torch.tensor([[5, 4, 3, 2]])):
        trie = PrefixTrie(codes, SIZES)
        states = torch.randn(2, 8, dtype=torch.float64)
        every = decoder.all_log_probabilities(states, trie)
        for state, scores in zip(states, every[:, trie.path(codes)[:, -1]], strict=True):
            torch.testing.assert_close(scores, torch.stack([plain(decoder, state, code, codes) for code in codes]))


def test_a_narrow_beam_finds_as_many_as_there_are(decoder, trie):
    trie, codes = trie
    states, mask = torch.randn(4, 8, dtype=torch.float64), torch.rand(4, len(codes)) < 0.2
    found = decoder.search(states, 6, trie, trie.restrict(mask))
    enough = mask.sum(1).clamp(max=6)
    assert torch.equal((~found.scores.isneginf()).sum(1), enough)
    items = trie.first_item(found.nodes)
    assert bool(mask.gather(1, items)[~found.scores.isneginf()].all())


def test_gradients_reach_every_part_that_chooses(decoder, trie):
    trie, codes = trie
    states = torch.randn(len(codes), 8, dtype=torch.float64, requires_grad=True)

    def loss(states):
        return decoder.log_probability(states, codes, trie.path(codes), trie).sum()

    assert torch.autograd.gradcheck(loss, states)


def test_states_do_not_see_later_items_and_padding():
    encoder = CausalEncoder(16, 10, 2, 4, 32, 0.5).eval()
    x = torch.randn(3, 10, 16)
    states = encoder(x)
    torch.testing.assert_close(encoder(x[:, :6]), states[:, :6])
    changed = x.clone()
    changed[:, 6:] = 0.0
    torch.testing.assert_close(encoder(changed)[:, :6], states[:, :6])
    assert not torch.allclose(encoder(changed)[:, 6:], states[:, 6:])
