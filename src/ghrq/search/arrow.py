"""The index as Arrow tables, for engines that read centroids and codes: Lance, DuckDB, or a program of your own."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from torch import Tensor

from ghrq import __version__
from ghrq.search.decoder import Decoder
from ghrq.search.lists import Lists

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer


class ArrowIndex(NamedTuple):
    """Three tables. The metadata of their schemas, key ``ghrq``, is JSON: the tokenizer, and how codes are combined."""

    lists: Any
    """``list``, ``prefix`` (the first codes that its items share), ``centroid`` (the decoded prefix), ``items``."""
    codebooks: Any
    """``stage``, ``code`` and ``vector``.

    ``combine`` in the metadata is ``"sum"`` for flat tokenizers: an item is ``centre`` plus the vectors of its codes.
    On the ball it is ``"nested"`` or ``"chained"``, and the vectors are points of a ball of the given curvature; the
    tokenizer decodes them.
    """
    items: Any
    """``id``, ``list`` and ``codes``, in the order of the lists."""


def to_arrow(tokenizer: "Tokenizer", lists: Lists, decoder: Decoder) -> ArrowIndex:
    """Lists, codebooks and codes; the tables can be written with ``pyarrow.parquet.write_table``."""
    rq, sizes = decoder.quantizer, decoder.quantizer.sizes
    about = {
        "ghrq": __version__,
        "tokenizer": tokenizer.fingerprint,
        "kind": tokenizer.kind,
        "combine": "sum" if decoder.sum is not None else rq.aggregation,
        "curvature": rq.curvature,
        "centre": decoder.centre.tolist(),
    }
    centroids = lists.centroids(decoder) + decoder.centre
    counts = np.diff(lists.starts)
    prefixes = lists.codes[lists.starts[:-1], : lists.depth]
    # The points of the codebooks' own space, unless sums of them are vectors.
    books = [rq.codebooks[stage, :size].detach().float() for stage, size in enumerate(sizes)]
    if decoder.sum is not None:
        books = list(decoder.sum.books.split(list(sizes)))
    return ArrowIndex(
        _table(
            about,
            list=np.arange(len(lists), dtype=np.int32),
            prefix=prefixes,
            centroid=centroids,
            items=counts,
        ),
        _table(
            about,
            stage=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            code=np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
            vector=np.concatenate([book.numpy() for book in books]),
        ),
        _table(
            about,
            id=lists.names,
            list=np.repeat(np.arange(len(lists), dtype=np.int32), counts),
            codes=lists.codes,
        ),
    )


def _table(about: dict[str, Any], **columns: Any) -> Any:
    """Columns of numbers ``(n,)``, of lists ``(n, m)`` or of ids."""
    table = pa.table({name: _column(values) for name, values in columns.items()})
    return table.replace_schema_metadata({"ghrq": json.dumps(about)})


def _column(values: Any) -> Any:
    if isinstance(values, Tensor):
        values = values.numpy()
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.array(values) if isinstance(values, np.ndarray) else values
