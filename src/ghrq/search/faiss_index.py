"""The same index in faiss: our lists are its inverted lists, our later codebooks its residual quantizer."""

from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from ghrq.search.decoder import Decoder
from ghrq.search.lists import Lists
from ghrq.system.errors import UserError, require


def to_faiss(lists: Lists, decoder: Decoder, probes: int) -> Any:
    """An ``IndexIVFResidualQuantizer`` with the same lists, vectors and distances, of a flat tokenizer.

    The lists' decoded first codes are its coarse quantizer, and the codes after them its codes. So it probes the same
    lists, and its distances are those of our decoded vectors. It stores a norm for each item (4 bytes) as we do, so
    that it can use look-up tables. Items with whole numbers as ids keep them; items with text have their numbers, in
    the order in which the index got them.

    It looks at ``probes`` lists (its ``nprobe``, which can be changed). Where those hold fewer than k items, ours looks
    at more; faiss does not, and the last results are -1.

    On the ball a decoded vector is no sum of codes, which is all that faiss' quantizers know: such an index would hold
    whole vectors. ``faiss.IndexFlatL2(d).add(tokenizer.decode(ids))`` is that one, at 4·d bytes an item.
    """
    faiss = require("faiss", "search")
    if decoder.sum is None:
        raise UserError(
            "faiss knows only sums of codes, and IDs of this tokenizer are none (the ball, or an autoencoder): search "
            "here, use kind='euclidean', or give faiss whole vectors, IndexFlatL2(d).add(tokenizer.decode(ids))"
        )
    stages, dim = lists.codes.shape[1], decoder.centre.numel()
    if stages == lists.depth:
        raise UserError("all codes name the lists, none is left for faiss' quantizer: fit with one stage more")
    sizes = decoder.quantizer.sizes[lists.depth :]
    bits = [max(1, int(size - 1).bit_length()) for size in sizes]
    centroids = (lists.centroids(decoder).double() + decoder.centre.double()).float().numpy()
    coarse = faiss.IndexFlatL2(dim)
    coarse.add(centroids)
    widths = faiss.UInt64Vector()
    for width in bits:
        widths.push_back(width)
    index = faiss.IndexIVFResidualQuantizer(
        coarse, dim, len(lists), widths, faiss.METRIC_L2, faiss.AdditiveQuantizer.ST_norm_float
    )
    coarse.this.disown()
    index.own_fields = True
    # faiss' codebooks have a power of two of codes: those that we do not have are never used.
    books = np.zeros((sum(2**width for width in bits), dim), dtype=np.float32)
    first = 0
    for stage, (size, width) in enumerate(zip(sizes, bits, strict=True), start=lists.depth):
        start = int(decoder.sum.offsets[stage])
        books[first : first + size] = decoder.sum.books[start : start + size].numpy()
        first += 2**width
    faiss.copy_array_to_vector(books.reshape(-1), index.rq.codebooks)
    index.rq.is_trained = index.is_trained = True
    index.nprobe = probes
    _add(faiss, index, lists, decoder)
    return index


def _add(faiss: Any, index: Any, lists: Lists, decoder: Decoder) -> None:
    """Put the items into the inverted lists."""
    named = lists.names.to_numpy() if lists.names.type in ("int64", "uint64") else lists.numbers
    names = np.ascontiguousarray(named, dtype=np.int64)
    for number in range(len(lists)):
        rows = slice(int(lists.starts[number]), int(lists.starts[number + 1]))
        codes = np.ascontiguousarray(lists.codes[rows, lists.depth :].astype(np.int32))
        norms = _rest(lists, decoder, rows).square().sum(1).float().numpy()
        packed = np.empty((len(codes), index.rq.code_size), dtype=np.uint8)
        index.rq.pack_codes(len(codes), faiss.swig_ptr(codes), faiss.swig_ptr(packed), -1, faiss.swig_ptr(norms), None)
        index.invlists.add_entries(number, len(codes), faiss.swig_ptr(names[rows]), faiss.swig_ptr(packed))
    index.ntotal = len(names)


def _rest(lists: Lists, decoder: Decoder, rows: slice) -> Tensor:
    """What the codes after the lists' add: ``(n, d)`` float64. faiss scores it against the query minus the centroid."""
    assert decoder.sum is not None
    numbers = decoder.sum.numbers(lists.codes[rows])[:, lists.depth :]
    return F.embedding_bag(numbers, decoder.sum.books.double(), mode="sum")
