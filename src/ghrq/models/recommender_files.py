"""Recommendations for a table of users, part by part."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.parts import Parts
from ghrq.data.ragged import Ragged
from ghrq.data.tables import open_source
from ghrq.data.tables.columns import can_be_ids, checked_name
from ghrq.models.recommender import Recommender
from ghrq.models.recommender_ranking import Way
from ghrq.system.errors import UserError, counted
from ghrq.system.pretrained import digest
from ghrq.system.progress import Progress

# Users of a part.
_PART = 8192


class Served(NamedTuple):
    """What was written."""

    users: int
    skipped: int
    """Users without an item that the model knows."""
    unknown: int
    """Items of histories that the model does not know."""
    shorter: int
    """Users for whom fewer than k items are left."""


def recommend_table(
    model: Recommender,
    source: str | Path,
    out: str | Path,
    k: int,
    *,
    user: str = "user_id",
    history: str = "history",
    by: Way | None = None,
    exclude_seen: bool = True,
    allowed: Tensor | None = None,
    beam: int = 50,
    skip_unknown: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> Served:
    """Write the k best items of every user of a table to the Parquet file ``out``, atomically.

    Finished parts are kept in the folder ``out.parts`` until all are there: the same call after the process was killed
    goes on where it was, and writes the same file. Finished parts of another call are an error, unless ``replace``.

    ``source`` (Parquet or JSON lines) has a row for each user: the column ``user``, and ``history``, a list of keys of
    items, the oldest first. ``out`` gets ``user``, and the lists ``items`` (keys), ``titles`` if the model has some,
    and ``scores``, the best first. With ``skip_unknown``, items that the model does not know are ignored, and users
    without any other are left out. ``allowed (n,)`` are the items that may be recommended, as
    :meth:`Recommender.mask_of` gives them; users who had nearly all of them get shorter lists. Memory does not depend
    on the number of users.
    """
    progress, source, out = progress or Progress(), Path(source), Path(out)
    table = open_source(source, text=(user, history))
    for option, name in (("--user", user), ("--items", history)):
        checked_name(source, name, table.schema.names, option)
    _check_lists(source, history, table.schema.field(history).type)
    most = len(model) if allowed is None else int(allowed.sum())
    if k > most:
        raise UserError(f"k={k}, but only {counted(most, 'item')} may be recommended: ask for fewer, or allow more")
    keys, titles = pa.array(model.config.keys, pa.string()), model.config.titles
    names = pa.array(titles, pa.string()) if titles else None
    lists = pa.list_(pa.string())
    fields = [table.schema.field(user), pa.field("items", lists), *([pa.field("titles", lists)] if titles else [])]
    schema = pa.schema([*fields, pa.field("scores", pa.list_(pa.float32()))])
    if schema.names.count(user) > 1:
        raise UserError(f"{source}: {out} gets a column '{user}' of its own: rename the column of the users")
    by = by or model.ways[-1]
    settings = {"k": k, "by": by, "exclude_seen": exclude_seen, "beam": beam, "skip_unknown": skip_unknown}
    model_of = digest(json.dumps(model._saved_config()), model.state_dict())
    job = settings | {"columns": [user, history], "model": model_of, "source": _identity(source), "rows": _PART}
    job |= {} if allowed is None else {"allowed": allowed.nonzero().squeeze(1).tolist()}
    parts = Parts(out, schema, job, replace)
    done = len(parts)
    try:
        with progress.bar("recommending", table.rows, unit="users") as bar:
            bar.advance(min(done * _PART, table.rows))
            for part, batch in enumerate(_batches(table.read([user, history], done * _PART)), start=done):
                _check_users(source, batch.column(0), part * _PART)
                numbers, lengths = _numbers(batch.column(1), keys)
                missing = numbers < 0
                known = Ragged(numbers, lengths).without_negative()
                empty = known.lengths == 0
                if not skip_unknown and (bool(missing.any()) or bool(empty.any())):
                    raise _unknown(source, batch, part * _PART, numbers, lengths, empty)
                kept = (~empty).nonzero().squeeze(1)
                found = model.rank(
                    known.take(kept), k, by=by, exclude_seen=exclude_seen, allowed=allowed, beam=beam, fewer=True
                )
                there = found.items >= 0
                items = pa.array(found.items[there].numpy())
                ends = pa.array(F.pad(there.sum(1).cumsum(0), (1, 0)).numpy(), pa.int32())
                columns = [batch.column(0).take(pa.array(kept.numpy())), keys.take(items)]
                columns += [] if names is None else [names.take(items)]
                columns.append(pa.array(found.scores[there].float().numpy()))
                lists_of = [columns[0], *(pa.ListArray.from_arrays(ends, column) for column in columns[1:])]
                served = Served(len(kept), int(empty.sum()), int(missing.sum()), int((~there).any(1).sum()))
                parts.add(pa.record_batch(lists_of, schema=schema), served._asdict())
                bar.advance(len(batch))
        total = Served(*(sum(note[name] for note in parts.notes()) for name in Served._fields))
        if total.skipped and not total.users:
            parts.remove()
            raise UserError(
                f"{source}: the model knows no item of column '{history}'; its keys are like {keys[0].as_py()!r}: "
                "correct them, or name another model"
            )
        parts.join()
    except UserError:
        parts.remove_if_empty()
        raise
    return total


def _check_lists(source: Path, name: str, kind: Any) -> None:
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_one(kind) for is_one in is_list):
        raise UserError(
            f"{source}: column '{name}' is of type {kind}, expected a list of keys for each "
            "user: gather the orders of each user first (docs/recommendation.md shows how)"
        )
    of = kind.value_type
    of = of.value_type if pa.types.is_dictionary(of) else of
    if not (can_be_ids(of, floats=False) or pa.types.is_binary(of) or pa.types.is_null(of)):
        raise UserError(f"{source}: column '{name}' has lists of {of}, expected texts or whole numbers: convert it")


def _check_users(source: Path, users: Any, row: int) -> None:
    """Every user has a name; ``row`` is the first."""
    if users.null_count:
        at = row + int(users.is_null().to_numpy(zero_copy_only=False).argmax())
        raise UserError(f"{source}, row {at} (from 0): the user is empty: fix or remove that row")


def _batches(given: Iterator[Any]) -> Iterator[Any]:
    """The same rows in record batches of ``_PART``, the last smaller: a part never depends on where reading began."""
    waiting: list[Any] = []
    for batch in given:
        waiting.append(batch)
        while sum(map(len, waiting)) >= _PART:
            whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
            yield whole[:_PART]
            waiting = [whole[_PART:]]
    if sum(map(len, waiting)):
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _identity(source: Path) -> list[Any]:
    """What tells a table from another one: names, sizes and times of its files."""
    paths = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def _numbers(histories: Any, keys: Any) -> tuple[Tensor, Tensor]:
    """Item numbers of all histories, one after the other, -1 for unknown items; and the lengths of the histories."""
    lengths = pc.fill_null(pc.list_value_length(histories), 0).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(histories).cast(pa.string())
    found = pc.fill_null(pc.index_in(flat, value_set=keys), -1).to_numpy(zero_copy_only=False)
    return torch.from_numpy(found.astype("int64")), torch.from_numpy(lengths.astype("int64"))


def _unknown(source: Path, batch: Any, row: int, numbers: Tensor, lengths: Tensor, empty: Tensor) -> UserError:
    remedy = "correct it, or skip what the model does not know (--skip-unknown)"
    if bool((numbers < 0).any()):
        place = int((numbers < 0).nonzero()[0])
        at = int(torch.searchsorted(lengths.cumsum(0), place, right=True))
        key = pc.list_flatten(batch.column(1))[place].as_py()
        what = f"the item {key!r} is not in the model's catalogue"
    else:
        at, what = int(empty.nonzero()[0]), "the history is empty"
    return UserError(f"{source}, row {row + at} (from 0), user {batch.column(0)[at].as_py()!r}: {what}: {remedy}")
