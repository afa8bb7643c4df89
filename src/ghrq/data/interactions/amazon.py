"""Amazon Reviews 2014 as published: ``reviews_CATEGORY_5.json.gz`` (the 5-core) and ``meta_CATEGORY.json.gz``.

Each line is a JSON object, or the same as a Python literal (the metadata), which is parsed and never run.
"""

import ast
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ghrq.data.interactions.events import Events, Items, arrange
from ghrq.data.interactions.sequences import Interactions
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile, one_line
from ghrq.system.progress import Progress
from ghrq.system.unpacking import LimitedReader

LEAST_REVIEWS = 5
"""Users with fewer reviews of items that have metadata are left out, once: the items are not filtered again."""

_REMEDY = "get the file again"

# Bytes of the longest line that is parsed; real ones have less than 100,000.
_LONGEST = 2**22

# The key of an item and its value, in JSON or as a Python literal.
_ASIN = re.compile(rb"""['"]asin['"]\s*:\s*['"]([^'"]*)['"]""")


class _Described(NamedTuple):
    title: str
    description: str


def read_amazon(reviews: str | Path, meta: str | Path | None = None, progress: Progress | None = None) -> Interactions:
    """Who reviewed what, by time, at equal times by ASIN. Items without metadata are left out.

    Without ``meta``, ``reviews_CATEGORY_5.json.gz`` has its metadata in the same folder, in ``meta_CATEGORY.json.gz``.

    The keys of the items are their ASINs, in ascending order. The text of an item is its title and its description,
    joined by ``". "``; it may be empty.
    """
    progress, reviews = progress or Progress(), Path(reviews)
    meta = Path(meta) if meta else _metadata_beside(reviews)
    people, reviewed, time = _reviews(reviews, progress)
    found = reviewed.dictionary.to_pylist()
    described = _metadata(meta, set(found), progress)
    if not described:
        raise UserError(f"{meta} has none of the items of {reviews}: name the metadata of the same category")
    keys = sorted(described)
    place = {key: number for number, key in enumerate(keys)}
    item = np.array([place.get(key, -1) for key in found])[np.asarray(reviewed.indices)]
    known = item >= 0
    if not known.all():
        progress.note(f"{reviews}: left out {(~known).sum():,} of {len(known):,} reviews: their items have no metadata")
    texts = [". ".join(filter(None, described[key])) for key in keys]
    if empty := texts.count(""):
        progress.note(f"{meta}: {empty:,} of {len(keys):,} items have neither a title nor a description")
    events = Events(np.asarray(people.indices).astype(np.int64), item, time).take(known)
    return arrange(
        people.dictionary.to_pylist(),
        Items(keys, titles=[described[key].title for key in keys], texts=texts),
        events.take(np.argsort(events.item, kind="stable")),  # events at equal times stay in this order
        least_of_user=LEAST_REVIEWS,
        keep_unseen=False,
        name=str(reviews),
        progress=progress,
    )


def _metadata_beside(reviews: Path) -> Path:
    found = re.fullmatch(r"reviews_(.+?)(_5)?\.json\.gz", reviews.name)
    if found is None:
        raise UserError(f"{reviews} is not called reviews_CATEGORY_5.json.gz: name the file of its metadata, too")
    return reviews.with_name(f"meta_{found[1]}.json.gz")


def _reviews(path: Path, progress: Progress) -> tuple[Any, Any, Any]:
    """Users and items as Arrow dictionaries, and the times, int64, of all reviews."""
    users, items, times = [], [], []
    for line, review in _records(path, lambda _: True, progress):
        user, item, time = (review.get(name) for name in ("reviewerID", "asin", "unixReviewTime"))
        if not (isinstance(user, str) and isinstance(item, str) and type(time) is int and abs(time) < 2**62):
            raise _wrong(path, line, "expected texts as 'reviewerID' and 'asin', and seconds as 'unixReviewTime'")
        users.append(user)
        items.append(item)
        times.append(time)
    if not users:
        raise UserError(f"{path} is empty: {_REMEDY}")
    return pa.array(users).dictionary_encode(), pa.array(items).dictionary_encode(), np.array(times, dtype=np.int64)


def _metadata(path: Path, wanted: set[str], progress: Progress) -> dict[str, _Described]:
    """Title and description of the ``wanted`` items that have a line; of several lines the first counts."""
    names = {key.encode() for key in wanted}
    described: dict[str, _Described] = {}
    # Most lines are of other items: they are not parsed.
    for line, item in _records(path, lambda text: not names.isdisjoint(_ASIN.findall(text)), progress):
        key, title, description = (item.get(name) for name in ("asin", "title", "description"))
        if not isinstance(key, str):
            raise _wrong(path, line, "expected a text as 'asin'")
        if key in wanted and key not in described:
            described[key] = _Described(_text(path, line, title), _text(path, line, description))
    return described


def _text(path: Path, line: int, value: Any) -> str:
    """A text without space around it; empty if there is none."""
    if not isinstance(value, str | None):
        raise _wrong(path, line, "expected texts as 'title' and 'description'")
    return " ".join(value.split()) if value else ""


def _records(path: Path, pick: Callable[[bytes], bool], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects on the lines that ``pick`` wants, with the numbers of the lines, from 1."""
    source = InputFile(path)
    with source.reading("gzip"), gzip.open(path, "rb") as file, progress.bar(path.name, None, unit="lines") as bar:
        reader, number = LimitedReader(file, path, path.stat().st_size), 0
        while line := reader.readline():
            number += 1
            bar.advance()
            if line.isspace() or not pick(line):
                continue
            if len(line) > _LONGEST:
                raise _wrong(path, number, f"it has more than {_LONGEST:,} bytes")
            yield number, _parsed(path, number, line)


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        text = line.decode()
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        reason = one_line(error)[:80]
        raise _wrong(path, number, f"it is neither JSON nor a Python literal ({reason})") from error
    if not isinstance(value, dict):
        raise _wrong(path, number, f"expected an object, got {type(value).__name__}")
    return value


def _wrong(path: Path, line: int, reason: str) -> UserError:
    return UserError(f"{path}, line {line}: {reason}: {_REMEDY}")
