"""From single events (user, item, time) to :class:`Interactions`: duplicates, filters, order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.interactions.sequences import LEAST_ITEMS, Interactions
from ghrq.data.ragged import starts
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Items:
    """A catalogue of ``m`` items; see :class:`Interactions` for its fields."""

    keys: list[str]
    titles: list[str] | None = None
    vectors: Tensor | None = None
    texts: list[str] | None = None

    def take(self, rows: Ints) -> "Items":
        """The items of ``rows (k,)``."""

        def chosen(values: list[str]) -> list[str]:
            return [values[row] for row in rows.tolist()]

        return replace(
            self,
            keys=chosen(self.keys),
            titles=None if self.titles is None else chosen(self.titles),
            vectors=None if self.vectors is None else self.vectors[torch.from_numpy(rows)],
            texts=None if self.texts is None else chosen(self.texts),
        )


class Events(NamedTuple):
    """``N`` events in any order, ``(N,)`` each."""

    user: Ints
    """Numbers of users."""
    item: Ints
    """Numbers of items."""
    time: npt.NDArray[Any]
    """Whole or real numbers."""

    def take(self, which: npt.NDArray[Any]) -> "Events":
        """Some of them, by a mask ``(N,)`` or by their places."""
        return Events(*(column[which] for column in self))


def arrange(
    users: Sequence[str],
    items: Items,
    events: Events,
    *,
    least_of_user: int = LEAST_ITEMS,
    least_of_item: int = 0,
    keep_unseen: bool = True,
    name: str,
    progress: Progress,
) -> Interactions:
    """Put events into sequences: one for each user, by time.

    - Of equal events (user, item and time) the first counts; the same item at another time is a new event.
    - Events of a user at the same time stay in the order in which they come.
    - Users with fewer events than ``least_of_user`` are left out, then items with fewer than ``least_of_item``, and so
      on until all have enough (with 5 and 5: the 5-core).
    - Users keep their order, and so do items; items without an event stay only if ``keep_unseen``.

    ``name`` is what the events come from, for messages; ``progress`` is told how many were left out.
    """
    events = events.take(np.lexsort((events.time, events.user)))  # stable
    distinct = ~_repeated(events)
    core = _core(events, distinct, least_of_user, least_of_item)
    few = (
        f"a user with fewer than {least_of_user} events"
        + (least_of_item > 0) * f", or an item with fewer than {least_of_item} events"
    )
    for mask, reason in ((~distinct, "the same user, item and time as another row"), (distinct & ~core, few)):
        if mask.any():
            progress.note(f"{name}: left out {mask.sum():,} of {len(mask):,} rows: {reason}")
    events = events.take(core)
    if not len(events.user):
        also = f" and no item has {least_of_item}" if least_of_item else ""
        raise UserError(f"{name} is too small: no user has {least_of_user} events{also}, so nothing is left")
    present, user = _renumbered(events.user)
    catalogue, item = items, events.item
    if least_of_item or not keep_unseen:
        occurring, item = _renumbered(events.item)
        catalogue = items.take(occurring)
    return Interactions(
        [users[place] for place in present.tolist()],
        catalogue.keys,
        torch.from_numpy(starts(np.bincount(user))),
        torch.from_numpy(item),
        titles=catalogue.titles,
        vectors=catalogue.vectors,
        texts=catalogue.texts,
    )


def _repeated(events: Events) -> Mask:
    """``(N,)``: whether an equal event comes before, of events by user and time."""
    same = (events.user[1:] == events.user[:-1]) & (events.time[1:] == events.time[:-1])
    suspects = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = events.take(suspects)
    order = np.lexsort((some.item, some.time, some.user))
    some = some.take(order)
    repeated = np.zeros(len(events.user), dtype=bool)
    repeated[suspects[order[1:]]] = np.logical_and.reduce([column[1:] == column[:-1] for column in some])
    return repeated


def _core(events: Events, kept: Mask, of_user: int, of_item: int) -> Mask:
    """``(N,)``: the largest part of ``kept`` in which each user and each item has enough events."""
    while True:
        users, items = (np.bincount(column[kept], minlength=column.max(initial=0) + 1) for column in events[:2])
        smaller = kept & (users[events.user] >= of_user) & (items[events.item] >= of_item)
        if smaller.sum() == kept.sum():
            return smaller
        kept = smaller


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """The numbers that occur, ascending, and the place of each of ``numbers (N,)`` among them."""
    occurs = np.bincount(numbers) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]
