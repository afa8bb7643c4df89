"""Encode and decode whole tables, batch by batch, on this machine or on a Ray cluster.

Memory holds the codes of all rows (a byte each with at most 256 codes a stage) and 8 bytes a row to find duplicate ids:
collisions can only be resolved when all codes are known. Vectors and ids are read again where they are needed again;
a table whose file has changed since it was opened is an error, so that ids and codes always belong together.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ghrq.data.arrays import ArrayRows
from ghrq.data.tables import (
    CODES_COLUMN,
    TableLayout,
    VectorTable,
    batch_rows,
    check_distinct,
    hash_ids,
    manifest,
    open_writer,
)
from ghrq.data.tables.columns import place
from ghrq.ids import collisions
from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.memory import check_room
from ghrq.system.progress import Progress

if TYPE_CHECKING:
    from ghrq.tokenizer import Tokenizer

SILENT = Progress()

Codes = npt.NDArray[np.integer]
Vectors = npt.NDArray[np.float32]
Where = Literal["local", "ray"]

VECTORS_COLUMN = "embedding"
"""Column of decoded vectors."""

# Most bytes of vectors, and most rows, for a fit: more do not improve a codebook.
_SAMPLE_BYTES, _SAMPLE_ROWS = 2**29, 200_000

# Rows on which a fit measures its reconstruction error.
_MEASURED_ROWS = 20_000

# A row whose largest number is this many times the median is reported as an outlier.
_OUTLIER = 1e3

# A catalogue grows: the tie-break token has at least this many times the codes that the fullest tuple of a fit needs.
_HEADROOM = 2

# Rows whose collisions are resolved at once.
_APPEND_ROWS = 2**18


class EncodedRows(NamedTuple):
    """The codes of some rows."""

    rows: npt.NDArray[np.int64]
    codes: Codes
    hashes: npt.NDArray[np.uint64]
    """Hashes of the ids."""


def sample(table: VectorTable, codebook_size: int, seed: int = 0, progress: Progress = SILENT) -> Vectors:
    """The vectors to fit on, ``(m, dim)``: all, or a random sample of a large table, in the order of the table.

    Reads the whole table, so that a bad row or a duplicate id is found before the fit.
    """
    if table.rows < codebook_size:
        raise UserError(
            f"{table.path} has {table.rows} row{'s' if table.rows > 1 else ''}, fewer than the {codebook_size} codes "
            f"of a stage: give more rows, or --codes {table.rows}{' or less' if table.rows > 1 else ''}"
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
    greatest = np.maximum(result.max(axis=1), -result.min(axis=1))
    row, usual = int(greatest.argmax()), float(np.median(greatest.astype(np.float64)))
    if float(greatest[row]) > _OUTLIER * usual > 0.0:
        number = int(table.row_numbers(drawn[row : row + 1])[0])
        progress.note(
            f"warning: {place(table.path, number)} has the number {greatest[row]:.3g}, most rows none above "
            f"{usual:.3g}: it will dominate the scale. Is it a mistake?"
        )
    return result


def check_width(table: VectorTable, tokenizer: "Tokenizer") -> None:
    """Raise an error unless the vectors of ``table`` are as wide as those of the fit."""
    if table.dim != tokenizer.n_features_in_:
        where = "the array" if table.path.suffix == ".npy" else f"column {table.column[:80]!r}"
        raise UserError(
            f"{table.path}: {where} has vectors of {table.dim} numbers, the tokenizer was fitted on "
            f"{tokenizer.n_features_in_}: give embeddings of the same model"
        )


def encode(
    tokenizer: "Tokenizer",
    table: VectorTable,
    *,
    on: Where = "local",
    batch: int | None = None,
    progress: Progress = SILENT,
) -> Codes:
    """The codes of all rows, ``(rows, num_stages)`` in the smallest type that holds them; duplicate ids are an error.

    Args:
        tokenizer: fitted.
        table: of vectors like those it was fitted on.
        on: ``"ray"`` runs on Ray Data: on the cluster of the environment variable ``RAY_ADDRESS``, whose nodes have to
            see the table under the same path, or on this machine. Batches and codes are the same as with ``"local"``.
        batch: rows encoded at once.
        progress: shows how far it is.

    """
    check_width(table, tokenizer)
    size, stages, dtype = batch or batch_rows(table.dim), tokenizer.quantizer_.num_stages, _smallest(tokenizer)
    # The codes, hashes of the ids, and the codes in int32 with resolved collisions.
    needed = table.rows * (stages * dtype.itemsize + 8 + 4 * (stages + 1))
    check_room(needed, f"the codes of the {table.rows:,} rows of {table.path}", "encode the table in parts")
    codes = np.empty((table.rows, stages), dtype=dtype)
    hashes = np.empty(table.rows, dtype=np.uint64)
    if on == "ray":
        from ghrq.tokenizer.bulk_ray import encode_on_ray

        parts = encode_on_ray(tokenizer, table, size)
    else:
        parts = encode_range(tokenizer, table, size, 0, table.rows)
    with progress.patient_bar("encoding", table.rows, "vectors") as bar:
        for part in parts:
            codes[part.rows], hashes[part.rows] = part.codes, part.hashes
            bar.advance(len(part.codes))
    check_distinct(table, hashes)
    return codes


def resolve(
    codes: Codes, policy: collisions.Policy, tokenizer: "Tokenizer", table: VectorTable, *, widen: bool = False
) -> Codes:
    """Resolve collisions of ``codes (rows, N)`` by :mod:`ghrq.ids.collisions`: ``(rows, N)``, ``N + 1`` for ``append``.

    Vectors are read from the table again where they are needed. More items of a tuple than the tokenizer's tie-break
    token has codes are an error; ``widen``, for the table of a fit, gives that token at least twice as many codes as
    the fullest tuple has items instead.
    """
    if policy == "append":
        # Equal tuples have equal first codes: resolving some first codes at a time gives the same in less memory.
        parts = -(-len(codes) // _APPEND_ROWS)
        part_of = codes[:, 0].astype(np.int32) % parts
        result = np.empty((len(codes), codes.shape[1] + 1), dtype=np.int32)
        for part in range(parts):
            rows = np.flatnonzero(part_of == part)
            size = None if widen else tokenizer.tie_break_size_
            result[rows] = collisions.resolve_append(codes[rows].astype(np.int32), size).numpy()
        if widen:
            fullest = int(result[:, -1].max()) + 1
            needed = 1 << (_HEADROOM * fullest - 1).bit_length()  # a power of two
            tokenizer.tie_break_size_ = max(tokenizer.tie_break_size_, needed)
        return result

    def vectors_of(rows: torch.Tensor) -> torch.Tensor:
        return tokenizer.latent(table.take(rows.cpu().numpy()))

    given, rq = codes.astype(np.int32), tokenizer.quantizer_
    return collisions.resolve(given, policy, vectors_of=vectors_of, quantizer=rq).numpy()


def write_codes(
    path: Path,
    table: VectorTable,
    codes: Codes,
    tokenizer: "Tokenizer",
    policy: collisions.Policy,
    progress: Progress = SILENT,
) -> None:
    """Write ``codes (rows, N)`` and the ids of the table, in the format of ``path``'s extension.

    Parquet also gets a manifest, see :mod:`ghrq.data.tables.manifest`. ``policy`` is how collisions were resolved.
    """
    about = manifest.describe(tokenizer.fingerprint, policy, tokenizer.vocabulary(policy).sizes)
    layout = TableLayout(table.id_name, CODES_COLUMN, codes.shape[1], np.int32, table.rows, about)
    first = 0
    with open_writer(path, layout) as writer, progress.patient_bar("writing", table.rows, "rows") as bar:
        for ids in table.ids(2**17):
            writer.write(ids, codes[first : first + len(ids)])
            bar.advance(len(ids))
            first += len(ids)


def check_made_by(codes: VectorTable, tokenizer: "Tokenizer") -> bool:
    """Raise an error if another tokenizer made these codes. Returns whether the file says which one did."""
    return manifest.check_made_by(codes.manifest, tokenizer.fingerprint, codes.path)


def decode(
    tokenizer: "Tokenizer", table: VectorTable, path: Path, depth: int | None = None, progress: Progress = SILENT
) -> int:
    """Write the decoded vectors of a table of codes, in the format of ``path``'s extension. Returns the decoded depth.

    A last code beyond the stages of the tokenizer is the tie-break token of colliding items, and ignored. ``depth`` is
    the number of codes to use, by default all.
    """
    check_made_by(table, tokenizer)
    stages, sizes = tokenizer.quantizer_.num_stages, np.array(tokenizer.quantizer_.sizes)
    if table.dim > stages + 1:
        raise UserError(f"{table.path} has {table.dim} codes a row, the tokenizer {stages}: use the one that made them")
    depth = min(table.dim, stages) if depth is None else depth
    if not 1 <= depth <= min(table.dim, stages):
        raise UserError(f"--depth {depth}: expected 1 to {min(table.dim, stages)}, the codes that {table.path} has")
    layout = TableLayout(table.id_name, VECTORS_COLUMN, tokenizer.n_features_in_, np.float32, table.rows)
    first = 0
    with open_writer(path, layout) as writer, progress.patient_bar("decoding", table.rows, "vectors") as bar:
        for ids, given in table.batches(batch_rows(tokenizer.n_features_in_)):
            codes = given[:, :depth]
            wrong = np.flatnonzero(((codes < 0) | (codes >= sizes[:depth])).any(axis=1))
            if len(wrong):
                row, most = int(wrong[0]), " and ".join(map(str, dict.fromkeys((sizes - 1).tolist())))
                raise UserError(
                    f"{place(table.path, first + row)} has codes {codes[row].tolist()}, expected 0 to {most}: "
                    "use the tokenizer that made them"
                )
            writer.write(ids, tokenizer.decode(codes.astype(np.int64)))
            bar.advance(len(codes))
            first += len(codes)
    return depth


def reconstruction_error(tokenizer: "Tokenizer", vectors: Vectors, seed: int = 0) -> float:
    """Mean squared error of decoded ``vectors (n, dim)`` divided by their variance, on a random sample."""
    rows = np.random.default_rng(seed).permutation(len(vectors))[:_MEASURED_ROWS]
    x = vectors[np.sort(rows)].astype(np.float64)
    lost = np.square(x - tokenizer.decode(tokenizer.encode(x.astype(np.float32)))).mean()
    return float(lost / max(x.var(axis=0).mean(), np.finfo(np.float64).tiny))


def fit_error(tokenizer: "Tokenizer", vectors: Vectors, seed: int = 0) -> dict[str, float] | None:
    """The mean squared error to expect of rows like ``vectors (n, dim)`` that were not in the fit, and the variance.

    Codes fit the rows they are means of more closely than others. Without its own row, a code of n rows would be
    ``n / (n - 1)`` times as far from it: the error is that of the rows of the fit, times the square of this for the
    code of each stage (at most 1.5 a stage: a row that is alone in a code would have another one). On embeddings of
    products it is within 5 % of the error of other rows. The codes of an autoencoder are no means: ``None``.
    """
    if tokenizer.engine != "kmeans":
        return None
    codes = tokenizer.encode(vectors)
    rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:_MEASURED_ROWS])
    x, chosen = vectors[rows].astype(np.float64), codes[rows]
    lost = np.square(x - tokenizer.decode(chosen)).mean(axis=1)
    for stage, column in enumerate(chosen.T):
        members = np.bincount(codes[:, stage])[column]
        lost *= np.square(np.minimum(members / np.maximum(members - 1.0, 0.1), 1.5))
    return {"error": float(lost.mean()), "variance": float(x.var(axis=0).mean())}


def squared_error(tokenizer: "Tokenizer", table: VectorTable) -> float:
    """Mean squared error of decoded vectors of a table, on a random sample."""
    x = _measured(table)
    return float(np.square(x - tokenizer.decode(tokenizer.encode(x.astype(np.float32)))).mean())


def variance(table: VectorTable) -> float:
    """Mean variance of the numbers of the vectors of a table, on a random sample."""
    return float(_measured(table).var(axis=0).mean())


def _measured(table: VectorTable) -> npt.NDArray[np.float64]:
    rows = np.random.default_rng(0).permutation(table.rows)[:_MEASURED_ROWS]
    return table.take(np.sort(rows)).astype(np.float64)


@contextmanager
def all_vectors(
    table: VectorTable, folder: Path, progress: Progress = SILENT, order: npt.NDArray[np.int64] | None = None
) -> Iterator[Any]:
    """All vectors of a table as one array ``(rows, dim)``, memory-mapped from a temporary file in ``folder``.

    With ``order (m,)`` it is these rows, ``(m, dim)``, each read from the file where it is asked for; others are not
    copied. The file is written and then mapped for reading: a full disk is an error when a file is written, but kills
    the process (SIGBUS) when a mapped array is. The file has no name, so a killed process leaves nothing behind.
    """
    keep = np.ones(table.rows, dtype=bool)
    if order is not None:
        keep[:] = False
        keep[order] = True
    count, first = int(keep.sum()), 0
    size = -(-count * table.dim * table.dtype.itemsize // 2**20)
    remedy = f"make room for {size:,} MB, or give --out a folder on another disk"
    with ExitStack() as stack:
        with files.telling(f"a temporary copy of {table.path} into {folder}", remedy):
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            with progress.patient_bar(f"reading {table.path.name}", table.rows, "rows") as bar:
                for _, vectors in table.batches(batch_rows(table.dim)):
                    here = keep[first : first + len(vectors)]
                    part = vectors if here.all() else vectors[here]
                    file.write(np.ascontiguousarray(part, dtype=table.dtype).data)
                    first += len(vectors)
                    bar.advance(len(vectors))
            file.flush()
        mapped = np.memmap(file, dtype=table.dtype, mode="r", shape=(count, table.dim))
        if order is None:
            yield mapped
            return
        places = (np.cumsum(keep) - 1)[order]
        yield ArrayRows(len(places), table.dim, lambda which: mapped[places[which]])


def encode_range(tokenizer: "Tokenizer", table: VectorTable, size: int, start: int, stop: int) -> Iterator[EncodedRows]:
    """Encode the rows from ``start`` to before ``stop`` in batches of ``size``."""
    for ids, vectors in table.batches(size, start, stop):
        rows = np.arange(start, start + len(vectors))
        yield EncodedRows(rows, tokenizer.encode(vectors).astype(_smallest(tokenizer)), hash_ids(ids))
        start += len(vectors)


def _smallest(tokenizer: "Tokenizer") -> np.dtype[Any]:
    return np.min_scalar_type(max(tokenizer.quantizer_.sizes) - 1)
