"""Score the items of some lists for many queries, list by list: a list is read and decoded once for all its queries.

Scores are ``‖x‖² - 2⟨q, x⟩``, the squared distance without the term of the query. Two ways give the same numbers:

``decoded``  the items of a list are decoded, then one matrix product; for every kind of tokenizer;
``tables``   ``⟨q, x⟩ = Σ_i ⟨q, book_i[code_i]⟩``: products of a query with all codes, then a look-up for each code; only
             for flat tokenizers. Cheaper for few queries, and for long vectors.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ghrq.search.decoder import Codes, Decoder
from ghrq.search.lists import Lists
from ghrq.system.progress import Bar

# Numbers of a piece of a list in memory at once: its decoded vectors, or its scores.
_NUMBERS = 2**21

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
    scores = torch.full((count, probes, k), torch.inf)
    rows = torch.zeros(count, probes, k, dtype=torch.int64)
    tables = _tables(decoder, queries) if tables_are_cheaper(lists, decoder, count, probes) else None
    order = chosen.flatten().argsort(stable=True)
    probed, sizes = chosen.flatten()[order].unique_consecutive(return_counts=True)
    for number, pairs in zip(probed.tolist(), order.split(sizes.tolist()), strict=True):
        owner, place = pairs // probes, pairs % probes
        found = _best_of_list(lists, decoder, number, queries[owner], None if tables is None else tables[owner], k)
        width = found.scores.shape[1]
        scores[owner, place, :width], rows[owner, place, :width] = found
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


def _best_of_list(lists: Lists, decoder: Decoder, number: int, queries: Tensor, tables: Tensor | None, k: int) -> Best:
    """The best of one list, at most k, for ``queries (m, d)``, with their ``tables (m, Σ sizes)`` if they are used."""
    best: Best | None = None
    # A real copy: with strides that are not those of one column, look-ups take 15 times as long.
    columns = None if tables is None else tables.T.clone(memory_format=torch.contiguous_format)
    for first, codes in _pieces(lists, number, max(len(queries), decoder.centre.numel())):
        norms = None if lists.norms is None else torch.from_numpy(lists.norms[first : first + len(codes)].copy())
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
        found = Best(top.values, top.indices + first)
        if best is not None:
            found = Best(*(torch.cat(both, dim=1) for both in zip(best, found, strict=True)))
            top = found.scores.topk(min(k, found.scores.shape[1]), dim=1, largest=False)
            found = Best(top.values, found.rows.gather(1, top.indices))
        best = found
    assert best is not None  # no list is empty
    return best


def _pieces(lists: Lists, number: int, width: int) -> Iterator[tuple[int, Codes]]:
    """A list in pieces of at most ``_NUMBERS / width`` items, each with its first row."""
    start, stop = (int(row) for row in lists.starts[number : number + 2])
    size = max(1, _NUMBERS // width)
    for first in range(start, stop, size):
        yield first, lists.codes[first : min(first + size, stop)]


def items_of(lists: Lists, chosen: Tensor) -> Tensor:
    """How many items the lists ``chosen (m, p)`` have: ``(m,)`` int64."""
    return torch.from_numpy(np.diff(lists.starts))[chosen].sum(1)
