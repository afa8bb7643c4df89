"""How a catalogue changes: new items get IDs, others are retired or come back, and no published ID moves.

It is decided here which rows stay, leave, return or are new, and which IDs the new ones get. Arrays are worked on as a
whole, by sorted tuples and by Arrow's look-up of ids, so the time is that of a few sorts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ghrq.ids.collisions import Policy, VectorsOf, resolve_append, resolve_reassign
from ghrq.ids.tuples import Codes, count_distinct, tuple_keys
from ghrq.system.errors import UserError, counted, require

if TYPE_CHECKING:
    from ghrq.quantizer import ResidualQuantizer

Rows = npt.NDArray[np.int64]


class Section(NamedTuple):
    """The items in use, or the retired ones."""

    ids: Callable[[], Iterable[Any]]
    """Returns the ids in order, as Arrow arrays of any lengths."""
    codes: npt.NDArray[Any]
    """``(m, width)`` integers: their IDs."""


class NewItems(NamedTuple):
    """The items of a new table: some may be in the catalogue already."""

    ids: Any
    """``(k,)`` an Arrow array."""
    codes: npt.NDArray[Any]
    """``(k, num_stages)`` integers: the codes of their vectors."""
    vectors_of: VectorsOf
    """Returns the quantizer's input of some rows, see :func:`ghrq.ids.collisions.resolve_reassign`."""


class Rules(NamedTuple):
    """How new items get their IDs."""

    policy: Policy
    quantizer: "ResidualQuantizer"
    tie_break: int
    """Number of codes of the tie-break token."""
    reuse: bool = False
    """Whether IDs of items that were retired before may be given again."""


@dataclass(frozen=True)
class Growth:
    """What becomes of a catalogue. Rows count from 0 in each section, and in the new table."""

    kept: npt.NDArray[np.bool_]
    """``(m,)`` which items in use stay so."""
    back: Rows
    """Retired items that come back, with their old IDs."""
    fresh: Rows
    """Rows of the new table that get a new ID."""
    codes: npt.NDArray[Any]
    """``(f, width)``: these IDs."""
    leaving: Rows
    """Items in use that become retired."""
    still: npt.NDArray[np.bool_]
    """``(r,)`` which retired items stay so; the others came back, or their ID was given to another item."""
    known: int
    """Items of the new table that were in use already: they keep their IDs."""
    changed: Rows
    """Rows of the new table whose vector has other codes than when the item was published: it keeps its ID."""
    same: int
    """Items of the new table whose vector has the codes that were published."""

    @property
    def nothing(self) -> bool:
        """Whether the catalogue stays as it is."""
        return bool(self.kept.all() and self.still.all() and not len(self.back) and not len(self.fresh))


def policy_of(manifest: dict[str, Any], codes: npt.NDArray[Any], stages: int) -> Policy:
    """How collisions were resolved: what the manifest says; without one, what the IDs ``(m, width)`` look like."""
    if "collisions" in manifest:
        named: Policy = manifest["collisions"]
        return named
    if codes.shape[1] == stages + 1:
        return "append"
    return "reassign" if count_distinct(codes) == len(codes) else "none"


def grow(live: Section, retired: Section, new: NewItems, retire: Any, rules: Rules) -> Growth:
    """Plan the change of a catalogue.

    Args:
        live: the items in use.
        retired: the retired ones.
        new: the items that should be in use, whether they are already, come back, or are new.
        retire: ids ``(l,)``, an Arrow array, of items to retire; those that are retired already stay so.
        rules: how new items get their IDs.

    Raises:
        UserError: if an id to retire is unknown or also in ``new``, if published IDs collide, or if none is free.

    """
    if rules.policy != "none":
        _check_distinct(_joined(live.codes, retired.codes))
    at_live, at_retired = (places(section.ids(), new.ids) for section in (live, retired))
    leaving = _leaving(live, retired, new, retire)
    kept = np.ones(len(live.codes), dtype=bool)
    kept[leaving] = False
    back = np.sort(at_retired[at_retired >= 0])
    still = np.ones(len(retired.codes), dtype=bool)
    still[back] = False
    fresh = np.flatnonzero((at_live < 0) & (at_retired < 0))
    claimed = np.ones(len(retired.codes), dtype=bool)
    if rules.reuse:  # what is retired now is given again by a later command at the earliest
        asked = places(retired.ids(), retire)
        claimed[:] = False
        claimed[back] = claimed[asked[asked >= 0]] = True
    taken = _joined(live.codes, retired.codes[claimed])
    codes = _new_ids(new, fresh, taken, rules)
    still &= claimed | ~_among(retired.codes, codes)  # whose ID was given to another item has no claim any more
    if not kept.any() and not len(back) and not len(fresh):
        raise UserError(f"all {len(kept):,} items would be retired: a catalogue needs at least one in use")
    compared = [
        _compared(new, at_live, live.codes, rules, taken),
        _compared(new, at_retired, retired.codes, rules, taken),
    ]
    changed = np.sort(np.concatenate([rows for rows, _ in compared]))
    same = sum(count for _, count in compared)
    return Growth(kept, back, fresh, codes, leaving, still, int((at_live >= 0).sum()), changed, same)


def check_agreement(growth: Growth, where: object, first: object) -> None:
    """Raise an error if most items that can be compared have other codes than published: another tokenizer made them.

    For IDs ``where`` that do not say which tokenizer did; ``first`` names the first item that differs.
    """
    compared = growth.same + len(growth.changed)
    if 2 * len(growth.changed) > compared:
        raise UserError(
            f"{where} has no manifest, and {len(growth.changed) / compared:.0%} of the {compared:,} items that are "
            f"also in the new table ({first}, for example) have other codes by this tokenizer: name the tokenizer that "
            "made the IDs; if it is this one and the vectors have changed, leave these items out of the new table"
        )


