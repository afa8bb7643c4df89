"""The index: built from a tokenizer and its IDs, searched, changed, saved."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from ghrq.data.arrays import ArrayRows, as_rows
from ghrq.data.tables import manifest, open_codes
from ghrq.ids import Catalogue
from ghrq.ids.growth import id_list, places
from ghrq.search.decoder import Codes, Decoder
from ghrq.search.lists import Lists
from ghrq.search.scan import Best, items_of, scan
from ghrq.system.checks import at_least
from ghrq.system.errors import UserError, counted
from ghrq.system.progress import Bar, make_progress

if TYPE_CHECKING:
    from ghrq.search.arrow import ArrowIndex
    from ghrq.tokenizer import Tokenizer

Ids = Catalogue | Codes | Tensor | str | os.PathLike[str]

PROBED = 1 / 16
"""Share of the lists that are probed by default."""

# Candidates, all queries times probed lists times k, in memory at once; numbers of vectors to rank again.
_CANDIDATES, _NUMBERS = 2**22, 2**22

# Rows of a file read at once.
_ROWS = 2**17


class Found(NamedTuple):
    """The nearest items of ``m`` queries, nearest first; k is at most the number of items."""

    ids: npt.NDArray[Any]
    """``(m, k)`` the items: text or whole numbers."""
    distances: npt.NDArray[np.float32]
    """``(m, k)`` squared Euclidean distances from the query to the decoded ID, or to the vector if ranked again."""


class CodeIndex:
    """Nearest items of a query, from their codes alone.

    >>> index = CodeIndex(tokenizer, tokenizer.encode(X))     # or a Catalogue, or the path of a file of IDs
    >>> index.search(X[:2], k=3).ids
    array([[0, 812, 95],
           [1, 340, 77]])

    Items are in lists by their first codes. A search looks at the lists whose decoded codes are nearest to the query,
    and ranks their items by the Euclidean distance between the query and the decoded ID, in the space of the vectors
    and for every kind of tokenizer, so that neighbours of different kinds are comparable. Items with the same codes are
    equally near: where more of them are at the limit of k than are wanted, any of them may be found.

    Args:
        tokenizer: the fitted :class:`ghrq.Tokenizer` that made the IDs.
        ids: a :class:`ghrq.ids.Catalogue`; a file of IDs (its retired items are left out); or codes ``(n, N)``, whose
            items are numbered from 0. A tie-break token, one code more, is ignored.

    Attributes:
        tokenizer: the tokenizer.
        lists: the items, see :class:`ghrq.search.lists.Lists`.

    """

    def __init__(self, tokenizer: "Tokenizer", ids: Ids) -> None:
        decoder = Decoder(tokenizer)
        codes, names = _items(tokenizer, decoder, ids, first=0)
        _check_distinct(names, ids)
        self._set(tokenizer, decoder, Lists.of(codes, np.arange(len(codes)), names, decoder), len(codes))

    def _set(self, tokenizer: "Tokenizer", decoder: Decoder, lists: Lists, following: int) -> None:
        """``following`` is the number of the next item that is added."""
        self.tokenizer, self._decoder, self.lists, self._next = tokenizer, decoder, lists, following
        self._centroids = lists.centroids(decoder)

    @classmethod
    def _of(cls, tokenizer: "Tokenizer", lists: Lists, following: int) -> "CodeIndex":
        index = cls.__new__(cls)
        index._set(tokenizer, Decoder(tokenizer), lists, following)
        return index

    def __len__(self) -> int:
        return len(self.lists.codes)

    def __repr__(self) -> str:
        return f"<CodeIndex of {len(self):,} items in {len(self.lists):,} lists>"

    # --- search --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def search(
        self,
        queries: Any,
        k: int = 10,
        probes: int | None = None,
        *,
        rerank: Any = None,
        candidates: int | None = None,
    ) -> Found:
        """The ``k`` nearest items of each of ``queries (m, d)``; all items, if there are fewer.

        Args:
            queries: vectors of the kind that the tokenizer was fitted on: an array, a frame, a memory-mapped file.
            k: number of items.
            probes: number of lists to look at, by default a sixteenth of them. More are more precise and slower; all
                of them (``len(index.lists)``) make the search exhaustive. Where they hold fewer than k items, more
                lists are taken.
            rerank: the vectors ``(n, d)`` of the items, in the order in which the index got them, such as
                ``np.load("items.npy", mmap_mode="r")``: the best ``candidates`` are ranked by them again.
            candidates: how many to rank again, by default ``10 * k``.

        """
        at_least("k", k, 1, whole=True)
        rows = as_rows(queries)
        if rows.dim != self.tokenizer.n_features_in_:
            raise UserError(
                f"the queries have {rows.dim} numbers each, the tokenizer was fitted on vectors of "
                f"{self.tokenizer.n_features_in_}: give vectors of the same kind"
            )
        k, probes = min(k, len(self)), self._probes(probes)
        vectors = None if rerank is None else self._vectors(rerank)
        wanted = k
        if candidates is not None:
            at_least("candidates", candidates, k, whole=True)
        if vectors is not None:
            wanted = min(candidates or 10 * k, len(self))
        elif candidates is not None:
            raise UserError("candidates are of rerank, which is not given: give the vectors to rank them by")
        step = max(1, _CANDIDATES // (probes * wanted))
        parts = []
        with make_progress().patient_bar("searching", rows.count * probes, "lists") as bar:
            for first in range(0, rows.count, step):
                q = self._query(rows.take(slice(first, first + step)), first)
                best = self._exact(q, self._best(q, wanted, probes, bar), k, vectors)
                parts.append(best)
        scores, found = (torch.cat(column).numpy() for column in zip(*parts, strict=True))
        return Found(_plain(self.lists.names.take(found.reshape(-1))).reshape(found.shape), scores)

    def like(self, items: Any, k: int = 10, probes: int | None = None, *, rerank: Any = None) -> Found:
        """:meth:`search` for items that are like ``items``, a list of ids, which are left out of their own result.

        The query is the decoded ID; with ``rerank`` it is the item's vector.
        """
        at_least("k", k, 1, whole=True)
        rows = self._rows_of(items)
        if rerank is None:
            queries = self.decode(items)
        else:
            queries = self._vectors(rerank).take(self.lists.numbers[rows]).float().numpy()
        found = self.search(queries, min(k + 1, len(self)), probes, rerank=rerank)
        own = found.ids == _plain(self.lists.names.take(rows))[:, None]
        own[~own.any(axis=1), -1] = True  # not found itself: then the last one is too many
        shape = (len(rows), found.ids.shape[1] - 1)
        return Found(found.ids[~own].reshape(shape), found.distances[~own].reshape(shape))

    def decode(self, items: Any) -> npt.NDArray[np.float32]:
        """The decoded IDs of ``items``, a list of m ids: ``(m, d)``."""
        return self.tokenizer.decode(self.lists.codes[self._rows_of(items)].astype(np.int64))

    def _query(self, x: Tensor, first: int) -> Tensor:
        """Vectors ``(m, d)`` around the centre; ``first`` is the number of the first, for an error."""
        q = x.float() - self._decoder.centre
        wrong = (~q.square().sum(1).isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise UserError(
                f"query {first + wrong[0]} is so long that its distances are infinite in float32: scale it as the "
                "vectors that the tokenizer was fitted on"
            )
        return q

    def _best(self, queries: Tensor, k: int, probes: int, bar: Bar) -> Best:
        """The k best items by their codes; queries whose lists hold fewer look at more."""
        chosen = self.lists.nearest(queries, self._centroids, probes)
        few = items_of(self.lists, chosen) < k
        best = scan(self.lists, self._decoder, queries, chosen, k, bar)
        if few.any():
            again = self._best(queries[few], k, min(2 * probes, len(self.lists)), bar)
            best.scores[few], best.rows[few] = again
        return best

    def _exact(self, queries: Tensor, best: Best, k: int, vectors: ArrayRows | None) -> Best:
        """Distances of ``best (m, b)`` to ``queries (m, d)`` by differences, and the nearest k of them.

        Differences keep the digits that the sums of squares lose where a query is close to an item.
        """
        count, width = best.rows.shape
        distances = torch.empty(count, width)
        step = max(1, _NUMBERS // (width * queries.shape[1]))
        for first in range(0, count, step):
            part = slice(first, first + step)
            rows = best.rows[part].flatten().numpy()
            if vectors is None:
                x = self._decoder(self.lists.codes[rows])
            else:
                x = vectors.take(self.lists.numbers[rows]).float() - self._decoder.centre
            difference = x.view(-1, width, queries.shape[1]) - queries[part, None]
            distances[part] = torch.linalg.vector_norm(difference, dim=-1).square()
        # Of equally near items the one that was given first comes first.
        numbers = torch.from_numpy(self.lists.numbers[best.rows.numpy()])
        order = numbers.argsort(dim=1)
        order = order.gather(1, distances.gather(1, order).argsort(dim=1, stable=True))[:, :k]
        return Best(distances.gather(1, order), best.rows.gather(1, order))

    def _probes(self, probes: int | None) -> int:
        if probes is None:
            return -int(-len(self.lists) * PROBED // 1)
        at_least("probes", probes, 1, whole=True)
        return min(probes, len(self.lists))

    def _vectors(self, given: Any) -> ArrayRows:
        vectors = as_rows(given)
        if vectors.count < self._next or vectors.dim != self.tokenizer.n_features_in_:
            raise UserError(
                f"rerank has shape ({vectors.count}, {vectors.dim}), expected the {self._next} vectors of "
                f"{self.tokenizer.n_features_in_} numbers that items were given for, in that order"
            )
        return vectors

    # --- changes -------------------------------------------------------------------------------------------

    def add(self, ids: Ids) -> None:
        """Add items: a catalogue, a file of IDs or codes, as for a new index. Items that are there are an error.

        All lists are made again: add many at once. With ``rerank`` their vectors follow those of earlier items.
        """
        codes, names = _items(self.tokenizer, self._decoder, ids, first=self._next)
        old = self.lists
        if pa.types.is_integer(names.type) != pa.types.is_integer(old.names.type):
            raise UserError(f"the index has ids such as {old.names[0]}, those to add are like {names[0]}: use one type")
        _check_distinct(names, ids)
        known = places([old.names], names) >= 0
        if known.any():
            first = names[int(np.flatnonzero(known)[0])]
            raise UserError(f"{int(known.sum()):,} items are in the index, the first is {first}: remove them first")
        every = np.ones(len(self), dtype=bool)
        codes_before, numbers, names_before = old.chosen(every)
        joined = pa.concat_arrays([names_before, names.cast(names_before.type)])
        following = self._next + len(codes)
        lists = Lists.of(
            np.concatenate((codes_before, codes)),
            np.concatenate((numbers, np.arange(self._next, following))),
            joined,
            self._decoder,
        )
        self._set(self.tokenizer, self._decoder, lists, following)

    def remove(self, ids: Any) -> None:
        """Remove items, a list of their ids. Unknown ones are an error, and then nothing changes."""
        keep = np.ones(len(self), dtype=bool)
        keep[self._rows_of(ids)] = False
        if not keep.any():
            raise UserError(f"all {len(self):,} items would be removed: an index needs at least one")
        lists = Lists.of(*self.lists.chosen(keep), self._decoder)
        self._set(self.tokenizer, self._decoder, lists, self._next)

    def _rows_of(self, ids: Any) -> npt.NDArray[np.int64]:
        """Rows in the lists of some items."""
        wanted = id_list(ids)
        unique = wanted.unique()
        rows = places([self.lists.names], unique)
        if (rows < 0).any():
            raise UserError(
                f"the index lacks {counted(int((rows < 0).sum()), 'item')} of {len(rows):,}; its ids are like "
                f"{self.lists.names[0]}; the first is {unique[int(np.flatnonzero(rows < 0)[0])]}: correct it"
            )
        return rows[pc.index_in(wanted, value_set=unique).to_numpy()]

    # --- files and other engines ---------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write a folder, with the tokenizer, atomically; ``force`` replaces an index that is there."""
        from ghrq.search import storage

        storage.save(Path(folder), self.tokenizer, self.lists, self._next, force)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], check: bool = True) -> "CodeIndex":
        """Open a folder that :meth:`save` wrote; the items are memory-mapped, not read.

        ``check`` reads all files once and compares their checksums: leave it out for an index that is trusted.
        """
        from ghrq.search import storage

        return cls._of(*storage.load(Path(folder), check))

    def to_faiss(self) -> Any:
        """The same index in faiss, see :func:`ghrq.search.faiss_index.to_faiss`; flat tokenizers only.

        It looks at as many lists as :meth:`search` does by default; ``nprobe`` of the result changes that.
        """
        from ghrq.search.faiss_index import to_faiss

        return to_faiss(self.lists, self._decoder, self._probes(None))

    def to_arrow(self) -> "ArrowIndex":
        """Lists, codebooks and codes as Arrow tables, see :class:`ghrq.search.arrow.ArrowIndex`."""
        from ghrq.search.arrow import to_arrow

        return to_arrow(self.tokenizer, self.lists, self._decoder)


