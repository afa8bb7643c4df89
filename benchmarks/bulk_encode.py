"""A large table through `ghrq encode`: peak memory and vectors per second, as a user gets them.

    python benchmarks/bulk_encode.py                             # 10 million x 64 from parquet
    python benchmarks/bulk_encode.py --rows 2000000
    python benchmarks/bulk_encode.py --row-group 10000000        # the whole table as one row group
    python benchmarks/bulk_encode.py --collisions none --out ids.npy

The table has an id column of text, and is written piece by piece into a temporary folder (2.6 GB for 10 million rows;
set TMPDIR to choose the disk). The tokenizer is fitted on 50,000 vectors of the same kind. Peak memory is that of the
process that encodes, all of its libraries included, as the kernel counts it (VmHWM).
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PIECE = 100_000
FITTED = 50_000
GROUPS = 5_000


def write_table(path: Path, rows: int, dim: int, row_group: int) -> None:
    """Noisy copies of some thousand centres, so that there is something to quantize, and collisions to settle."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((GROUPS, dim), dtype=np.float32)
    schema = pa.schema([("item_id", pa.string()), ("embedding", pa.list_(pa.float32(), dim))])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        waiting: list[pa.RecordBatch] = []
        for first in range(0, rows, PIECE):
            count = min(PIECE, rows - first)
            noise = random.standard_normal((count, dim), dtype=np.float32)
            vectors = centres[random.integers(0, GROUPS, count)] + np.float32(0.5) * noise
            ids = pa.array(np.char.add("item-", np.arange(first, first + count).astype(str)))
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim)
            waiting.append(pa.record_batch([ids, lists], schema=schema))
            if sum(map(len, waiting)) >= row_group or first + count == rows:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=row_group)
                waiting = []


def run(arguments: list[str]) -> tuple[float, float]:
    """Run a command of ghrq: seconds, and its peak memory in MiB."""
    start, peak = time.perf_counter(), 0
    with subprocess.Popen([sys.executable, "-m", "ghrq", *arguments]) as process:
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                status = ""
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            peak = int(found[1]) if found else peak
            time.sleep(0.05)
    if process.returncode:
        sys.exit(process.returncode)
    return time.perf_counter() - start, peak / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--codes", type=int, default=256)
    parser.add_argument("--kind", default="ghrq")
    parser.add_argument("--row-group", type=int, default=2**20, help="rows; the default is that of pyarrow and pandas")
    parser.add_argument("--collisions", default="append", choices=["append", "reassign", "none"])
    parser.add_argument("--on", default="local", choices=["local", "ray"])
    parser.add_argument("--out", default="ids.parquet", help="its extension is the format")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        sys.exit("peak memory is read from /proc: this benchmark runs on Linux")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        some, items = folder / "some.parquet", folder / "items.parquet"
        write_table(some, FITTED, options.dim, FITTED)
        start = time.perf_counter()
        write_table(items, options.rows, options.dim, options.row_group)
        size = items.stat().st_size / 2**30
        print(f"wrote {options.rows:,} x {options.dim}, {size:.2f} GiB, in {time.perf_counter() - start:.0f} s")
        sizes = ["--stages", str(options.stages), "--codes", str(options.codes), "--kind", options.kind]
        columns = ["--column", "embedding", "--id", "item_id"]
        seconds, _ = run(["fit", str(some), *columns, *sizes, "--out", str(folder / "tok")])
        print(f"fitted on {FITTED:,} in {seconds:.1f} s\n")
        how = ["--collisions", options.collisions, "--on", options.on]
        out = folder / f"ids{Path(options.out).suffix}"
        seconds, peak = run(["encode", str(folder / "tok"), str(items), "--out", str(out), *how])
        print(f"\npeak memory {peak:,.0f} MiB, {options.rows / seconds:,.0f} vectors/s ({seconds:.1f} s with start-up)")


if __name__ == "__main__":
    main()
