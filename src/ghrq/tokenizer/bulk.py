"""Whole tables through a tokenizer, batch by batch, on this machine or on a Ray cluster.

What stays in memory is the codes of all rows, a byte each if there are at most 256 to choose from, and 8 bytes a row to
find duplicate ids: collisions can only be settled when all codes are known. Vectors and ids are read again where they
are needed again.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ghrq.data.tables import CODES_COLUMN, Layout, Table, batch_rows, check_distinct, hash_ids, open_writer
from ghrq.data.tables.columns import place
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

if TYPE_CHECKING:
    from ghrq.ids.collisions import Policy
    from ghrq.tokenizer import Tokenizer

SILENT = Progress()

Codes = npt.NDArray[np.integer]
Vectors = npt.NDArray[np.float32]
Engine = Literal["local", "ray"]

VECTORS_COLUMN = "embedding"
"""The name of decoded vectors."""

# Bytes of vectors, and rows, that a fit sees at most: beyond that a codebook gets no better.
_SAMPLE_BYTES, _SAMPLE_ROWS = 2**29, 200_000

# Vectors whose reconstruction error a fit reports.
_MEASURED_ROWS = 20_000

# How many times the median a row's greatest number may be without a word.
_OUTLIER = 1e3

# Rows whose collisions are settled at once.
_APPEND_ROWS = 2**18


class Piece(NamedTuple):
    """The codes of some rows."""

    rows: npt.NDArray[np.int64] | slice
    codes: Codes
    hashes: npt.NDArray[np.uint64]
    """Of the ids."""


def sample(table: Table, codebook_size: int, seed: int = 0, progress: Progress = SILENT) -> Vectors:
    """The vectors to fit on, ``(m, dim)``: all, or of a large table as many drawn at random, in the order of the table.

    Goes through the whole table, so that a bad row or a duplicate id anywhere is found before the fit.
    """
    if table.rows < codebook_size:
        raise UserError(
            f"{table.path} has {table.rows} rows, fewer than the {codebook_size} codes of a stage: "
            f"give more rows, or --codes {table.rows} or less"
        )
    count = min(table.rows, max(codebook_size, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (4 * table.dim))))
    drawn = np.sort(np.random.default_rng(seed).choice(table.rows, count, replace=False))
    result = np.empty((count, table.dim), dtype=np.float32)
    hashes = np.empty(table.rows, dtype=np.uint64)
    first = 0
    with progress.patient_bar("reading", table.rows, "rows") as bar:
        for ids, vectors in table.batches(batch_rows(table.dim)):
            stop = first + len(vectors)
            here = slice(*np.searchsorted(drawn, (first, stop)))
            result[here] = vectors[drawn[here] - first]
            hashes[first:stop] = hash_ids(ids)
            bar.advance(len(vectors))
            first = stop
    check_distinct(table, hashes)
    _warn_of_outliers(table, drawn, result, progress)
    return result


def _warn_of_outliers(table: Table, rows: npt.NDArray[np.int64], vectors: Vectors, progress: Progress) -> None:
    """One absurd row would decide the scale of all others."""
    greatest = np.maximum(vectors.max(axis=1), -vectors.min(axis=1))
    row, usual = int(greatest.argmax()), float(np.median(greatest))
    if float(greatest[row]) > _OUTLIER * usual > 0.0:
        progress.note(
            f"warning: {place(table.path, int(rows[row]))} has the number {greatest[row]:.3g}, most rows none above "
            f"{usual:.3g}: beside it all others look alike. Is it a mistake?"
        )


def encode(
    tokenizer: "Tokenizer",
    table: Table,
    *,
    engine: Engine = "local",
    batch: int | None = None,
    progress: Progress = SILENT,
) -> Codes:
    """The codes of all rows, ``(rows, num_stages)`` in the smallest type that holds them; duplicate ids are an error.

    Args:
        tokenizer: fitted.
        table: of vectors as it was fitted on.
        engine: ``"ray"`` runs it on Ray Data: on the cluster of the environment variable ``RAY_ADDRESS``, whose nodes
            have to see the table under the same path, or on this machine. Batches are the same, so are the codes.
        batch: rows that are encoded at once.
        progress: where to show it.

    """
    if table.dim != tokenizer.n_features_in_:
        where = "the array" if table.path.suffix == ".npy" else f"column {table.column[:80]!r}"
        raise UserError(
            f"{table.path}: {where} has vectors of {table.dim} numbers, the tokenizer was fitted on "
            f"{tokenizer.n_features_in_}: give the embeddings it was fitted on"
        )
    size = batch or batch_rows(table.dim)
    codes = np.empty((table.rows, tokenizer.quantizer_.num_stages), dtype=_smallest(tokenizer))
    hashes = np.empty(table.rows, dtype=np.uint64)
    if engine == "ray":
        from ghrq.tokenizer.bulk_ray import pieces_on_ray

        found = pieces_on_ray(tokenizer, table, size)
    else:
        found = pieces(tokenizer, table, size, 0, table.rows)
    with progress.patient_bar("encoding", table.rows, "vectors") as bar:
        for piece in found:
            codes[piece.rows], hashes[piece.rows] = piece.codes, piece.hashes
            bar.advance(len(piece.codes))
    check_distinct(table, hashes)
    return codes


def resolve(codes: Codes, policy: "Policy", tokenizer: "Tokenizer", table: Table) -> Codes:
    """Settle collisions of ``codes (rows, N)`` by :mod:`ghrq.ids.collisions`: ``(rows, N)``, ``N + 1`` for ``append``.

    Vectors are read from the table again where they are needed.
    """
    import torch

    from ghrq.ids.collisions import resolve as settle

    if policy == "append":
        # Equal tuples have equal first codes, so some of those at a time give the same with little extra memory.
        parts = -(-len(codes) // _APPEND_ROWS)
        part_of = codes[:, 0].astype(np.int32) % parts
        result = np.empty((len(codes), codes.shape[1] + 1), dtype=np.int32)
        for part in range(parts):
            rows = np.flatnonzero(part_of == part)
            result[rows] = settle(torch.from_numpy(codes[rows].astype(np.int32)), policy).numpy()
        return result

    def vectors_of(rows: torch.Tensor) -> torch.Tensor:
        return tokenizer.latent(table.take(rows.cpu().numpy()))

    given = torch.from_numpy(codes.astype(np.int32))
    settled = settle(given, policy, vectors_of=vectors_of, quantizer=tokenizer.quantizer_)
    return settled.numpy()


def write_codes(path: Path, table: Table, codes: Codes, progress: Progress = SILENT) -> None:
    """Write ``codes (rows, N)`` beside the ids of the table, which are read again; by the extension of ``path``."""
    layout = Layout(table.id_name, CODES_COLUMN, codes.shape[1], np.int32, table.rows)
    first = 0
    with open_writer(path, layout) as writer, progress.patient_bar("writing", table.rows, "rows") as bar:
        for ids in table.ids(2**17):
            writer.write(ids, codes[first : first + len(ids)])
            bar.advance(len(ids))
            first += len(ids)


def decode(
    tokenizer: "Tokenizer", table: Table, path: Path, depth: int | None = None, progress: Progress = SILENT
) -> int:
    """Write the vectors that a table of codes stands for, by the extension of ``path``; the depth that was decoded.

    A last code beyond the stages of the tokenizer is the tie-break of colliding items, and dropped. ``depth`` is how
    many codes to use, by default all.
    """
    stages, size = tokenizer.quantizer_.num_stages, tokenizer.quantizer_.codebook_size
    if table.dim > stages + 1:
        raise UserError(f"{table.path} has {table.dim} codes a row, the tokenizer {stages}: use the one that made them")
    depth = min(table.dim, stages) if depth is None else depth
    if not 1 <= depth <= min(table.dim, stages):
        raise UserError(f"--depth {depth}: expected 1 to {min(table.dim, stages)}, the codes that {table.path} has")
    layout = Layout(table.id_name, VECTORS_COLUMN, tokenizer.n_features_in_, np.float32, table.rows)
    first = 0
    with open_writer(path, layout) as writer, progress.patient_bar("decoding", table.rows, "vectors") as bar:
        for ids, given in table.batches(batch_rows(tokenizer.n_features_in_)):
            codes = given[:, :depth]
            wrong = np.flatnonzero(((codes < 0) | (codes >= size)).any(axis=1))
            if len(wrong):
                row = int(wrong[0])
                raise UserError(
                    f"{place(table.path, first + row)} has codes {codes[row].tolist()}, expected 0 to {size - 1}: "
                    "use the tokenizer that made them"
                )
            writer.write(ids, tokenizer.decode(codes.astype(np.int64)))
            bar.advance(len(codes))
            first += len(codes)
    return depth


def distinct(codes: Codes) -> int:
    """How many different tuples there are among ``codes (n, N)``."""
    keys, bound = np.zeros(len(codes), dtype=np.int64), 1
    for column in codes.T:
        size = int(column.max()) + 1
        if bound * size >= 2**63:  # only those that occur are numbered on
            names, keys = np.unique(keys, return_inverse=True)
            bound = len(names)
        keys *= size
        keys += column
        bound *= size
    keys.sort()
    return 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))


def reconstruction_error(tokenizer: "Tokenizer", vectors: Vectors, seed: int = 0) -> float:
    """Mean squared error of decoded ``vectors (n, dim)`` over their variance, on some thousands of them."""
    rows = np.random.default_rng(seed).permutation(len(vectors))[:_MEASURED_ROWS]
    x = vectors[np.sort(rows)].astype(np.float64)
    lost = np.square(x - tokenizer.decode(tokenizer.encode(x.astype(np.float32)))).mean()
    return float(lost / max(x.var(axis=0).mean(), np.finfo(np.float64).tiny))


def check_same_rows(codes: Table, table: Table) -> None:
    """Raise an error unless ``codes`` are those of ``table``, row by row."""
    if codes.rows != table.rows:
        raise UserError(f"{codes.path} has {codes.rows} rows, {table.path} {table.rows}: encode this table anew")
    if not table.has_ids:
        return
    first, size = 0, 2**16
    for mine, theirs in zip(codes.ids(size), table.ids(size), strict=True):
        wrong = np.flatnonzero(hash_ids(mine) != hash_ids(theirs))
        if len(wrong):
            row = int(wrong[0])
            raise UserError(
                f"{place(codes.path, first + row)} is of {codes.id_name} {mine[row]}, in {table.path} that row is "
                f"{theirs[row]}: encode this table anew, or name its ids with --id"
            )
        first += len(mine)


@contextmanager
def all_vectors(table: Table, folder: Path, progress: Progress = SILENT) -> Iterator[npt.NDArray[Any]]:
    """All of a table as one array ``(rows, dim)``, memory-mapped from a temporary file in ``folder``."""
    with tempfile.TemporaryDirectory(prefix=".ghrq-", dir=folder) as temporary:
        name, first = Path(temporary) / "vectors.npy", 0
        array = None
        with progress.patient_bar(f"reading {table.path.name}", table.rows, "rows") as bar:
            for _, vectors in table.batches(batch_rows(table.dim)):
                if array is None:
                    shape = (table.rows, table.dim)
                    array = np.lib.format.open_memmap(name, mode="w+", dtype=vectors.dtype, shape=shape)
                array[first : first + len(vectors)] = vectors
                first += len(vectors)
                bar.advance(len(vectors))
        assert array is not None  # an open table has rows
        yield array


def pieces(tokenizer: "Tokenizer", table: Table, size: int, start: int, stop: int) -> Iterator[Piece]:
    """The rows from ``start`` to before ``stop``, a batch each."""
    for ids, vectors in table.batches(size, start, stop):
        rows = slice(start, start + len(vectors))
        yield Piece(rows, tokenizer.encode(vectors).astype(_smallest(tokenizer)), hash_ids(ids))
        start = rows.stop


def _smallest(tokenizer: "Tokenizer") -> np.dtype[Any]:
    return np.min_scalar_type(tokenizer.quantizer_.codebook_size - 1)
