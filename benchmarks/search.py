"""Search on codes beside faiss' IVF + RQ, on GloVe-50 (400,000 x 50) at 8 bytes: the table of docs/search.md.

    python benchmarks/search.py                                # vectors from FOLDER/glove of GHRQ_DATA, or a download
    python benchmarks/search.py --refine 0 --beams 5,16        # codebooks of k-means, stage by stage
    python benchmarks/search.py --kinds ghrq --refine 0 --beams 1
    python benchmarks/search.py --keep trained/                # fitted once, and used again by the next command

1,000 random rows are the queries, the others the items. Both sides have 256 lists and 8 bytes an item: the list and 7
more codes of 256 (faiss: IVF256,RQ7x8 with its default training and beam, and float norms for look-up tables, which is
its fastest; ours: 8 codes, the first of which names the list; both store 4 bytes more for the norm). Ours is fitted on
200,000 items, faiss on 65,536, which is what its k-means takes at most. Recall@10 is the share of the 10 true
neighbours among the 10 that were found; the probed share is measured. Times are CPU time on one thread, all queries in
one call, and one by one for the first 50. Re-ranked: the best 100 by their vectors. Run it on one core, by
OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/search.py
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import timing
import torch

import ghrq
from ghrq.data import glove
from ghrq.data.wheels import cache
from ghrq.search import CodeIndex

QUERIES, K, LISTS, STAGES, FITTED, FITTED_FAISS, ALONE = 1000, 10, 256, 8, 200_000, 65_536, 50


def vectors(folder: Path | None) -> Any:
    """GloVe, ``(400000, 50)``."""
    unpacked = None if folder is None else folder / "glove" / "glove_6B_50d_emb.npy"
    return np.load(unpacked) if unpacked and unpacked.exists() else glove.load(glove.download(cache())).vectors


def spent(work: Callable[[], Any]) -> tuple[Any, float]:
    """What ``work`` gives, and its CPU seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def kept(
    path: Path | None, make: Callable[[], Any], save: Callable[[str, Any], None], load: Callable[[str], Any]
) -> Any:
    """``make()``, or what an earlier run wrote to ``path``; with the CPU seconds it took, nan if it was read."""
    if path is not None and path.exists():
        return load(str(path)), float("nan")
    result, seconds = spent(make)
    if path is not None:
        save(str(path), result)
    return result, seconds


def recall(found: Any, true: Any) -> float:
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found, true, strict=True)]))


def rows_of(name: str, search: Callable[[Any, int], Any], share: Callable[[int], float], given: Any, cost: Any) -> Any:
    """A row of the table for each number of probes."""
    queries, true, probes = given
    for count in probes:
        search(queries[:10], count)
        found, seconds = spent(lambda count=count: search(queries, count))
        _, alone = spent(lambda count=count: [search(queries[i : i + 1], count) for i in range(ALONE)])
        times = [f"{1000 * seconds / len(queries):.2f}", f"{1000 * alone / ALONE:.2f}"]
        yield [name, str(count), f"{100 * share(count):.2f}", f"{recall(found, true):.4f}", *times, *cost]


def faiss_rows(base: Any, given: Any, seed: int, keep: Path | None) -> Any:
    def make() -> Any:
        index = faiss.index_factory(base.shape[1], f"IVF{LISTS},RQ{STAGES - 1}x8_Nfloat")
        index.cp.seed, index.rq.cp.seed = 1234 + seed, 1234 + seed
        index.train(base[:FITTED_FAISS])
        index.add(base)
        return index

    path = None if keep is None else keep / f"faiss-{seed}.index"
    index, seconds = kept(path, make, lambda p, i: faiss.write_index(i, p), faiss.read_index)
    sizes = np.array([index.invlists.list_size(number) for number in range(LISTS)])

    def search(queries: Any, probes: int) -> Any:
        index.nprobe = probes
        return index.search(queries, K)[1]

    def share(probes: int) -> float:
        return sizes[index.quantizer.search(given[0], probes)[1]].sum(1).mean() / len(base)

    yield from rows_of("faiss IVF256,RQ7x8", search, share, given, [f"{seconds:.0f}"])


def own_rows(base: Any, given: Any, kind: str, refine: int, beams: list[int], seed: int, keep: Path | None) -> Any:
    def fit() -> Any:
        settings = {"codebook_size": LISTS, "num_stages": STAGES, "seed": seed}
        return ghrq.Tokenizer(kind=kind, refine=refine, **settings).fit(base[:FITTED])

    path = None if keep is None else keep / f"{kind}-{refine}-{seed}"
    tokenizer, fitted = kept(path, fit, lambda p, t: t.save(p), ghrq.Tokenizer.load)
    name = f"ghrq.search, {kind}{', refine' if refine else ''}"
    for beam in beams:
        path = None if keep is None else keep / f"{kind}-{refine}-{seed}-{beam}.npy"
        codes, encoded = kept(
            path, lambda beam=beam: tokenizer.encode(base, beam=beam).astype(np.uint8), np.save, np.load
        )
        index = CodeIndex(tokenizer, codes)
        sizes, centre = np.diff(index.lists.starts), index._decoder.centre

        def share(probes: int, index: Any = index, sizes: Any = sizes, centre: Any = centre) -> float:
            chosen = index.lists.nearest(torch.from_numpy(given[0]) - centre, index._centroids, probes)
            return sizes[chosen.numpy()].sum(1).mean() / len(base)

        def search(queries: Any, probes: int, index: Any = index) -> Any:
            return index.search(queries, K, probes).ids

        cost = [f"{fitted + encoded:.0f}"]
        yield from rows_of(f"{name}, beam {beam}", search, share, given, cost)
        queries, true, probes = given
        exact = (queries, true, probes[len(probes) // 2 :][:1])  # re-ranked at one number of probes

        def search_again(queries: Any, probes: int, index: Any = index) -> Any:
            return index.search(queries, K, probes, rerank=base).ids

        yield from rows_of(f"{name}, beam {beam}, re-ranked", search_again, share, exact, cost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"))
    parser.add_argument("--kinds", default="euclidean")
    parser.add_argument("--refine", type=int, default=3, help="rounds of the fit of all codebooks together")
    parser.add_argument("--beams", default="5")
    parser.add_argument("--probes", default="4,13,26")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for what is trained; a time of it that was read is nan")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    x = vectors(Path(given.data) if given.data else None)
    order = np.random.default_rng(0).permutation(len(x))
    queries, base = x[order[:QUERIES]].copy(), x[order[QUERIES:]].copy()
    exact = faiss.IndexFlatL2(x.shape[1])
    exact.add(base)
    asked = queries, exact.search(queries, K)[1], [int(count) for count in given.probes.split(",")]
    table = []
    for seed in range(given.seeds):
        found = [faiss_rows(base, asked, seed, given.keep)]
        beams = [int(beam) for beam in given.beams.split(",")]
        found += [own_rows(base, asked, kind, given.refine, beams, seed, given.keep) for kind in given.kinds.split(",")]
        for rows in found:
            for row in rows:
                table.append([str(seed), *row])
                print(table[-1], flush=True)
    heads = ["seed", "index", "probes", "probed, %", "recall@10", "ms a query", "ms, one by one", "s to make"]
    print("\n" + timing.table(heads, table))


if __name__ == "__main__":
    main()
