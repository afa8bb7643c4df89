"""Collisions, reverse look-up and extend of a very large catalogue: time and peak memory. The table of docs/search.md.

    python benchmarks/hundred_million.py --rows 1000000               # also compared with the path in memory
    python benchmarks/hundred_million.py --rows 100000000 --folder /big/disk/tmp

Codes are synthetic, 4 of 256, each drawn by a Zipf-Mandelbrot law (weights 1/(r + 20)), and ids are texts. Every step
runs in a process of its own that may have at most --memory GB of data, and uses the library as a user does: the
tie-break token for collisions and a file of IDs; 10,000 look-ups each way in that file; `ghrq extend` by a hundredth of
the rows. Peak memory is the resident set of the process as the system reports it.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import timing
import torch
from pyarrow import parquet

import ghrq
from ghrq.data.tables import CODES_COLUMN, TableLayout, manifest, open_codes, open_table, open_writer
from ghrq.ids import Catalogue, CatalogueFile, resolve_append
from ghrq.tokenizer import bulk
from ghrq.tokenizer import extend as growing

STAGES, SIZE, DIM, LOOKED_UP, SMALL = 4, 256, 8, 10_000, 2_000_000
STEPS = ("make", "collisions", "look-up", "extend", "check")


def names(first: int, count: int) -> Any:
    """Ids as texts: ``item-17``."""
    return pc.binary_join_element_wise("item", pa.array(np.arange(first, first + count)).cast(pa.string()), "-")


def draw(rows: int, seed: int) -> Any:
    """Codes ``(rows, 4)`` uint8."""
    random, weights = np.random.default_rng(seed), 1.0 / (np.arange(SIZE) + 20.0)
    bounds = np.cumsum(weights / weights.sum()).astype(np.float32)
    codes = np.empty((rows, STAGES), dtype=np.uint8)
    for first in range(0, rows, 2**22):
        part = random.random((len(codes[first : first + 2**22]), STAGES), dtype=np.float32)
        codes[first : first + 2**22] = np.minimum(np.searchsorted(bounds, part, side="right"), SIZE - 1)
    return codes


def make(folder: Path, rows: int) -> None:
    """A tokenizer, the codes of all items before collisions are resolved, and a table of new items."""
    random = np.random.default_rng(0)
    tokenizer = ghrq.Tokenizer(kind="euclidean", codebook_size=SIZE, num_stages=STAGES, iterations=2, seed=0)
    tokenizer.fit(random.standard_normal((4096, DIM)).astype(np.float32))
    tokenizer.save(folder / "tok")
    np.save(folder / "codes.npy", draw(rows, seed=1))
    # The last row of the catalogue is among the new items, too: it keeps its ID.
    count = max(1, rows // 100)
    x = tokenizer.decode(draw(count, seed=2).astype(np.int64))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), DIM)
    parquet.write_table(pa.table({"id": names(rows - 1, count), "embedding": lists}), folder / "new.parquet")


def collisions(folder: Path) -> dict[str, Any]:
    """Give every item an ID of its own, and write the file of IDs."""
    tokenizer, codes = ghrq.Tokenizer.load(folder / "tok"), np.load(folder / "codes.npy")
    ids = bulk.resolve(codes, "append", tokenizer, None, widen=True)  # type: ignore[arg-type]
    tokenizer.save(folder / "tok", force=True)
    about = manifest.describe(tokenizer.fingerprint, "append", tokenizer.vocabulary("append").sizes)
    layout = TableLayout("id", CODES_COLUMN, STAGES + 1, np.int32, len(ids), about)
    with open_writer(folder / "ids.parquet", layout) as writer:
        for first in range(0, len(ids), 2**17):
            part = ids[first : first + 2**17]
            writer.write(names(first, len(part)), part)
    return {"shared": int((ids[:, -1] > 0).sum()), "longest": int(ids[:, -1].max())}


def look_up(folder: Path) -> dict[str, Any]:
    """Items to IDs and back, and the number of different IDs."""
    file = CatalogueFile(folder / "ids.parquet")
    rows = np.random.default_rng(3).choice(len(file), min(LOOKED_UP, len(file)), replace=False)
    wanted = pa.array([f"item-{row}" for row in rows])
    codes = file.codes_of(wanted)
    back = file.ids_of(codes).tolist()
    assert back == wanted.to_pylist(), "an ID led to another item"
    distinct = file.count_distinct()
    assert distinct == len(file), "two items have one ID"
    return {"looked up": len(rows), "distinct": distinct}


def extend(folder: Path) -> dict[str, Any]:
    """``ghrq extend``."""
    tokenizer, new = ghrq.Tokenizer.load(folder / "tok"), open_table(folder / "new.parquet", "embedding", "id")
    done = growing.extend(tokenizer, folder / "ids.parquet", new, folder / "more.parquet")
    return {"new": done.new, "known": done.known, "items": done.items}


def check(folder: Path) -> dict[str, Any]:
    """No published ID moved and none is there twice; a small catalogue is what the path in memory gives."""
    old, more = open_codes(folder / "ids.parquet"), CatalogueFile(folder / "more.parquet")
    before, after = manifest.Content(), manifest.Content()
    size = 2**17
    for ids, codes in old.batches(size):
        before.add(ids, codes)
    for ids, codes in open_codes(folder / "more.parquet").batches(size, 0, old.rows):
        after.add(ids, codes)
    assert before.digest() == after.digest(), "a published ID moved"
    assert more.count_distinct() == len(more), "two items have one ID"
    if old.rows > SMALL:
        return {"published IDs moved": 0, "collisions": 0, "compared with memory": False}
    tokenizer, codes = ghrq.Tokenizer.load(folder / "tok"), np.load(folder / "codes.npy").astype(np.int64)
    published = Catalogue.load(folder / "ids.parquet")
    assert torch.equal(published.codes, resolve_append(codes)), "collisions differ"
    new = parquet.read_table(folder / "new.parquet")
    x = np.array(new["embedding"].combine_chunks().values).reshape(-1, DIM)
    larger, loaded = published.extend(tokenizer, new["id"].to_pylist(), x), Catalogue.load(folder / "more.parquet")
    assert larger.ids.tolist() == loaded.ids.tolist(), "extend differs"
    assert torch.equal(larger.codes, loaded.codes), "extend differs"
    rows = np.random.default_rng(4).choice(len(loaded), 1000)
    assert more.ids_of(loaded.codes[rows]).tolist() == loaded.ids_of(loaded.codes[rows]).tolist(), "look-up differs"
    return {"published IDs moved": 0, "collisions": 0, "compared with memory": True}


def run(step: str, folder: Path, rows: int, memory: float) -> None:
    """One step, in this process; prints what it took."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    limit = int(memory * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    started, used = time.perf_counter(), time.process_time()
    steps: dict[str, Any] = {"collisions": collisions, "look-up": look_up, "extend": extend, "check": check}
    told = make(folder, rows) or {} if step == "make" else steps[step](folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - used, "peak": peak / 2**30}
    print(json.dumps({**seconds, "told": told}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", type=float, default=8.0, help="GB that a step may have")
    parser.add_argument(
        "--folder", type=Path, default=Path("hundred-million.tmp"), help="is made, and removed at the end"
    )
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        run(given.step, given.folder, given.rows, given.memory)
        return
    given.folder.mkdir(parents=True)
    table = []
    try:
        for step in STEPS:
            command = [sys.executable, __file__, "--rows", str(given.rows), "--memory", str(given.memory)]
            command += ["--folder", str(given.folder), "--step", step]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            facts = ", ".join(
                f"{name} {value}" if isinstance(value, bool) else f"{name} {value:,}"
                for name, value in found["told"].items()
            )
            row = [step, f"{found['seconds']:.0f}", f"{found['cpu']:.0f}", f"{found['peak']:.2f}", facts]
            table.append(row)
            print(row, flush=True)
    finally:
        shutil.rmtree(given.folder)
    print(f"\n{given.rows:,} rows, {len(os.sched_getaffinity(0))} core(s), at most {given.memory:g} GB\n")
    print(timing.table(["step", "seconds", "CPU seconds", "peak, GB", ""], table))


if __name__ == "__main__":
    main()
