"""What the benchmarks share: the problem, an interleaved clock, readings of memory, the machine, tables.

Not a script. Times are wall clock. Memory is what the kernel counts as resident, so that the workspaces of BLAS and
of faiss are in it, which a profiler of tensors does not see.
"""

import argparse
import ctypes
import gc
import json
import math
import multiprocessing
import os
import platform
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ghrq

Call = Callable[[], object]

RESULTS = Path(__file__).parent / "results"
MODULES = ("ghrq", "geoopt", "vector_quantize_pytorch", "faiss")
PACKAGES = ("ghrq", "torch", "numpy", "geoopt", "vector-quantize-pytorch", "faiss-cpu")

RADIUS = 0.5

# The load above which a machine counts as busy: threads that wait for each other then wait for strangers.
BUSY = 0.5

# A contender is called as often as fits into this many seconds, and the mean counts as one sample.
SAMPLE_SECONDS = 0.02
# One that takes longer than this for a single call runs in the first rounds only, and without a call to warm up.
SLOW_SECONDS, SLOW_ROUNDS = 1.0, 3


class Shape(NamedTuple):
    """The size of a problem."""

    vectors: int
    dim: int
    codes: int
    stages: int

    def __str__(self) -> str:
        return "x".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """``"4096x16x128x4"`` -> ``Shape(4096, 16, 128, 4)``."""
        try:
            shape = cls(*(int(part) for part in text.lower().split("x")))
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(f"{text!r} is not VECTORSxDIMxCODESxSTAGES, e.g. 4096x16x128x4") from None
        if min(shape) < 1:
            raise argparse.ArgumentTypeError(f"{text!r}: every number must be at least 1")
        return shape


# --- the problem -----------------------------------------------------------------------------------------------


def vectors(shape: Shape, seed: int) -> Tensor:
    """Normal vectors ``(vectors, dim)``, whose median radius on the ball is where scale control keeps an encoder."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape.vectors, shape.dim, generator=generator) * (math.atanh(RADIUS) / shape.dim**0.5)


def fitted(shape: Shape, kind: str) -> Tensor:
    """Codebooks ``(stages, codes, dim)`` of two rounds of k-means on other vectors of the same kind.

    They make residuals shrink from stage to stage as after training, in the geometry of the contender.
    """
    torch.manual_seed(0)
    quantizer = ghrq.ResidualQuantizer(shape.dim, shape.codes, shape.stages, kind=kind)
    quantizer.initialize(vectors(shape._replace(vectors=8 * shape.codes), seed=1), iterations=2)
    return quantizer.codebooks.detach().clone()


# --- time ----------------------------------------------------------------------------------------------------


def interleaved(calls: dict[str, Call], repeats: int) -> dict[str, list[float]]:
    """Seconds a call, one sample a round: in each of ``repeats`` rounds every contender has its turn, in random order.

    So whatever else the machine is doing meets all of them. Every turn begins with a call that does not count: it
    brings the caches and the thread pools back to this contender.
    """
    first = {name: _warm_seconds(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with _no_collector():
        for turn in range(repeats):
            for name in random.sample(sorted(calls), len(calls)):
                slow = first[name] > SLOW_SECONDS
                if slow and turn >= SLOW_ROUNDS:
                    continue
                if not slow:
                    calls[name]()
                samples[name].append(_seconds(calls[name], max(1, math.ceil(SAMPLE_SECONDS / first[name]))))
    return samples


def _warm_seconds(call: Call) -> float:
    seconds = _seconds(call, 1)
    return seconds if seconds > SLOW_SECONDS else min(_seconds(call, 1) for _ in range(2))


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


@contextmanager
def _no_collector() -> Iterable[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in samples.items() if values}


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles as a share of the median: how noisy a series is."""
    if len(values) < 3:
        return math.nan
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


# --- memory --------------------------------------------------------------------------------------------------


def resident() -> int:
    """Bytes this process holds in memory now."""
    return _status("VmRSS")


def peak_resident() -> int:
    """The most it has held, in bytes, since it began or since :func:`forget_peak`."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Give freed memory back to the system, and let the peak begin at what is held now (Linux)."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def extra_bytes(call: Call) -> int:
    """How far the resident memory rises above its level before while ``call`` runs."""
    forget_peak()
    before = resident()
    call()
    return max(0, peak_resident() - before)


def in_fresh_process(function: Callable[..., int], *arguments: Any) -> int:
    """``function(*arguments)`` in a process of its own: nothing that others freed or cached hides what it takes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in MODULES if find_spec(name)])
    with context.Pool(1) as pool:
        return pool.apply(function, arguments)


# --- machine, tables, files ------------------------------------------------------------------------------------


def machine(threads: int) -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def describe(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    busy = "\nWARNING: something else is running here, these times mean little" if about["load"] > BUSY else ""
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['threads']} threads, load {about['load']} at the start, "
        f"{about['system']}, {about['date']}\n{versions}{busy}"
    )


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned, to read in a terminal and to paste into a page."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    cells = [[cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def grid(corner: str, rows: dict[str, dict[str, str]]) -> str:
    """The same from named cells of named rows; a cell that a row does not have is a dash."""
    columns = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    body = [[name, *(cells.get(column, "-") for column in columns)] for name, cells in rows.items()]
    return table([corner, *columns], body) + "\n"


def write_json(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten to {path}")


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def output(text: str) -> Path:
    """The name of a file and not of a folder, for argparse: to find out in the end would be late."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder: expected the name of a file")
    return path


def add_common_options(parser: argparse.ArgumentParser, name: str, repeats: int) -> None:
    cores = os.cpu_count() or 1
    parser.add_argument("--repeats", type=positive, default=repeats, metavar="N", help=f"rounds (default {repeats})")
    parser.add_argument("--threads", type=positive, default=cores, metavar="N", help=f"for everyone (default {cores})")
    parser.add_argument("--quick", action="store_true", help="a first look: at most 3 rounds, not to be cited")
    default = RESULTS / f"{name}.json"
    parser.add_argument(
        "--json", type=output, default=default, metavar="PATH", help="where all samples go (%(default)s)"
    )


def seeded(threads: int) -> None:
    """The same vectors and the same order every time, on so many threads."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(threads)
