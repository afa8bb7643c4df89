"""The order of batches, and the weights that a validation keeps."""

from itertools import islice

import torch
from torch import nn

from ghrq.training.best import KeepBest
from ghrq.training.schedule import bucketed


def test_buckets_are_all_rows_once_an_epoch_and_about_equally_long():
    lengths = torch.randint(1, 60, (1000,))
    per_epoch = -(-1000 // 32)
    stream = bucketed(lengths, 32, 7, lambda rows: rows)
    for epoch in (0, 1):
        parts = list(islice(stream(epoch * per_epoch), per_epoch))
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(1000))
        spread = sum(int(lengths[part].max() - lengths[part].min()) for part in parts) / len(parts)
        assert spread < 10
        longest = torch.tensor([int(lengths[part].max()) for part in parts])
        assert not torch.equal(longest, longest.sort().values)  # short and long batches take turns
    first, second = (torch.cat(list(islice(stream(start), per_epoch))) for start in (0, per_epoch))
    assert not torch.equal(first, second)


def test_a_stream_goes_on_at_any_step():
    stream = bucketed(torch.randint(1, 9, (100,)), 16, 0, lambda rows: rows)
    whole = list(islice(stream(0), 20))
    for step in (3, 7, 12):
        for mine, wanted in zip(islice(stream(step), 20 - step), whole[step:], strict=True):
            assert torch.equal(mine, wanted)


def test_the_best_weights_stay_and_are_part_of_the_state():
    model = nn.Linear(2, 1)
    kept = KeepBest(nn.Sequential(model), model)
    for score, value in ((0.2, 1.0), (0.5, 2.0), (0.4, 3.0)):
        nn.init.constant_(model.weight, value)
        kept.validated(score)
    assert bool((kept.best.weight == 2.0).all())
    assert not any(parameter.requires_grad for parameter in kept.best.parameters())
    again = KeepBest(nn.Sequential(other := nn.Linear(2, 1)), other)
    again.load_state_dict(kept.state_dict())
    assert bool((again.best.weight == 2.0).all())
    again.validated(0.45)
    assert bool((again.best.weight == 2.0).all())