def _items(tokenizer: "Tokenizer", decoder: Decoder, ids: Ids, first: int) -> tuple[Codes, Any]:
    """Codes ``(n, N)`` and names ``(n,)``; codes without names are numbered from ``first``."""
    if isinstance(ids, Catalogue):
        manifest.check_made_by(ids.manifest, tokenizer.fingerprint, "this catalogue")
        return decoder.check(ids.codes.cpu().numpy(), "this catalogue"), _wide(pa.array(ids.ids))
    if isinstance(ids, str | os.PathLike):
        table = open_codes(ids)
        manifest.check_made_by(table.manifest, tokenizer.fingerprint, table.path)
        names, parts = zip(*_checked_batches(table, decoder), strict=True)
        return np.concatenate(parts), pa.concat_arrays(map(_wide, names))
    given = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    codes = decoder.check(given, "the codes")
    if not len(codes):
        raise UserError("there are no codes: an index needs at least one item")
    return codes, pa.array(np.arange(first, first + len(codes)))


def _checked_batches(table: Any, decoder: Decoder) -> Any:
    with make_progress().patient_bar(f"reading {table.path.name}", table.rows, "rows") as bar:
        for names, codes in table.batches(_ROWS):
            yield names, decoder.check(codes, str(table.path))
            bar.advance(len(codes))


def _wide(names: Any) -> Any:
    """Text in the type that has no limit of 2 GB."""
    return names if pa.types.is_integer(names.type) else names.cast(pa.large_string())


def _check_distinct(names: Any, ids: Ids) -> None:
    if len(names.unique()) < len(names):
        counts = names.value_counts()
        first = counts.field("values")[int(counts.field("counts").to_numpy().argmax())]
        where = f"{ids}: " if isinstance(ids, str | os.PathLike) else ""
        raise UserError(
            f"{where}the ids of the items must be different, {first} occurs more than once: remove or rename duplicates"
        )


def _plain(names: Any) -> npt.NDArray[Any]:
    """An Arrow array as numpy's: whole numbers, or Python's strings."""
    return names.to_numpy(zero_copy_only=False)
