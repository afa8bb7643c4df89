"""Extend a file of IDs: new items get theirs, others are retired or come back, and no published ID moves.

Memory holds all codes and the new items' ids. Published ids are read in batches, to find the new items among them and
to copy them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from ghrq.data.outputs import locked
from ghrq.data.tables import (
    CODES_COLUMN,
    TableLayout,
    VectorTable,
    check_distinct,
    hash_ids,
    manifest,
    open_codes,
    open_writer,
)
from ghrq.ids.growth import Growth, NewItems, Rules, Section, check_agreement, grow, policy_of
from ghrq.system.errors import UserError
from ghrq.system.memory import check_room
from ghrq.system.progress import Progress
from ghrq.tokenizer import bulk

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

# Ids read at once: a table of the new ids is built for each batch.
_ROWS = 2**20


class Extended(NamedTuple):
    """What became of the items."""

    items: int
    """In use now."""
    retired: int
    """All retired items that keep their IDs."""
    new: int
    """Items with a new ID."""
    known: int
    """Items of the new table that were in use already."""
    back: int
    """Retired items that came back."""
    leaving: int
    """Items that were retired now."""
    changed: list[str]
    """Items of the new table whose vector has changed since they were published: they keep their IDs."""
    checked: bool
    """Whether the file of IDs says which tokenizer made it."""
    written: bool
    """False if nothing changes, and the file is there already."""


class IdsFile(NamedTuple):
    """A file of IDs with all its codes."""

    table: VectorTable
    """The items in use."""
    live: Section
    retired: Section
    checked: bool

    @property
    def id_type(self) -> Any:
        """The Arrow type of the ids."""
        return next(self.table.ids(1)).type


def read_ids(path: Path, tokenizer: "Tokenizer", progress: Progress = bulk.SILENT) -> IdsFile:
    """Read a file of IDs that ``tokenizer`` made; anything else is an error."""
    table = open_codes(path)
    table.require_ids()
    checked = bulk.check_made_by(table, tokenizer)
    stages = tokenizer.quantizer_.num_stages
    if table.dim not in (stages, stages + 1):
        raise UserError(f"{path} has {table.dim} codes a row, the tokenizer {stages}: use the one that made them")
    retired = open_codes(path, retired=True) if table.manifest.get("retired") else None
    sizes = tokenizer.vocabulary("append" if table.dim > stages else "none").sizes
    live, gone = (_section(each, sizes, progress) for each in (table, retired))
    return IdsFile(table, live, gone, checked)


def extend(
    tokenizer: "Tokenizer",
    ids: Path,
    new: VectorTable | None,
    out: Path,
    *,
    retire: Any = None,
    reuse: bool = False,
    progress: Progress = bulk.SILENT,
) -> Extended:
    """Write to ``out`` (.parquet) the IDs of ``ids`` and those of new items; it may be the same file.

    Args:
        tokenizer: the one that made the IDs.
        ids: a file of IDs; that of ``out`` if a killed or repeated command wrote it already.
        new: the table of items that shall be in use, with ids. Those in the file keep their IDs.
        out: is replaced as a whole at the end, or not at all. Another file with other IDs is never replaced.
        retire: ids, an Arrow array, of items to retire.
        reuse: give the IDs of retired items again, which then cannot come back to them.
        progress: shows how far it is.

    """
    if new is not None and not new.has_ids:
        raise UserError(f"{new.path} has no ids, and without them no item can be told from those published: give --id")
    stages, rq = tokenizer.quantizer_.num_stages, tokenizer.quantizer_
    given = pa.array([], pa.int64())
    codes: bulk.Codes = np.empty((0, stages), dtype=np.int32)
    if new is not None:
        codes = bulk.encode(tokenizer, new, progress=progress)
        given = pa.chunked_array(new.ids(_ROWS)).combine_chunks()

    def vectors_of(rows: torch.Tensor) -> torch.Tensor:
        assert new is not None
        return tokenizer.latent(new.take(rows.numpy()))

    with locked(out, progress):
        published = read_ids(ids, tokenizer, progress)
        policy = policy_of(published.table.manifest, published.live.codes, stages)
        nobody = pa.array([], published.id_type)
        names = _of_type(nobody if new is None else given, published.id_type, ids)
        leave = _of_type(nobody if retire is None else retire, published.id_type, ids, convert=True).unique()
        rules = Rules(policy, rq, tokenizer.tie_break_size_, reuse)
        try:
            growth = grow(published.live, published.retired, NewItems(names, codes, vectors_of), leave, rules)
        except UserError as error:
            raise UserError(f"{ids}: {error}") from error
        if not published.checked and len(growth.changed):
            check_agreement(growth, ids, names[int(growth.changed[0])])
        about = manifest.describe(tokenizer.fingerprint, policy, tokenizer.vocabulary(policy).sizes)
        written = _write(out, published, names, growth, about, progress)
    retired = len(growth.leaving) + int(growth.still.sum())
    return Extended(
        items=int(growth.kept.sum()) + len(growth.back) + len(growth.fresh),
        retired=retired,
        new=len(growth.fresh),
        known=growth.known,
        back=len(growth.back),
        leaving=int((~growth.kept).sum()),
        changed=[str(names[row]) for row in growth.changed.tolist()],
        checked=published.checked,
        written=written,
    )


def _section(table: VectorTable | None, sizes: Sequence[int], progress: Progress) -> Section:
    """All codes of a table, in memory, in the smallest type with a sign: torch has no operations for the others."""
    width, dtype = len(sizes), np.min_scalar_type(-max(sizes))
    if table is None:
        return Section(lambda: (), np.empty((0, width), dtype))
    opened, bounds = table, np.array(sizes)
    needed = table.rows * (2 * dtype.itemsize * width + 2 * 8)  # these, or their keys and what is written
    check_room(needed, f"the {table.rows:,} IDs of {table.path}", "use a larger machine")
    codes, hashes, first = np.empty((table.rows, width), dtype), np.empty(table.rows, np.uint64), 0
    with progress.patient_bar(f"reading {table.path.name}", table.rows, "rows") as bar:
        for ids, part in table.batches(2**16):
            if (part < 0).any() or (part >= bounds).any():
                told = f"{table.path} has codes that the tokenizer does not have, whose sizes are {tuple(sizes)}"
                raise UserError(f"{told}: use its own")
            rows = slice(first, first + len(part))
            codes[rows], hashes[rows] = part, hash_ids(ids)
            first += len(part)
            bar.advance(len(part))
    check_distinct(table, hashes)
    return Section(lambda: opened.ids(_ROWS), codes)


def _of_type(ids: Any, kind: Any, path: Path, convert: bool = False) -> Any:
    """Ids as the type that the catalogue has: whole numbers with and without a sign are different ones.

    Text and whole numbers stay what they are, for an error, unless ``convert``: a list of ids has no types.
    """
    if not convert and pa.types.is_integer(ids.type) != pa.types.is_integer(kind):
        return ids
    try:
        return ids.cast(kind)
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} has ids of type {kind}, one that was given is not ({error}): give its ids") from error


def _write(
    out: Path, published: IdsFile, names: Any, growth: Growth, about: dict[str, Any], progress: Progress
) -> bool:
    """Write the extended catalogue. Returns whether that was necessary."""
    table = published.table
    here = out.exists() and out.samefile(table.path)
    if here and growth.nothing and published.checked:
        return False
    if out.exists() and not here:
        _check_same(out, published, names, growth, about)
        return False
    count = int(growth.kept.sum()) + len(growth.back) + len(growth.fresh)
    retired = bool(len(growth.leaving) or growth.still.any())
    layout = TableLayout(table.id_name, CODES_COLUMN, published.live.codes.shape[1], np.int32, count, about, retired)
    with open_writer(out, layout) as writer, progress.patient_bar("writing", count, "rows") as bar:
        for ids, codes, gone in _parts(published, names, growth):
            writer.write(ids, codes, gone)
            bar.advance(len(ids))
    return True


def _parts(published: IdsFile, names: Any, growth: Growth) -> Iterator[tuple[Any, Any, bool]]:
    """Ids, codes, and whether they are retired: of the items in use, then of those that are not."""
    leaving = np.zeros(len(growth.kept), dtype=bool)
    leaving[growth.leaving] = True
    back = np.zeros(len(growth.still), dtype=bool)
    back[growth.back] = True
    live, retired = published.live, published.retired
    yield from _chosen(live, growth.kept, False)
    yield from _chosen(retired, back, False)
    if len(growth.fresh):
        yield names.take(pa.array(growth.fresh)), growth.codes, False
    yield from _chosen(retired, growth.still, True)
    yield from _chosen(live, leaving, True)


def _chosen(section: Section, which: Any, retired: bool) -> Iterator[tuple[Any, Any, bool]]:
    first = 0
    for ids in section.ids() if which.any() else ():
        rows = slice(first, first + len(ids))
        if which[rows].any():
            yield ids.filter(pa.array(which[rows])), section.codes[rows][which[rows]], retired
        first += len(ids)


def _check_same(out: Path, published: IdsFile, names: Any, growth: Growth, about: dict[str, Any]) -> None:
    """Raise an error unless the file ``out`` has the IDs that would be written: others would be lost."""
    live, retired = manifest.Content(), manifest.Content()
    for ids, codes, gone in _parts(published, names, growth):
        (retired if gone else live).add(ids, codes)
    old, new = open_codes(out).manifest, manifest.complete(about, live, retired)
    if any(old.get(key) != new[key] for key in ("content", "retired_content", "tokenizer")):
        raise UserError(
            f"{out} exists and has other IDs, which would be lost: extend it (name it as the file of IDs), or give "
            "--out another name"
        )
