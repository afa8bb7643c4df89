"""Score the items of some lists for queries. A list is read and decoded once for all its queries, if there are many.

Scores are ``‖x‖² - 2⟨q, x⟩``, the squared distance without the term of the query. Two ways give the same numbers:

``decoded``  the items of a list are decoded, then one matrix product; for every kind of tokenizer;
``tables``   ``⟨q, x⟩ = Σ_i ⟨q, book_i[code_i]⟩``: products of a query with all codes, then a look-up for each code;
             only for flat tokenizers. Cheaper for few queries, and for long vectors.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

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


Span = tuple[int, int]
"""A first row and the row after the last."""


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
    if _FEW * count <= len(probed):  # hardly any list is shared: all lists of a query at once
        parts = []
        for one in range(count):
            table = None if tables is None else tables[one : one + 1]
            parts.append(_padded(_best_of_lists(lists, decoder, chosen[one], queries[one : one + 1], table, k), k))
            bar.advance(probes)
        return Best(*(torch.cat(column) for column in zip(*parts, strict=True)))
    scores = torch.full((count, probes, k), torch.inf)
    rows = torch.zeros(count, probes, k, dtype=torch.int64)
    for number, pairs in zip(probed.split(1), order.split(sizes.tolist()), strict=True):
        owner, place = pairs // probes, pairs % probes
        table = None if tables is None else tables[owner]
        scores[owner, place], rows[owner, place] = _padded(
            _best_of_lists(lists, decoder, number, queries[owner], table, k), k
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


def _best_of_lists(lists: Lists, decoder: Decoder, own: Tensor, queries: Tensor, tables: Tensor | None, k: int) -> Best:
    """The best of the lists ``own (p,)``, at most k, for ``queries (m, d)``, with ``tables (m, Σ sizes)`` if used.

    In pieces, so that neither the decoded vectors nor the scores take much memory.
    """
    parts = []
    numbers = own.sort().values.numpy()
    spans = zip(lists.starts[numbers].tolist(), lists.starts[numbers + 1].tolist(), strict=True)
    for piece in _pieces(spans, max(1, _NUMBERS // (max(queries.shape) if tables is None else len(queries)))):
        codes = _read(lists.codes, piece)
        norms = None if lists.norms is None else torch.from_numpy(_read(lists.norms, piece))
        if tables is None:
            x = decoder(codes)
            norms = x.square().sum(1) if norms is None else norms
            scores = torch.addmm(norms, queries, x.T, alpha=-2.0)
        else:
            assert norms is not None
            scores = _looked_up(decoder, codes, tables) + norms
        top = scores.topk(min(k, len(codes)), dim=1, largest=False)
        parts.append(Best(top.values, _rows(piece, top.indices)))
    found = Best(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))
    if len(parts) == 1:
        return found
    top = found.scores.topk(min(k, found.scores.shape[1]), dim=1, largest=False)
    return Best(top.values, found.rows.gather(1, top.indices))


def _looked_up(decoder: Decoder, codes: Codes, tables: Tensor) -> Tensor:
    """Sums of ``tables (m, Σ sizes)`` over ``codes (r, N)``: ``(m, r)``."""
    assert decoder.sum is not None
    if len(tables) == 1:  # stage by stage, in two thirds of the time
        table, starts = tables[0].numpy(), decoder.sum.offsets.tolist()
        total = table.take(codes[:, 0])
        for stage in range(1, codes.shape[1]):
            total += table[starts[stage] :].take(codes[:, stage])
        return torch.from_numpy(total).unsqueeze(0)
    # A real copy: with strides that are not those of one column, look-ups take 15 times as long.
    columns = tables.T.clone(memory_format=torch.contiguous_format)
    return F.embedding_bag(decoder.sum.numbers(codes), columns, mode="sum").T.contiguous()


def _pieces(spans: Iterable[Span], most: int) -> Iterator[list[Span]]:
    """Spans of rows, in groups of ``most`` rows; the last one may have fewer."""
    piece, room = list[Span](), most
    for first, stop in spans:
        while first < stop:
            end = min(stop, first + room)
            piece.append((first, end))
            first, room = end, room - (end - first)
            if not room:
                yield piece
                piece, room = [], most
    if piece:
        yield piece


def _read(array: npt.NDArray[Any], piece: list[Span]) -> npt.NDArray[Any]:
    """The rows of a piece, copied, as ``array`` may be a file that is mapped for reading."""
    return np.concatenate([array[first:stop] for first, stop in piece])


def _rows(piece: list[Span], places: Tensor) -> Tensor:
    """The rows in the lists of ``places (m, k)`` in a piece."""
    firsts, stops = np.array(piece).T
    ends = np.cumsum(stops - firsts)
    return places + torch.from_numpy((stops - ends)[np.searchsorted(ends, places.numpy(), side="right")])


def _padded(best: Best, k: int) -> Best:
    """With k columns."""
    missing = k - best.scores.shape[1]
    return Best(F.pad(best.scores, (0, missing), value=torch.inf), F.pad(best.rows, (0, missing)))


def items_of(lists: Lists, chosen: Tensor) -> Tensor:
    """How many items the lists ``chosen (m, p)`` have: ``(m,)`` int64."""
    return torch.from_numpy(np.diff(lists.starts))[chosen].sum(1)