def id_list(ids: Any) -> Any:
    """A list of ids as an Arrow array; a single id, no id, and anything that is no id are errors."""
    pa = require("pyarrow", "tokenizer")
    if isinstance(ids, str | bytes | int | np.integer):
        text = repr(ids) if isinstance(ids, str | bytes) else str(ids)
        raise UserError(f"expected a list of ids, got {text} alone: give [{text}]")
    try:
        array = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise UserError(f"expected a list of ids, all text or all whole numbers: {error}") from error
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if not len(array):
        raise UserError("no item is named: give a list of ids")
    kind = array.type
    if array.null_count or not any(
        is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    ):
        found = "a missing one" if array.null_count else f"the type {kind}"
        raise UserError(f"expected a list of ids, all text or all whole numbers, got {found}")
    return array


def places(batches: Iterable[Any], wanted: Any) -> Rows:
    """The row of each id of ``wanted (k,)`` in ``batches`` of ids, all Arrow arrays: ``(k,)``, -1 where it is in none.

    Ids of another type, text or whole numbers, are an error.
    """
    pa, pc = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    rows, first = np.full(len(wanted), -1, dtype=np.int64), 0
    for ids in batches if len(wanted) else ():
        values = wanted
        if len(ids) and ids.type != wanted.type:
            if pa.types.is_integer(ids.type) != pa.types.is_integer(wanted.type):
                one, other = ("whole numbers" if pa.types.is_integer(each.type) else "text" for each in (ids, wanted))
                raise UserError(
                    f"the ids of the catalogue are {one}, such as {ids[0]}, but those given are {other}, such as "
                    f"{wanted[0]}: give ids of the same type"
                )
            ids, values = (each.cast(pa.large_string()) for each in (ids, wanted))  # numbers with and without a sign
        found = pc.index_in(ids, value_set=values)
        here = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        rows[found.drop_null().to_numpy(zero_copy_only=False)] = first + here
        first += len(ids)
    return rows


def _joined(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Both, one after the other; without a copy if there is nothing to add."""
    return np.concatenate((one, other)) if len(other) else one


def _check_distinct(codes: npt.NDArray[Any]) -> None:
    twice = len(codes) - count_distinct(codes)
    if twice:
        keys = tuple_keys(codes, int(codes.max()) + 1).numpy()  # np.unique of rows would need far more memory
        order = keys.argsort()
        again = order[1:][np.diff(keys[order]) == 0]
        raise UserError(
            f"{counted(twice, 'published ID')} of {len(codes):,} {'is' if twice == 1 else 'are'} also that of another "
            f"item, {codes[again[0]].tolist()} for example: the IDs were not made by one 'ghrq encode' or "
            "'ghrq extend'; encode all items together"
        )


def _leaving(live: Section, retired: Section, new: NewItems, retire: Any) -> Rows:
    """The rows of ``live`` to retire."""
    both = places([retire], new.ids)
    if (both >= 0).any():
        row = int(np.flatnonzero(both >= 0)[0])
        raise UserError(f"{new.ids[row]} is to be retired, but also in the table of new items: remove it from one")
    found = places(live.ids(), retire)
    unknown = (found < 0) & (places(retired.ids(), retire) < 0)
    if unknown.any():
        first = retire[int(np.flatnonzero(unknown)[0])]
        raise UserError(
            f"{int(unknown.sum()):,} of the {len(retire):,} items to retire are not in the catalogue, the first is "
            f"{first}: give the ids of its items"
        )
    return np.sort(found[found >= 0])


def _new_ids(new: NewItems, fresh: Rows, taken: npt.NDArray[Any], rules: Rules) -> npt.NDArray[Any]:
    codes = new.codes[fresh].astype(taken.dtype)
    if rules.policy == "none" or not len(fresh):
        return codes if len(fresh) else taken[:0]
    if rules.policy == "append":
        return resolve_append(codes, rules.tie_break, taken=taken, fill=rules.reuse).numpy()

    def vectors_of(rows: torch.Tensor) -> torch.Tensor:
        return new.vectors_of(torch.from_numpy(fresh)[rows])

    return resolve_reassign(codes, vectors_of, rules.quantizer, taken=taken).numpy()


def _among(codes: Codes, others: Codes) -> npt.NDArray[np.bool_]:
    """Which of ``codes (m, N)`` are among ``others (k, N)``: ``(m,)``."""
    both = np.concatenate((codes, others))
    keys = tuple_keys(both, int(both.max()) + 1 if both.size else 1)
    return torch.isin(keys[: len(codes)], keys[len(codes) :]).numpy()


def _compared(
    new: NewItems, at: Rows, published: npt.NDArray[Any], rules: Rules, taken: npt.NDArray[Any]
) -> tuple[Rows, int]:
    """Rows of the new table that are ``at`` a published item but have other codes than it; how many have the same.

    An item that ``reassign`` moved has other codes than its vector, too, because its tuple was taken: only one whose
    own tuple is free must have changed.
    """
    rows = np.flatnonzero(at >= 0)
    codes = new.codes[rows]
    other = (codes != published[at[rows], : codes.shape[1]]).any(axis=1)
    rows, same = rows[other], int((~other).sum())
    return (rows[~_among(new.codes[rows], taken)] if rules.policy == "reassign" else rows), same
