"""The map between items and their code tuples, in memory and as a Parquet file."""

import importlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.arrays import as_rows
from ghrq.data.outputs import replacing
from ghrq.ids.trie import PrefixTrie, ranges
from ghrq.ids.tuples import Codes
from ghrq.system.checks import at_least
from ghrq.system.errors import UserError, require

Ids = Sequence[str] | Sequence[int] | npt.NDArray[Any]

# Pairs of an item and a possible neighbour, and numbers of vectors, in memory at once.
_PAIRS, _NUMBERS = 2**20, 2**22

# Rows of a file read at once.
_ROWS_READ = 2**16


class Neighbours(NamedTuple):
    """The neighbours of ``B`` items: those of the b-th are ``ids[indptr[b]:indptr[b + 1]]``."""

    indptr: Tensor
    """``(B + 1,)`` int64."""
    ids: npt.NDArray[Any]
    """Sorted by the number of shared first codes, most first; equal ones by distance, see :class:`Catalogue`."""
    shared: Tensor
    """int64: how many first codes each shares with its item, at least 1."""


class _Depth(NamedTuple):
    """All items sorted by their first m codes."""

    node: Tensor
    """``(n,)`` the prefix of each item, as its number in the trie."""
    order: Tensor
    """``(n,)`` rows in the order of their prefixes, ascending within a prefix."""
    indptr: Tensor
    """The rows of prefix p are ``order[indptr[p]:indptr[p + 1]]``."""


