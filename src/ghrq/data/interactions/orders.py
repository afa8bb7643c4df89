"""Any table of orders (user, item, time), and a table of items with texts or embeddings.

Parquet (a file, or a folder of parts), CSV and JSON lines, the last two also ``.gz``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ghrq.data.interactions.events import Events, Ints, Items, arrange
from ghrq.data.interactions.sequences import LEAST_ITEMS, Interactions
from ghrq.data.tables import OnBad, batch_rows, open_source, open_table
from ghrq.data.tables.columns import can_be_ids, checked_name, place, shown, text_array
from ghrq.system.checks import one_of
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

Mask = npt.NDArray[np.bool_]

# Between the columns of a text: "Soap. With lavender".
_JOINT = ". "

_SKIP = "on_bad='skip' (--set data.on_bad=skip)"

# Options of commands on tables of vectors, and what they are here.
_OPTIONS = {"--on-bad skip": _SKIP, "--column": "vectors (--set data.vectors=…)", "--id": "item (--set data.item=…)"}


def read_orders(
    orders: str | Path,
    items: str | Path | None = None,
    *,
    user: str = "user_id",
    item: str = "item_id",
    time: str = "timestamp",
    title: str | None = None,
    text: Sequence[str] = (),
    vectors: str | None = None,
    embeddings: str | Path | None = None,
    core: int = 0,
    on_bad: OnBad = "stop",
    progress: Progress | None = None,
) -> Interactions:
    """Who bought what, from a table of orders.

    Args:
        orders: a row for each purchase, in any order. Rows of one user at the same time stay in their order; of rows
            with the same user, item and time the first counts. Users with fewer than 3 events are left out.
        items: a row for each item that can be recommended, whether it was bought or not. Without it, the items are
            those of the orders.
        user: the column of the users in ``orders``, text or whole numbers.
        item: the column of the items, in all tables.
        time: the column of the times in ``orders``: numbers, dates, or texts such as ``2024-01-31 10:15:00``.
        title: the column of ``items`` with what to show.
        text: columns of ``items`` that describe an item, joined by ``". "``; by default the title.
        vectors: the column of the embeddings, as in :func:`ghrq.data.tables.open_table`.
        embeddings: the table of the embeddings if it is not ``items``: with a column ``item``, or a ``.npy`` with a row
            for each row of ``items``.
        core: leave out users and items with fewer events, again and again until all have so many; 0: keep all items.
        on_bad: ``"skip"`` leaves out rows of orders without a user, item or (finite) time or of an item that is not in
            ``items``, and items without a key, text or vector. With ``"stop"`` they are errors.
        progress: is told what was left out.

    """
    progress, orders = progress or Progress(), Path(orders)
    items, embeddings = (None if path is None else Path(path) for path in (items, embeddings))
    if not isinstance(core, int) or core < 0:
        raise UserError(f"core is {core}: expected 0 for all, or the least number of events of a user and of an item")
    one_of("on_bad", on_bad, get_args(OnBad))
    if isinstance(text, str):
        raise UserError(f"text is {text!r}, expected a list of columns: write [{text!r}]")
    if len({user, item, time}) < 3:
        raise UserError(f"user, item and time are {user!r}, {item!r} and {time!r}: name three different columns")
    if items is None and (title or text or vectors or embeddings):
        raise UserError("titles, texts and embeddings of items need a table of items: name one")
    catalogue = None
    if items is not None:
        catalogue, rows = _items(items, item, title, text or ([title] if title else []), on_bad, progress)
        if vectors or embeddings:
            catalogue = _with_vectors(catalogue, rows, embeddings or items, vectors, item, progress)
        catalogue = catalogue.take(np.flatnonzero(rows.kept))
    users, catalogue, events = _events(orders, (user, item, time), catalogue, items, on_bad, progress)
    return arrange(
        users,
        catalogue,
        events,
        least_of_user=max(core, LEAST_ITEMS),
        least_of_item=core,
        name=str(orders),
        progress=progress,
    )


class _Rows:
    """Rows of a table, of which the bad ones are an error or are left out."""

    def __init__(self, path: Path, count: int, on_bad: OnBad, progress: Progress) -> None:
        self.path, self.on_bad, self.kept = path, on_bad, np.ones(count, dtype=bool)
        self._progress = progress

    def refuse(self, bad: Mask, reason: str) -> None:
        """``bad (n,)`` rows, as far as they are still there: the first is an error, or all are left out."""
        bad = bad & self.kept
        if not bad.any():
            return
        first, found = int(bad.argmax()), f"{bad.sum():,} of {len(bad):,} rows"
        if self.on_bad == "stop":
            remedy = "fix or remove such rows, or leave them out with " + _SKIP
            raise UserError(f"{place(self.path, first)}: {reason} ({found}): {remedy}")
        self._progress.note(f"{self.path}: left out {found}, the first is row {first}: {reason}")
        self.kept &= ~bad


def _events(
    path: Path, names: tuple[str, str, str], items: Items | None, items_path: Path | None, on_bad: OnBad, bars: Progress
) -> tuple[list[str], Items, Events]:
    """The users, the items and the events of a table of orders, by its columns of users, items and times."""
    columns = _columns(path, dict(zip(("user", "item", "time"), names, strict=True)), bars)
    users, bought, times = columns
    rows = _Rows(path, len(users), on_bad, bars)
    for column, name in zip(columns, names, strict=True):
        rows.refuse(_missing(column), f"column {name!r} is empty")
    users, bought = _keys(path, users, names[0]), _keys(path, bought, names[1])
    if items is None:
        items = Items(bought.filter(pa.array(rows.kept)).unique().to_pylist())
    number = _places(bought, pa.array(items.keys, pa.large_string()))
    unknown = (number < 0) & rows.kept
    if unknown.any():
        left_out = ", or was left out of it" if on_bad == "skip" else ""
        rows.refuse(unknown, f"the item {bought[int(unknown.argmax())].as_py()!r} is not in {items_path}{left_out}")
    places = np.flatnonzero(rows.kept)
    moment = _times(path, times.filter(pa.array(rows.kept)), names[2], places)
    endless = ~np.isfinite(moment)
    if endless.any():
        bad = np.zeros(len(users), dtype=bool)
        bad[places[endless]] = True
        rows.refuse(bad, f"column {names[2]!r} is {shown(times[int(bad.argmax())])!r}, expected a finite number")
        moment = moment[~endless]
    kept = pa.array(rows.kept)
    people = _whole(users.filter(kept)).dictionary_encode()
    user = people.indices.to_numpy().astype(np.int64)
    return people.dictionary.to_pylist(), items, Events(user, number[rows.kept], moment)


def _items(
    path: Path, item: str, title: str | None, text: Sequence[str], on_bad: OnBad, progress: Progress
) -> tuple[Items, _Rows]:
    """All rows of the table of items, and which of them have a key of their own, and a text if there are such."""
    named = {"item": item} | ({"title": title} if title else {}) | {f"text[{i}]": name for i, name in enumerate(text)}
    columns = dict(zip(named, _columns(path, named, progress), strict=True))
    rows = _Rows(path, len(columns["item"]), on_bad, progress)
    rows.refuse(_missing(columns["item"]), f"column {item!r} is empty")
    keys = _keys(path, columns["item"], item)
    _, first = np.unique(_whole(keys).dictionary_encode().indices.to_numpy(), return_index=True)
    repeated = np.ones(len(keys), dtype=bool)
    repeated[first] = False
    if repeated.any():
        twice = keys[int((repeated & rows.kept).argmax())].as_py()
        rows.refuse(repeated, f"column {item!r} has the item {twice!r}, which an earlier row has, too")
    texts = None
    if text:
        parts = [_texts(path, columns[f"text[{i}]"], name) for i, name in enumerate(text)]
        texts = [_JOINT.join(filter(None, row)) for row in zip(*parts, strict=True)]
        rows.refuse(np.array([not each for each in texts]), f"the item has no text in {', '.join(map(repr, text))}")
    titles = _texts(path, columns["title"], title) if title else None
    return Items(keys.to_pylist(), titles, texts=texts), rows


def _with_vectors(items: Items, rows: _Rows, path: Path, column: str | None, item: str, progress: Progress) -> Items:
    """``items`` with their vectors; rows without one are refused."""
    try:
        return _joined(items, rows, path, column, item, progress)
    except UserError as error:
        message = str(error)
        for option, here in _OPTIONS.items():
            message = message.replace(option, here)
        raise UserError(message) from error


def _joined(items: Items, rows: _Rows, path: Path, column: str | None, item: str, progress: Progress) -> Items:
    array = path.suffix.lower() == ".npy"
    table = open_table(path, column, None if array else item, on_bad=rows.on_bad, progress=progress)
    count, keys = len(items.keys), pa.array(items.keys, pa.large_string())
    if array and table.rows + len(table.skipped) != count:
        given = table.rows + len(table.skipped)
        raise UserError(f"{path} has {given:,} rows, expected {count:,}, one for each row of {rows.path}")
    vectors, has = torch.zeros(count, table.dim), np.zeros(count, dtype=bool)
    with progress.patient_bar("embeddings", table.rows, "rows") as bar:
        for ids, values in table.batches(batch_rows(table.dim)):
            number = ids.to_numpy() if array else _places(ids.cast(pa.large_string()), keys)
            # Of equal items the first row counts, here as among the items.
            new, source = np.unique(number, return_index=True)
            fresh = (new >= 0) & ~has[new]
            vectors[new[fresh]] = torch.from_numpy(values[source[fresh]])
            has[new[fresh]] = True
            bar.advance(len(values))
    rows.refuse(~has, f"the item has no embedding in {path}")
    return Items(items.keys, items.titles, vectors, items.texts)


def _columns(path: Path, named: dict[str, str], progress: Progress) -> list[Any]:
    """The columns ``named`` by what they are for, as Arrow arrays of chunks."""
    if path.suffix.lower() == ".npy":
        raise UserError(f"{path} is an array and has no columns {', '.join(named.values())}: name a table")
    source = open_source(path, set(named.values()))
    for use, name in named.items():
        setting = use.split("[")[0]
        checked_name(path, name, source.schema.names, f"{setting} (--set data.{setting}=…)")
    names = list(dict.fromkeys(named.values()))
    if not source.rows:
        raise UserError(f"{path} is empty: expected a table with at least one row")
    batches = []
    with progress.patient_bar(f"reading {path.name}", source.rows, "rows") as bar:
        for batch in source.read(names):
            batches.append(batch)
            bar.advance(len(batch))
    table = pa.Table.from_batches(batches)
    return [table.column(name) for name in named.values()]


def _missing(column: Any) -> Mask:
    """``(n,)``: where there is nothing: a null, NaN or an empty text."""
    missing = pc.is_null(column, nan_is_null=True)
    if _is_text(column.type):
        missing = pc.or_(missing, pc.equal(pc.fill_null(column, ""), ""))
    return np.asarray(missing)


def _keys(path: Path, column: Any, name: str) -> Any:
    """Keys as texts; missing ones are empty."""
    if not can_be_ids(column.type, floats=False):
        raise UserError(
            f"{path}: column {name!r} holds {column.type}, expected texts or whole numbers: name another, or convert it"
        )
    return pc.fill_null(text_array(path, column, name).cast(pa.large_string()), "")


def _texts(path: Path, column: Any, name: str) -> list[str]:
    texts: list[str] = pc.utf8_trim_whitespace(pc.fill_null(text_array(path, column, name), "")).to_pylist()
    return texts


def _places(values: Any, among: Any) -> Ints:
    """The first place of each of ``values`` ``among`` others, -1 if it is not there."""
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=among), -1)).astype(np.int64)


def _times(path: Path, column: Any, name: str, rows: Ints) -> npt.NDArray[Any]:
    """Times that can be compared, whole numbers or floats; ``rows`` are their places in the file, for errors."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return np.asarray(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):  # in the unit of the column: only their order counts
        return np.asarray(column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()))
    if not _is_text(kind):
        raise UserError(
            f"{path}: column {name!r} holds {kind}, expected times: convert it, or name another with time "
            "(--set data.time=…)"
        )
    # One form for the whole column: numbers, times without a zone, times with one. Of those that fit the first counts:
    # float64 has no whole numbers above 2^53, and nanoseconds end in 2262.
    clocks = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    forms = (pa.int64(), pa.float64(), *clocks)
    readable = {form: _readable(column, form) for form in forms}
    form = max(forms, key=lambda each: readable[each])
    if readable[form] < len(column):
        bad = readable[form]
        value = shown(column[bad])
        raise UserError(
            f"{place(path, int(rows[bad]))}: column {name!r} is {value[:40]!r}, expected a number or a time such as "
            "'2024-01-31 10:15:00', with a zone in all rows or in none: fix or remove that row"
        )
    values = column.cast(form)
    return np.asarray(values.cast(pa.int64()) if pa.types.is_timestamp(form) else values)


def _readable(column: Any, form: Any) -> int:
    """How many rows from the first on can be read in a form, by bisection."""

    def fits(start: int, stop: int) -> bool:
        try:
            column[start:stop].cast(form)
        except pa.ArrowInvalid:
            return False
        return True

    if fits(0, len(column)):
        return len(column)
    good, bad = 0, len(column)  # the first wrong row is in good … bad - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(good, middle) else (good, middle)
    return good


def _is_text(kind: Any) -> bool:
    return can_be_ids(kind, floats=False) and not pa.types.is_integer(kind)


def _whole(column: Any) -> Any:
    """An array of one piece."""
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
