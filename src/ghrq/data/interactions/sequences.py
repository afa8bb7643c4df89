"""Sequences of items, one for each user, and the split into train, validation and test."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ghrq.data.ragged import Ragged, last_of_each, ranges, starts
from ghrq.system.errors import UserError

LEAST_ITEMS = 3
"""Items that a user needs for :func:`leave_two_out`: one to learn from, one for validation, one for the test."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """Which items each of ``n`` users had, in time order, and a catalogue of ``m`` items."""

    users: list[str]
    """``(n,)`` keys."""
    items: list[str]
    """``(m,)`` keys; the number of an item is its place here. Items that nobody had may be among them."""
    starts: Tensor
    """int64 ``(n + 1,)``: the items of user u are ``sequence[starts[u] : starts[u + 1]]``."""
    sequence: Tensor
    """int64 ``(total,)``: numbers of items, user by user, the oldest first."""
    titles: list[str] | None = None
    """``(m,)``, to show; empty where an item has none."""
    vectors: Tensor | None = None
    """float32 ``(m, d)``: embeddings of the items, mostly of their texts."""
    texts: list[str] | None = None
    """``(m,)``: what describes each item; :func:`ghrq.data.text_vectors.embed_texts` makes vectors of it."""

    def __len__(self) -> int:
        """The number of users."""
        return len(self.users)

    @property
    def lengths(self) -> Tensor:
        """int64 ``(n,)``: the number of items of each user."""
        return self.starts.diff()

    def counts(self) -> Tensor:
        """int64 ``(m,)``: how often each item occurs."""
        return torch.bincount(self.sequence, minlength=len(self.items))

    def owners(self) -> Tensor:
        """int64 ``(total,)``: the user of each entry of :attr:`sequence`."""
        return torch.repeat_interleave(torch.arange(len(self)), self.lengths)

    def repeat_share(self) -> float:
        """How likely an item is one that its user had before: ``(repeats + 1) / (events + 2)``.

        The first item of a user is no event: it cannot be a repeat.
        """
        pairs = len(torch.unique(self.owners() * len(self.items) + self.sequence))
        events = len(self.sequence) - int((self.lengths > 0).sum())
        return (len(self.sequence) - pairs + 1) / (events + 2)

    def last(self, length: int) -> Tensor:
        """int64 ``(n, length)``: the last items of each user, the newest at the end, filled with -1 from the left."""
        return last_of_each(self.sequence, self.lengths, length)

    def take(self, users: Tensor) -> "Interactions":
        """The sequences of ``users``, int64 ``(k,)``; the catalogue stays."""
        taken = self.histories(users)
        return replace(
            self,
            users=[self.users[user] for user in users.tolist()],
            starts=torch.from_numpy(starts(taken.lengths.numpy())),
            sequence=taken.values,
        )

    def histories(self, users: Tensor) -> Ragged:
        """The whole sequences of ``users``, int64 ``(k,)``, alone; they are not padded to the longest."""
        return Ragged(self.sequence, self.lengths).take(users)

    def without_last(self, count: int) -> "Interactions":
        """The same without the last ``count`` items of each user; each has at least so many."""
        _, place = ranges(self.starts[:-1].numpy(), (self.lengths - count).numpy())
        shorter = torch.from_numpy(starts((self.lengths - count).numpy()))
        return replace(self, starts=shorter, sequence=self.sequence[torch.from_numpy(place)])


@dataclass(frozen=True, eq=False)
class Split:
    """What to learn from, and one target for each user to validate and to test with."""

    train: Interactions
    """Without the last two items of each user. It is the history for the target of :attr:`validation`."""
    validation: Tensor
    """int64 ``(n,)``: the last item but one of each user."""
    before_test: Interactions
    """Without the last item: train and the item of validation. It is the history for the target of :attr:`test`."""
    test: Tensor
    """int64 ``(n,)``: the last item of each user."""


def leave_two_out(data: Interactions) -> Split:
    """The last item of each user is for the test, the one before for validation, the others for training."""
    few = (data.lengths < LEAST_ITEMS).nonzero().flatten().tolist()
    if few:
        found = (
            f"{len(few):,} of {len(data):,} users have fewer than {LEAST_ITEMS} items, such as {data.users[few[0]]!r}"
        )
        raise UserError(f"{found}: leave them out, so that there is one item each for train, validation and test")
    if not len(data):
        raise UserError("there are no users, so there is nothing to split: check the input")
    ends = data.starts[1:]
    return Split(data.without_last(2), data.sequence[ends - 2], data.without_last(1), data.sequence[ends - 1])
