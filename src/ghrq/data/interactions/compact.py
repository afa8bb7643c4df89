"""Amazon Beauty 2014 (5-core) in a compact form: a folder of three files.

- ``sequences.txt.gz``: a line for each user: the user's id, then the ids of the items in time order;
- ``items.jsonl.gz``: id (1, 2, …), asin, title and category paths of each item, one JSON object a line;
- ``mpnet-embeddings.f16.npy`` (may be missing): a row for each item, the embedding of its text by all-mpnet-base-v2.
"""

import gzip
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.interactions.sequences import LEAST_ITEMS, Interactions
from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile
from ghrq.system.unpacking import LimitedReader

SEQUENCES, ITEMS, VECTORS = "sequences.txt.gz", "items.jsonl.gz", "mpnet-embeddings.f16.npy"
_REMEDY = "get the file again"


def read_compact(folder: str | Path) -> Interactions:
    """The users, items and embeddings of ``folder``; the keys of the items are their ASINs."""
    folder = Path(folder)
    if not (folder / SEQUENCES).is_file():
        raise UserError(f"there is no {SEQUENCES} in {folder}: name the folder that has {SEQUENCES} and {ITEMS}")
    items = _items(folder / ITEMS)
    users, starts, sequence = _sequences(folder / SEQUENCES, len(items))
    path = folder / VECTORS
    return Interactions(
        users,
        [item["asin"] for item in items],
        torch.from_numpy(starts),
        torch.from_numpy(sequence),
        titles=[item["title"] or "" for item in items],
        vectors=_vectors(path, len(items)) if path.is_file() else None,
        texts=[_text(item) for item in items],
    )


def _lines(path: Path) -> list[str]:
    """The lines of a gzip file."""
    source = InputFile(path)
    with source.reading("gzip"), gzip.open(path, "rb") as file:
        content = LimitedReader(file, path, path.stat().st_size).read(2**62)
        return content.decode().splitlines()


def _sequences(path: Path, num_items: int) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Users, starts ``(n + 1,)`` and the sequence ``(total,)`` of item numbers, from 0."""
    lines = _lines(path)
    words = [line.split() for line in lines]
    starts = np.fromiter(accumulate((len(line) - 1 for line in words), initial=0), np.int64, len(words) + 1)
    short = np.flatnonzero(np.diff(starts) < LEAST_ITEMS)
    if len(short) or not lines:
        raise _wrong(path, int(short[0]) if len(short) else 0, f"expected a user and at least {LEAST_ITEMS} items")
    try:
        ids = np.array([word for line in words for word in line[1:]]).astype(np.int64)
    except (ValueError, OverflowError):
        ids = np.array([int(word) if word.isdecimal() and len(word) < 18 else 0 for line in words for word in line[1:]])
    outside = np.flatnonzero((ids < 1) | (ids > num_items))
    if len(outside):
        line = int(np.searchsorted(starts, outside[0], side="right")) - 1
        item = words[line][1 + int(outside[0] - starts[line])]
        raise _wrong(path, line, f"the item {item[:40]!r} is not one of 1 to {num_items}, the items of {ITEMS}")
    users = [line[0] for line in words]
    again = np.setdiff1d(np.arange(len(users)), np.unique(users, return_index=True)[1])
    if len(again):
        raise _wrong(path, int(again[0]), f"the user {users[int(again[0])]!r} has a line already")
    return users, starts, ids - 1


def _items(path: Path) -> list[dict[str, Any]]:
    items = []
    for row, line in enumerate(_lines(path)):
        try:
            item = files.parse_json(line)
        except ValueError as error:
            raise _wrong(path, row, f"it is not JSON ({error})") from error
        if not isinstance(item, dict) or item.get("id") != row + 1:
            raise _wrong(path, row, f"expected an object with the id {row + 1}: ids count from 1")
        if not (isinstance(item.get("asin"), str) and isinstance(item.setdefault("title", None), str | None)):
            raise _wrong(path, row, "expected texts as 'asin' and 'title'")
        paths = item.setdefault("categories", [])
        if not (
            isinstance(paths, list) and all(isinstance(p, list) and all(isinstance(c, str) for c in p) for p in paths)
        ):
            raise _wrong(path, row, "expected lists of texts as 'categories'")
        items.append(item)
    return items


def _text(item: dict[str, Any]) -> str:
    """As it was embedded; of several category paths the first."""
    path = " > ".join(item["categories"][0]) if item["categories"] else ""
    return f"Title: {item['title'] or ''}; Categories: {path}"


def _vectors(path: Path, num_items: int) -> Tensor:
    source = InputFile(path)
    with source.reading("a NumPy array"):
        array = np.load(path, allow_pickle=False)
    if array.ndim != 2 or len(array) != num_items or array.dtype.kind != "f":
        raise UserError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected a row of floats for each of the "
            f"{num_items} items of {ITEMS}: {_REMEDY}"
        )
    vectors = torch.from_numpy(array.astype(np.float32))
    bad = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise UserError(f"{path}, row {bad[0]} (counted from 0) has a NaN or infinite number: {_REMEDY}")
    return vectors


def _wrong(path: Path, row: int, reason: str) -> UserError:
    return UserError(f"{path}, line {row + 1}: {reason}: {_REMEDY}")
