"""T5 over codes: probabilities, padding, and the search against scores of every tuple."""

import pytest
import torch

from ghrq.ids import PrefixTrie
from ghrq.nets.t5_generator import T5Generator

SIZES = (4, 3, 2)


def make():
    return T5Generator(SIZES, width=16, layers=2, heads=2, feedforward=32, dropout=0.1).eval()


def histories(count=5, length=4):
    return torch.stack([torch.randint(size, (count, length)) for size in SIZES], dim=2)


def every_tuple():
    return torch.cartesian_prod(*(torch.arange(size) for size in SIZES))


@torch.no_grad()
def scores(model, given, tuples):
    """``(B, n)``: log-probabilities of all ``tuples (n, 3)``, one after the other."""
    found = [model.log_probabilities(given, each.expand(len(given), -1)).sum(1) for each in tuples]
    return torch.stack(found, dim=1)


def test_the_probabilities_of_all_tuples_sum_to_one():
    model = make()
    torch.testing.assert_close(scores(model, histories(), every_tuple()).exp().sum(1), torch.ones(5))


def test_padding_and_the_order_of_items_are_seen_as_what_they_are():
    model, given = make(), histories()
    tuples = every_tuple()
    padded = torch.cat((given, torch.full((5, 3, 3), -1)), dim=1)
    torch.testing.assert_close(scores(model, padded, tuples), scores(model, given, tuples))
    assert not torch.allclose(scores(model, given.flip(1), tuples), scores(model, given, tuples), atol=1e-4)


@pytest.mark.parametrize("each_its_own", [False, True])
def test_a_search_finds_the_best_of_the_tuples_that_are_allowed(each_its_own):
    model, given = make(), histories()
    tuples = every_tuple()[torch.randperm(24)[:15]]
    trie = PrefixTrie(tuples, SIZES)
    mask = torch.rand((5, 15) if each_its_own else (15,)) < 0.6
    wanted = scores(model, given, tuples)
    with torch.no_grad():
        everything = model.all_log_probabilities(given, trie)
        found = model.search(given, 4, trie, trie.restrict(mask))
        wide = model.search(given, 15, trie, trie.restrict(mask))
    torch.testing.assert_close(everything[:, trie.path(tuples)[:, -1]], wanted)
    best = wanted.masked_fill(~mask, -torch.inf)
    assert torch.equal(trie.first_item(wide.nodes)[:, :4], best.topk(4).indices)
    assert bool(mask.expand(5, 15).gather(1, trie.first_item(found.nodes)).all())
