"""Sequences of items and the split that leaves two of them out."""

import pytest
import torch

from ghrq.data.interactions import Interactions, leave_two_out
from ghrq.system.errors import UserError


def interactions(*sequences, items=10):
    lengths = torch.tensor([0, *map(len, sequences)])
    flat = torch.tensor([item for sequence in sequences for item in sequence], dtype=torch.int64)
    return Interactions(
        [f"u{i}" for i in range(len(sequences))], [str(i) for i in range(items)], lengths.cumsum(0), flat
    )


def lists(data):
    return [part.tolist() for part in data.sequence.split(data.lengths.tolist())]


def test_the_last_two_items_are_left_out():
    split = leave_two_out(interactions([1, 2, 3], [4, 5, 6, 7, 8], [9, 9, 9, 0]))
    assert lists(split.train) == [[1], [4, 5, 6], [9, 9]]
    assert lists(split.before_test) == [[1, 2], [4, 5, 6, 7], [9, 9, 9]]
    assert split.validation.tolist() == [2, 7, 9]
    assert split.test.tolist() == [3, 8, 0]


def test_lengths_counts_and_owners():
    data = interactions([1, 2, 1], [], [3])
    assert data.lengths.tolist() == [3, 0, 1]
    assert data.counts().tolist() == [0, 2, 1, 1, *[0] * 6]
    assert data.owners().tolist() == [0, 0, 0, 2]


def test_the_share_of_repeats():
    assert interactions([1, 2, 1, 1], [], [3], [2, 1]).repeat_share() == (2 + 1) / (4 + 2)
    assert interactions([1, 2, 3], [1, 2]).repeat_share() == 1 / 5
    assert interactions([1]).repeat_share() == 0.5


def test_the_last_items_are_filled_from_the_left():
    data = interactions([1, 2, 3], [], [4])
    assert data.last(2).tolist() == [[2, 3], [-1, -1], [-1, 4]]
    assert data.last(4).tolist() == [[-1, 1, 2, 3], [-1, -1, -1, -1], [-1, -1, -1, 4]]
    assert interactions([]).last(2).tolist() == [[-1, -1]]


def test_some_users_can_be_taken():
    data = interactions([1, 2, 3], [], [4, 4])
    some = data.take(torch.tensor([2, 1, 0, 2]))
    assert some.users == ["u2", "u1", "u0", "u2"]
    assert some.items == data.items
    assert lists(some) == [[4, 4], [], [1, 2, 3], [4, 4]]
    assert some.starts.dtype == torch.int64
    assert lists(data.take(torch.tensor([], dtype=torch.int64))) == []


def test_users_with_too_few_items_are_named():
    with pytest.raises(UserError, match=r"2 of 3 users have fewer than 3 items, such as 'u1'"):
        leave_two_out(interactions([1, 2, 3], [1, 2], []))
    with pytest.raises(UserError, match="no users"):
        leave_two_out(interactions())
