"""Score the items of some lists for queries. A list is read and decoded once for all its queries, if there are many.

Scores are ``‖x‖² - 2⟨q, x⟩``, the squared distance without the term of the query. Two ways give the same numbers:

``decoded``  the items of a list are decoded, then one matrix product; for every kind of tokenizer;
``tables``   ``⟨q, x⟩ = Σ_i ⟨q, book_i[code_i]⟩``: products of a query with all codes, then a look-up for each code;
             only for flat tokenizers. Cheaper for few queries, and for long vectors.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from ghrq.ids.trie import ranges
from ghrq.search.decoder import Codes, Decoder
from ghrq.search.lists import Lists
from ghrq.system.progress import Bar

# Numbers of a piece of a list in memory at once: its decoded vectors, or its scores.
_NUMBERS = 2**21

# Queries are scanned one by one if there are this many times as many lists to look at.
_FEW = 4

# Nanoseconds on one core of a server of 2023: to add one number of a decoded vector, for one number of a matrix
# product, to copy one number of a table, and to look up one code for one query, or one code for all queries.
_ADD, _MULTIPLY, _COPY, _LOOK_UP, _LOOK_UP_ANY = 0.2, 0.04, 2.5, 0.25, 6.5


class Best(NamedTuple):
    """The best items of ``m`` queries, best first; missing ones have the score ∞."""

    scores: Tensor
    """``(m, k)``."""
    rows: Tensor
    """``(m, k)`` int64, rows in the lists."""


def scan(lists: Lists, decoder: Decoder, queries: Tensor, chosen: Tensor, k: int, bar: Bar) -> Best:
    """The ``k`` best items of the lists ``chosen (m, p)`` for each of ``queries (m, d)``."""
    count, probes = chosen.shape
    tables = _tables(decoder, queries) if tables_are_cheaper(lists, decoder, count, probes) else None
    order = chosen.flatten().argsort(stable=True)
    probed, sizes = chosen.flatten()[order].unique_consecutive(return_counts=True)
    starts = torch.from_numpy(np.array(lists.starts))
    if _FEW * count <= len(probed):  # hardly any list is shared: all lists of a query at once
        parts = []
        for one in range(count):
            own = chosen[one].sort().values
            _, rows = ranges(starts[own], starts[own + 1] - starts[own])
            table = None if tables is None else tables[one : one + 1]
            parts.append(_padded(_best_of_rows(lists, decoder, rows, queries[one : one + 1], table, k), k))
            bar.advance(probes)
        return Best(*(torch.cat(column) for column in zip(*parts, strict=True)))
    scores = torch.full((count, probes, k), torch.inf)
    rows = torch.zeros(count, probes, k, dtype=torch.int64)
    for number, pairs in zip(probed.tolist(), order.split(sizes.tolist()), strict=True):
        owner, place = pairs // probes, pairs % probes
        inside = torch.arange(int(starts[number]), int(starts[number + 1]))
        table = None if tables is None else tables[owner]
        scores[owner, place], rows[owner, place] = _padded(
            _best_of_rows(lists, decoder, inside, queries[owner], table, k), k
        )
        bar.advance(len(owner))
    best = scores.flatten(1).topk(k, dim=1, largest=False)
    return Best(best.values, rows.flatten(1).gather(1, best.indices))


def tables_are_cheaper(lists: Lists, decoder: Decoder, queries: int, probes: int) -> bool:
    """Whether look-up tables take less time than decoding, for this many queries and probes; never, if not flat."""
    if decoder.sum is None:
        return False
    codes, dim = decoder.sum.books.shape
    stages, items = lists.codes.shape[1], len(lists.codes) / len(lists)
    shared = max(1.0, queries * probes / len(lists))  # queries that probe the same list
    decoded = items * dim * (_ADD * stages + _MULTIPLY * shared)
    looked_up = shared * codes * _COPY + items * stages * max(_LOOK_UP_ANY, _LOOK_UP * shared)
    return looked_up < decoded


def _tables(decoder: Decoder, queries: Tensor) -> Tensor:
    """``(m, Σ sizes)``: what each code adds to the score of an item, except for the norm."""
    assert decoder.sum is not None
    return queries @ decoder.sum.books.T * -2.0


def _best_of_rows(lists: Lists, decoder: Decoder, rows: Tensor, queries: Tensor, tables: Tensor | None, k: int) -> Best:
    """The best of some ``rows (r,)``, at most k, for ``queries (m, d)``, with ``tables (m, Σ sizes)`` if they are used.

    In pieces, so that neither the decoded vectors nor the scores take much memory.
    """
    best: Best | None = None
    # A real copy: with strides that are not those of one column, look-ups take 15 times as long.
    columns = None if tables is None else tables.T.clone(memory_format=torch.contiguous_format)
    for part in rows.split(max(1, _NUMBERS // max(queries.shape))):
        codes, norms = _read(lists, part)
        if columns is None:
            x = decoder(codes)
            norms = x.square().sum(1) if norms is None else norms
            scores = torch.addmm(norms, queries, x.T, alpha=-2.0)
        else:
            assert decoder.sum is not None
            assert norms is not None
            looked_up = F.embedding_bag(decoder.sum.numbers(codes), columns, mode="sum")
            scores = (looked_up + norms[:, None]).T.contiguous()
        top = scores.topk(min(k, len(codes)), dim=1, largest=False)
        found = Best(top.values, part[top.indices])
        if best is not None:
            found = Best(*(torch.cat(both, dim=1) for both in zip(best, found, strict=True)))
            top = found.scores.topk(min(k, found.scores.shape[1]), dim=1, largest=False)
            found = Best(top.values, found.rows.gather(1, top.indices))
        best = found
    assert best is not None  # no list is empty
    return best


def _read(lists: Lists, rows: Tensor) -> tuple[Codes, Tensor | None]:
    """Codes ``(r, N)`` and norms ``(r,)``, if there are any, of ``rows (r,)``, ascending."""
    first, stop = int(rows[0]), int(rows[-1]) + 1
    whole = stop - first == len(rows)

    def read(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[first:stop] if whole else array.take(rows.numpy(), axis=0)

    return read(lists.codes), None if lists.norms is None else torch.from_numpy(np.array(read(lists.norms)))


def _padded(best: Best, k: int) -> Best:
    """With k columns."""
    missing = k - best.scores.shape[1]
    return Best(F.pad(best.scores, (0, missing), value=torch.inf), F.pad(best.rows, (0, missing)))


def items_of(lists: Lists, chosen: Tensor) -> Tensor:
    """How many items the lists ``chosen (m, p)`` have: ``(m,)`` int64."""
    return torch.from_numpy(np.diff(lists.starts))[chosen].sum(1)
