"""Networks over codes whose stages have sizes of their own."""

import pytest
import torch

from ghrq import ResidualQuantizer
from ghrq.ids import PrefixTrie
from ghrq.metrics.baselines import random_codes
from ghrq.nets.beam_search import beam_search
from ghrq.nets.rq_transformer import RQTransformer
from ghrq.nets.seq2seq import TupleTranslator

SIZES = [3, 6, 2]


def some_codes(*shape):
    return torch.stack([torch.randint(size, shape) for size in SIZES], dim=-1)


def test_a_translator_spreads_probability_over_the_codes_of_each_stage():
    model = TupleTranslator(3, SIZES, width=16, layers=1, heads=2, feedforward=16).eval()
    every = torch.cartesian_prod(*map(torch.arange, SIZES))
    source = some_codes(4)
    owner = torch.arange(4).repeat_interleave(len(every))
    log_probability = model.log_probability(source, every.repeat(4, 1), owner).view(4, -1)
    torch.testing.assert_close(log_probability.exp().sum(1), torch.ones(4))
    tuples, scores = beam_search(model, source, len(every))
    best = log_probability.argmax(1)
    assert torch.equal(tuples[:, 0], every[best])
    torch.testing.assert_close(scores[:, 0], log_probability.amax(1))
    known = beam_search(model, source, 2, PrefixTrie(every[:5], SIZES))[0]
    assert bool((known[:, 0].unsqueeze(1) == every[:5]).all(-1).any(1).all())
    with pytest.raises(ValueError, match="expected a trie"):
        beam_search(model, source, 2, PrefixTrie(every, [6, 6, 2]))
    with pytest.raises(ValueError, match="codes of stage 3"):
        model(source, source + torch.tensor([0, 0, 2]), torch.arange(4))


def test_a_prior_never_draws_a_code_that_a_stage_does_not_have():
    rq = ResidualQuantizer(4, SIZES, kind="calibrated").eval()
    model = RQTransformer(4, SIZES, 3, 2, width=16, spatial_layers=1, depth_layers=1, heads=2)
    codes = some_codes(5, 2)
    losses = model(rq.prefixes(codes), codes)
    losses.sum().backward()
    assert bool(losses.isfinite().all())
    for stage, size in enumerate(SIZES):
        assert not bool(model.heads.grad[stage, :, size:].any())
    share = model.eval().logits(rq.prefixes(codes)).softmax(-1)
    for stage, size in enumerate(SIZES):
        torch.testing.assert_close(share[:, :, stage, :size].sum(-1), torch.ones(5, 2))
    drawn = model.sample(200, rq)
    assert bool((drawn < torch.tensor(SIZES)).all())
    assert [len(drawn[..., stage].unique()) for stage in range(3)] == SIZES
    with pytest.raises(ValueError, match="as the model has"):
        model.sample(1, ResidualQuantizer(4, [6, 3, 2], kind="calibrated").eval())


def test_random_codes_are_distinct_and_within_the_sizes():
    codes = random_codes(36, SIZES, 3, seed=0)
    assert len(codes.unique(dim=0)) == 36
    assert codes.amax(0).tolist() == [2, 5, 1]