class Catalogue:
    """Items and their codes: look-up both ways, neighbours by shared prefix, a Parquet file.

    >>> catalogue = Catalogue(["apple", "pear", "nail"], torch.tensor([[0, 1], [0, 2], [3, 1]]))
    >>> catalogue.codes_of(["nail"])
    tensor([[3, 1]])
    >>> catalogue.ids_of(torch.tensor([[0, 2], [0, 1]])).tolist()
    ['pear', 'apple']
    >>> catalogue.under([0]).tolist()
    ['apple', 'pear']
    >>> catalogue.neighbours(["apple"], 5).ids.tolist()
    ['pear']
    >>> "plum" in catalogue, catalogue["nail"].tolist(), list(catalogue)
    (False, [3, 1], ['apple', 'pear', 'nail'])

    Args:
        ids: ``n`` distinct strings or whole numbers: a list, a numpy array or what numpy can convert.
        codes: ``(n, num_stages)`` integers, a tensor or an array.
        name: of the ids' column in a file.
        vectors: ``(n, d)``, a point for each item: its embedding (which is most precise), or its decoded codes,
            ``tokenizer.decode(codes)``; any array that :class:`ghrq.Tokenizer` accepts, memory-mapped ones too. Among
            neighbours with equally many shared codes, those at the smallest Euclidean distance come first. Without
            vectors, they come in the order of the catalogue. Vectors are not saved.

    Attributes:
        ids: numpy array ``(n,)``.
        codes: tensor ``(n, num_stages)`` int64.

    """

    def __init__(self, ids: Ids, codes: Codes, name: str = "id", vectors: Any = None) -> None:
        self.ids, self.name = _plain_ids(ids), name
        if name == "codes":
            raise ValueError("the ids cannot be called 'codes': that is the name of the other column")
        tuples = torch.as_tensor(codes)
        if tuples.dim() != 2 or len(tuples) != len(self.ids):
            raise ValueError(
                f"expected codes of shape ({len(self.ids)}, num_stages) for {len(self.ids)} ids, "
                f"got shape {tuple(tuples.shape)}"
            )
        if tuples.is_floating_point() or tuples.dtype == torch.bool:
            raise ValueError(f"expected integer codes, got {tuples.dtype}")
        self.codes = tuples.long()
        sizes = (self.codes.amax(0) + 1).clamp(min=1).tolist() if tuples.numel() else 1
        self._trie = PrefixTrie(self.codes, sizes)
        self._rows = dict(zip(self.ids.tolist(), range(len(self.ids)), strict=True))
        if len(self._rows) < len(self.ids):
            _name_duplicate(self.ids)
        self._vectors = None if vectors is None else as_rows(vectors)
        if self._vectors is not None and self._vectors.count != len(self.ids):
            raise ValueError(f"expected {len(self.ids)} vectors, one for each item, got {self._vectors.count}")

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str | int]:
        """The ids, in the order of the catalogue."""
        return iter(self._rows)

    def __contains__(self, item: object) -> bool:
        return item in self._rows

    def __getitem__(self, item: str | int) -> Tensor:
        """The codes ``(num_stages,)`` of one item. An unknown one is a KeyError."""
        return self.codes[self.rows_of(np.array([item], dtype=object))[0]]

    def __repr__(self) -> str:
        stages = self.codes.shape[1]
        return f"<Catalogue of {len(self):,} items with {stages} code{'' if stages == 1 else 's'} each>"

    def to_pandas(self) -> Any:
        """A pandas frame: the ids as its index, and the columns ``code_1``, ``code_2``, …"""
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise UserError("to_pandas needs pandas, which is not installed: pip install pandas") from error
        columns = [f"code_{stage + 1}" for stage in range(self.codes.shape[1])]
        return pandas.DataFrame(self.codes.cpu().numpy(), pandas.Index(self.ids, name=self.name), columns)

    def rows_of(self, ids: Ids) -> Tensor:
        """The rows ``(m,)`` int64 of the m items ``ids``. An unknown one is a KeyError."""
        queries = _plain_ids(ids).tolist()
        rows = list(map(self._rows.get, queries))
        if None in rows:
            raise KeyError(
                f"{rows.count(None)} of {len(rows)} items are not in the catalogue, whose ids are like "
                f"{next(iter(self._rows))!r}; the first is {queries[rows.index(None)]!r}"
            )
        return torch.tensor(rows, dtype=torch.int64, device=self.codes.device)

    def codes_of(self, ids: Ids) -> Tensor:
        """The tuples ``(m, num_stages)`` of the m items ``ids``. An unknown one is a KeyError."""
        return self.codes[self.rows_of(ids)]

    def ids_of(self, codes: Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The item of each of ``codes (m, num_stages)``: ``(m,)``.

        A tuple that no item has is a KeyError; one that several items share is a ValueError: use :meth:`under`.
        """
        tuples = torch.as_tensor(codes).to(self.codes.device)
        if tuples.dim() != 2:
            raise ValueError(f"expected codes of shape (m, {self._trie.num_stages}), got shape {tuple(tuples.shape)}")
        found = self._trie.items(tuples)
        count = found.indptr.diff()
        if bool((count == 0).any()):
            unknown = tuples[count == 0]
            raise KeyError(
                f"{len(unknown)} of {len(tuples)} tuples belong to no item, the first is {unknown[0].tolist()}"
            )
        if bool((count > 1).any()):
            first = int((count > 1).nonzero()[0])
            raise ValueError(
                f"{int(count[first])} items share the tuple {tuples[first].tolist()}: under() lists them, "
                "and ghrq.ids.resolve gives every item a tuple of its own"
            )
        return self.ids[found.items.cpu().numpy()]

    def under(self, prefix: Sequence[int] | Tensor) -> npt.NDArray[Any]:
        """All items whose tuple starts with ``prefix`` (up to num_stages codes), in the order of the catalogue."""
        wanted = torch.as_tensor(prefix, dtype=torch.int64, device=self.codes.device)
        if wanted.dim() != 1:
            raise ValueError(f"expected one prefix, a sequence of codes, got shape {tuple(wanted.shape)}")
        node, known = self._trie.walk(wanted)
        if not known:
            return self.ids[:0]
        if not len(wanted):
            return self.ids
        depth = self._depths[len(wanted) - 1]
        return self.ids[depth.order[depth.indptr[node] : depth.indptr[node + 1]].cpu().numpy()]

    def neighbours(self, ids: Ids, k: int) -> Neighbours:
        """For each of the B items ``ids``, up to ``k`` others that share at least its first code.

        Sorted by the number of shared codes, most first; equal ones by the distance of their vectors, and without
        vectors in the order of the catalogue.
        """
        at_least("k", k, 1, whole=True)
        queries = self.rows_of(ids)
        sizes = self._group_sizes(queries, k)
        chunks = (sizes.sum(1).cumsum(0) // _PAIRS).bincount(minlength=1).tolist()  # number of queries in each
        parts = [
            self._nearest(part, size, k) for part, size in zip(queries.split(chunks), sizes.split(chunks), strict=True)
        ]
        count, rows, shared = (torch.cat(column) for column in zip(*parts, strict=True))
        return Neighbours(torch.nn.functional.pad(count.cumsum(0), (1, 0)), self.ids[rows.cpu().numpy()], shared)

    def _group_sizes(self, queries: Tensor, k: int) -> Tensor:
        """How many rows of each prefix of ``queries (B,)`` may be among the k nearest: ``(B, num_stages)``.

        With vectors: all rows of a prefix, except of those shorter than the longest that k others share. Without: the
        first 2k, as these include the first k that share no longer prefix.
        """
        sizes = torch.stack([depth.indptr.diff()[depth.node[queries]] for depth in self._depths], dim=1)
        if self._vectors is None:
            return sizes.clamp(max=2 * k)
        enough = torch.nn.functional.pad(sizes[:, 1:] > k, (0, 1), value=False)
        return sizes.masked_fill(enough, 0)

    def _nearest(self, queries: Tensor, sizes: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Number of neighbours (at most k) of each of the rows ``queries (B,)``, then their rows and shared lengths."""
        stages, pairs = self.codes.shape[1], []
        for shared, (depth, size) in enumerate(zip(self._depths, sizes.unbind(1), strict=True), start=1):
            owner, place = ranges(depth.indptr[depth.node[queries]], size)
            row, query = depth.order[place], queries[owner]
            fits = row != query
            if shared < stages:  # the others are among the pairs of the next depth
                deeper = self._depths[shared].node
                fits &= deeper[row] != deeper[query]
            pairs.append(torch.stack((owner, row, torch.full_like(row, shared)))[:, fits])
        found = torch.cat(pairs, dim=1)
        if self._vectors is not None:
            found = found[:, self._distances(queries[found[0]], found[1]).argsort(stable=True)]
        found = found[:, (found[0] * (stages + 1) - found[2]).argsort(stable=True)]
        count = torch.bincount(found[0], minlength=len(queries))
        first = count.cumsum(0) - count
        count = count.clamp(max=k)
        _, rows, shared_codes = found[:, ranges(first, count)[1]]
        return count, rows, shared_codes

    def _distances(self, first: Tensor, second: Tensor) -> Tensor:
        """Squared Euclidean distances of the vectors of rows ``first (P,)`` and ``second (P,)``."""
        assert self._vectors is not None
        size, parts = max(1, _NUMBERS // self._vectors.dim), []
        for one, other in zip(first.cpu().split(size), second.cpu().split(size), strict=True):
            x, y = (self._vectors.take(rows.numpy()) for rows in (one, other))
            parts.append((x - y).square().sum(1))
        return torch.cat(parts).to(first.device) if parts else torch.zeros(0, device=first.device)

    @cached_property
    def _depths(self) -> list[_Depth]:
        node, depths = torch.zeros_like(self.codes[:, 0]), []
        for depth, column in enumerate(self.codes.unbind(1)):
            node, _ = self._trie.child(node, column, depth)
            ends = torch.bincount(node).cumsum(0)
            depths.append(_Depth(node, node.argsort(stable=True), torch.nn.functional.pad(ends, (1, 0))))
        return depths

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Parquet file atomically: the ids under their name, ``codes`` as fixed-size lists."""
        pa, parquet = require("pyarrow", "tokenizer"), require("pyarrow.parquet", "tokenizer")
        flat = pa.array(self.codes.to("cpu", torch.int32).flatten().numpy())
        codes = pa.FixedSizeListArray.from_arrays(flat, self.codes.shape[1])
        table = pa.table({self.name: pa.array(self.ids), "codes": codes})
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            parquet.write_table(table, file, write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | os.PathLike[str], vectors: Any = None) -> "Catalogue":
        """Read a Parquet file of ids and codes: the first column that is not ``codes`` has the ids.

        ``vectors``: in the order of the file, see :class:`Catalogue`.
        """
        pa = require("pyarrow", "tokenizer")
        from ghrq.data.tables import CODES_COLUMN, VectorTable
        from ghrq.data.tables.sources import ParquetSource

        if not Path(path).exists():
            raise UserError(f"there is no file {path}: check the name")
        source = ParquetSource(Path(path))
        names = [name for name in source.schema.names if name != CODES_COLUMN]
        if len(names) == len(source.schema.names) or not names:
            raise UserError(f"{path}: expected a column of ids and a column 'codes', got {source.schema.names}")
        ids, codes = zip(*VectorTable(source, CODES_COLUMN, names[0], None, np.int32).batches(_ROWS_READ), strict=True)
        try:
            return cls(pa.chunked_array(ids).to_numpy(), np.concatenate(codes), names[0], vectors)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error


def _plain_ids(ids: Ids) -> npt.NDArray[Any]:
    """Ids as an array of Python strings or of int64 (uint64 if needed); other types are refused, not converted."""
    if isinstance(ids, str):
        raise ValueError(f"expected a sequence of ids, got the string {ids!r}: pass a list")
    # Without dtype=object, numpy would convert numbers in a list with strings to strings.
    array = np.asarray(ids, dtype=object if isinstance(ids, list | tuple) else None)
    if array.ndim != 1:
        raise ValueError(f"expected ids as a sequence, one for each item, got shape {array.shape}")
    kinds = set(map(type, array.tolist()))
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        for dtype in (np.int64, np.uint64):
            try:
                return np.array(array.tolist(), dtype=dtype)
            except OverflowError:
                continue
        raise ValueError("expected ids as strings or as whole numbers of 64 bits: convert them to strings")
    if all(issubclass(kind, str) for kind in kinds):
        return array.astype(object)
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"expected ids as strings or as whole numbers, all of one kind, got {found}")


def _name_duplicate(ids: npt.NDArray[Any]) -> None:
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    again = int(np.flatnonzero(first[inverse] != np.arange(len(ids)))[0])
    rows = np.flatnonzero(inverse == inverse[again])
    listed = ", ".join(map(str, rows[:10])) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
    raise UserError(
        f"the ids must be different, but {ids.tolist()[again]!r} is in rows {listed} (from 0): "
        "remove or rename the duplicates"
    )
