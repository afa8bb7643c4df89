"""What more of everything costs: time against vectors, codes, stages and dimension; memory against a file's length.

    python benchmarks/scaling.py                             # the exponents: time ~ size ** exponent
    python benchmarks/scaling.py --stream                    # encode 10 million vectors from a memory-mapped file
    python benchmarks/scaling.py --stream --rows 1000000     # fewer
    python benchmarks/scaling.py --base 8192x64x512x4 --repeats 15

An exponent of 1 is linear. Below 1, some of the cost does not grow with that size.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timing
import torch
from numpy.lib.format import open_memmap
from timing import Call, Shape

import ghrq
from ghrq.quantizer import KINDS

BASE = Shape(8192, 32, 512, 4)
# Each is varied alone, the others stay at the base.
AXES = {
    "vectors": [2048, 4096, 8192, 16384, 32768, 65536],
    "dim": [8, 16, 32, 64, 128, 256],
    "codes": [128, 256, 512, 1024, 2048, 4096],
    "stages": [1, 2, 4, 8, 16],
}
TASKS = ("train", "encode")

STREAM = Shape(10_000_000, 32, 256, 4)
SLICE_ROWS = 2**17
MARKS = (0.1, 0.5, 1.0)
MIB = 2**20


# --- exponents -------------------------------------------------------------------------------------------------


def call(task: str, shape: Shape, kind: str) -> Call:
    """One train step (forward and backward), or one encode."""
    rq = ghrq.ResidualQuantizer(shape.dim, shape.codes, shape.stages, kind, revive_below=0.0)
    rq.codebooks.data.copy_(timing.fitted(shape, kind))
    z = timing.vectors(shape, seed=2)
    if task == "encode":
        rq.eval()
        return lambda: rq.encode(z)
    z.requires_grad_()

    def step() -> None:
        z.grad = rq.codebooks.grad = None
        z_hat, _, loss = rq(z)
        (z_hat.sum() + loss).backward()

    return step


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def measure_axis(axis: str, sizes: list[int], base: Shape, kind: str, repeats: int) -> dict[str, dict[str, Any]]:
    """Seconds of each task at every size, and the exponents over all sizes and over the last doubling."""
    shapes = {size: base._replace(**{axis: size}) for size in sizes}
    measured = {}
    for task in TASKS:
        samples = timing.interleaved({str(size): call(task, shape, kind) for size, shape in shapes.items()}, repeats)
        medians = timing.medians(samples)
        seconds = [medians[str(size)] for size in sizes]
        last = math.log(seconds[-1] / seconds[-2], sizes[-1] / sizes[-2])
        measured[task] = {"sizes": sizes, "seconds": samples, "exponent": exponent(sizes, seconds), "last": last}
        print(f"\n{axis_table(axis, task, sizes, seconds)}", flush=True)
    return measured


def axis_table(axis: str, task: str, sizes: list[int], seconds: list[float]) -> str:
    head = [f"{task}: {axis}", *map(str, sizes)]
    return timing.table(head, [["ms", *(f"{1e3 * s:.2f}" for s in seconds)]])


def measure_exponents(base: Shape, kind: str, repeats: int, quick: bool) -> dict[str, Any]:
    print(f"\n{kind}, each size varied alone from {base} (vectors x dim x codes x stages)")
    axes = {axis: sizes[:5] if quick else sizes for axis, sizes in AXES.items()}
    measured = {axis: measure_axis(axis, sizes, base, kind, repeats) for axis, sizes in axes.items()}
    rows = [
        [axis, *(f"{of[task][which]:.2f}" for task in TASKS for which in ("exponent", "last"))]
        for axis, of in measured.items()
    ]
    head = ["exponent", *(f"{task}{which}" for task in TASKS for which in ("", ", last doubling"))]
    print(f"\n{timing.table(head, rows)}")
    return measured


# --- a file larger than memory may be ----------------------------------------------------------------------------


def write_vectors(path: Path, shape: Shape) -> None:
    """A .npy file of normal vectors, written slice by slice."""
    open_memmap(path, mode="w+", dtype=np.float32, shape=(shape.vectors, shape.dim))
    for start, stop in slices(shape.vectors):
        rows = timing.vectors(shape._replace(vectors=stop - start), seed=start)
        np.load(path, mmap_mode="r+")[start:stop] = rows.numpy()


def slices(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, SLICE_ROWS):
        yield start, min(start + SLICE_ROWS, rows)


def encode_file(rq: ghrq.ResidualQuantizer, source: Path, target: Path, shape: Shape) -> dict[str, Any]:
    """Codes of every row, from file to file: seconds, the resident memory at some marks, and its peak.

    Both files are mapped anew for each slice: pages of a mapping count as resident as long as it lives.
    """
    open_memmap(target, mode="w+", dtype=np.uint16, shape=(shape.vectors, shape.stages))
    marks, resident = iter(MARKS), {}
    mark = next(marks)
    timing.forget_peak()
    start_time = time.perf_counter()
    for start, stop in slices(shape.vectors):
        rows = torch.from_numpy(np.load(source, mmap_mode="c")[start:stop])
        np.load(target, mmap_mode="r+")[start:stop] = rq.encode(rows).numpy()
        if stop >= mark * shape.vectors:
            resident[f"{mark:.0%}"] = timing.resident()
            mark = next(marks, math.inf)
    seconds = time.perf_counter() - start_time
    return {"seconds": seconds, "resident_bytes": resident, "peak_bytes": timing.peak_resident()}


def measure_stream(rows: int, kind: str) -> dict[str, Any]:
    shape = STREAM._replace(vectors=rows)
    rq = ghrq.ResidualQuantizer(shape.dim, shape.codes, shape.stages, kind).eval()
    rq.codebooks.data.copy_(timing.fitted(shape, kind))
    with tempfile.TemporaryDirectory(prefix="ghrq-scaling-") as folder:
        source, target = Path(folder, "vectors.npy"), Path(folder, "codes.npy")
        write_vectors(source, shape)
        size = source.stat().st_size
        print(f"\nencoding {rows:,} vectors ({size / MIB:.0f} MiB), {shape.dim} dimensions, ", end="")
        print(f"{shape.stages} stages of {shape.codes} codes, {kind}", flush=True)
        measured = encode_file(rq, source, target, shape)
    measured |= {"shape": shape, "slice_rows": SLICE_ROWS, "file_bytes": size}
    held = [*measured["resident_bytes"].values(), measured["peak_bytes"]]
    head = ["vectors/s", *(f"resident at {mark}, MiB" for mark in measured["resident_bytes"]), "peak, MiB"]
    cells = [f"{rows / measured['seconds']:,.0f}", *(f"{size / MIB:.0f}" for size in held)]
    print(f"\n{timing.table(head, [cells])}")
    return measured


# --- the command -------------------------------------------------------------------------------------------------


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", action="store_true", help="encode a memory-mapped file instead")
    parser.add_argument(
        "--rows", type=timing.positive, default=STREAM.vectors, metavar="N", help="of the file (default %(default)s)"
    )
    parser.add_argument("--base", type=Shape.parse, default=BASE, metavar="SHAPE", help="(default %(default)s)")
    parser.add_argument("--kind", default="ghrq", choices=tuple(KINDS), help="of quantizer (default %(default)s)")
    timing.add_common_options(parser, "scaling", repeats=9)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.repeats, chosen.rows = min(chosen.repeats, 3), min(chosen.rows, 1_000_000)
    if chosen.stream and chosen.json == parser.get_default("json"):
        chosen.json = chosen.json.with_name("stream.json")
    return chosen


def main() -> None:
    chosen = options()
    timing.seeded(chosen.threads)
    about = timing.machine(chosen.threads)
    print(timing.describe(about), flush=True)
    if chosen.stream:
        results = {"stream": measure_stream(chosen.rows, chosen.kind)}
    else:
        axes = measure_exponents(chosen.base, chosen.kind, chosen.repeats, chosen.quick)
        results = {"base": chosen.base, "repeats": chosen.repeats, "axes": axes}
    timing.write_json(chosen.json, {"machine": about, "kind": chosen.kind, **results})


if __name__ == "__main__":
    main()
