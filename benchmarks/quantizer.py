"""How fast the quantizer is: against its peers from PyPI, and against the bare matrix product, in one run.

    pip install -e '.[bench]'
    python benchmarks/quantizer.py                           # everything: the numbers to cite
    python benchmarks/quantizer.py --quick                   # a first look
    python benchmarks/quantizer.py --shapes 1 4 --repeats 5  # two of the built-in shapes
    python benchmarks/quantizer.py --shapes 100000x64x256x8  # vectors x dim x codes x stages

docs/performance.md says what is measured and why.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import faiss
import geoopt
import numpy as np
import timing
import torch
from timing import Call, Shape, fitted, vectors
from torch import Tensor
from vector_quantize_pytorch import ResidualVQ

import ghrq
from ghrq import optim
from ghrq.geometry import manifold

SHAPES = [
    Shape(4096, 16, 128, 4),
    Shape(2048, 32, 128, 4),
    Shape(16384, 16, 512, 4),
    Shape(3200, 8, 1024, 12),
    Shape(3200, 32, 1024, 12),
    Shape(3200, 128, 1024, 12),
    Shape(8192, 64, 1024, 8),
]
TASKS = ("train", "encode", "decode")
KINDS = ("ghrq", "euclidean", "naive")

COMMITMENT = 0.25
COMPILED_STAGES = 4
FLOOR_ROWS = 1024
# The numbers of one (rows, codes, dim) tensor of the geoopt cascade, and of all of them before it takes minutes.
GEOOPT_CHUNK, GEOOPT_MOST = 2**23, 2 * 10**9
# The memory of encode is to be the same however many vectors there are: measured on this many, too.
MANY, MANY_QUICK = 2**20, 2**17
OPTIMISER = (12, 1024, 128)
MIB = 2**20

Row, Times = list[str], dict[str, float]


# --- the contenders: (task, codebooks, vectors) -> what to call, or None if it does not do that ------------------


def ours(kind: str, task: str, books: Tensor, z: Tensor, compiled: bool = False) -> Call | None:
    """The quantizer as it is, or its training step through torch.compile: half a minute first, more for more stages."""
    stages, codes, dim = books.shape
    if compiled and (task != "train" or stages > COMPILED_STAGES):
        return None
    rq = ghrq.ResidualQuantizer(dim, codes, stages, kind, commitment_weight=COMMITMENT, revive_below=0.0)
    rq.codebooks.data.copy_(books)
    if compiled:
        torch.compiler.reset()  # it keeps no more than eight of one function
        rq.compile(fullgraph=True)
    if task == "train":
        return _step(lambda z: (out := rq(z)).z_hat.sum() + out.loss, z, [rq.codebooks])
    rq.eval()
    if task == "encode":
        return lambda: rq.encode(z)
    chosen = rq.encode(z)
    return lambda: rq.decode(chosen)


def residual_vq(learnable: bool, task: str, books: Tensor, z: Tensor) -> Call:
    """The plain straight-through estimator, nothing random, no revival: the cheapest it can do the same job with."""
    stages, codes, dim = books.shape
    vq = ResidualVQ(
        dim=dim,
        num_quantizers=stages,
        codebook_size=codes,
        commitment_weight=COMMITMENT,
        decay=0.99,
        ema_update=not learnable,
        learnable_codebook=learnable,
        rotation_trick=False,
        kmeans_init=False,
        stochastic_sample_codes=False,
        quantize_dropout=False,
        threshold_ema_dead_code=0,
    )
    for layer, book in zip(vq.layers, books, strict=True):
        share = z.shape[0] / codes
        layer._codebook.embed.data.copy_(book)
        layer._codebook.cluster_size.fill_(share)
        layer._codebook.embed_avg.copy_(book * share)
    z = z.unsqueeze(0)  # one sequence: a batch of single vectors is slower
    if task == "train":
        return _step(lambda z: (out := vq(z))[0].sum() + out[2].sum(), z, list(vq.parameters()))
    vq.eval()
    if task == "encode":
        return torch.no_grad()(lambda: vq(z)[1])
    with torch.no_grad():
        chosen = vq(z)[1]
    return torch.no_grad()(lambda: vq.get_output_from_indices(chosen))


def geoopt_cascade(task: str, books: Tensor, z: Tensor) -> Call | None:
    """What a user writes with the manifold at hand: distances to all codes by broadcasting, autograd for the rest."""
    if task != "decode" and z.shape[0] * books.numel() > GEOOPT_MOST:
        return None
    ball = geoopt.PoincareBall(1.0)
    codebooks = geoopt.ManifoldParameter(books.clone(), manifold=ball)

    @torch.no_grad()
    def nearest(r: Tensor, codes: Tensor) -> Tensor:
        parts = r.split(max(1, GEOOPT_CHUNK // codes.numel()))
        return torch.cat([ball.dist(part.unsqueeze(1), codes).argmin(1) for part in parts])

    def quantize(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r, total, chosen, loss = ball.expmap0(z), None, [], torch.zeros(())
        for codes in codebooks:
            chosen.append(nearest(r, codes))
            q = codes[chosen[-1]]
            loss = loss + ball.dist2(r.detach(), q).mean() + COMMITMENT * ball.dist2(r, q.detach()).mean()
            part = r + (q - r).detach()
            total = part if total is None else ball.mobius_add(total, part)
            r = ball.mobius_add(r, -part)
        return ball.logmap0(total), torch.stack(chosen, dim=-1), loss

    def decode(chosen: Tensor) -> Tensor:
        total = codebooks[0][chosen[:, 0]]
        for i in range(1, chosen.shape[1]):
            total = ball.mobius_add(total, codebooks[i][chosen[:, i]])
        return ball.logmap0(total)

    if task == "train":
        return _step(lambda z: (out := quantize(z))[0].sum() + out[2], z, [codebooks])
    if task == "encode":
        return torch.no_grad()(lambda: quantize(z)[1])
    anything = torch.randint(books.shape[1], (z.shape[0], books.shape[0]))
    return torch.no_grad()(lambda: decode(anything))


def faiss_quantizer(tables: bool, task: str, books: Tensor, z: Tensor) -> Call | None:
    """``ResidualQuantizer`` with beam 1: by residuals, its default, or by tables of inner products."""
    stages, codes, dim = books.shape
    bits = codes.bit_length() - 1
    if task == "train" or codes != 2**bits:
        return None
    rq = faiss.ResidualQuantizer(dim, stages, bits)
    rq.max_beam_size = 1
    faiss.copy_array_to_vector(books.numpy().ravel(), rq.codebooks)
    rq.is_trained = True
    if tables:
        rq.use_beam_LUT = 1
        rq.compute_codebook_tables()
    rows = z.numpy()
    if task == "encode":
        return lambda: rq.compute_codes(rows)
    packed = rq.compute_codes(rows)
    return None if tables else lambda: rq.decode(packed)


def floor(task: str, books: Tensor, z: Tensor) -> Call | None:
    """The bare product and its argmin, stage by stage, on the vectors as they are: no residuals, no gradients."""
    if task == "decode":
        return None
    matrices, biases = (-2.0 * books).mT.contiguous(), books.square().sum(-1)

    def run() -> None:
        for matrix, bias in zip(matrices, biases, strict=True):
            for rows in z.split(FLOOR_ROWS):
                torch.addmm(bias, rows, matrix).argmin(1)

    return torch.no_grad()(run)


def _step(loss: Callable[[Tensor], Tensor], z: Tensor, parameters: Sequence[Tensor]) -> Call:
    """Forward and backward, from no gradients to all of them."""
    z = z.clone().requires_grad_()

    def step() -> None:
        for tensor in (z, *parameters):
            tensor.grad = None
        loss(z).backward()

    return step


CONTENDERS: dict[str, Callable[[str, Tensor, Tensor], Call | None]] = {
    **{kind: partial(ours, kind) for kind in KINDS},
    **{f"{kind} compiled": partial(ours, kind, compiled=True) for kind in ("ghrq", "euclidean")},
    "vq ema": partial(residual_vq, False),
    "vq learnable": partial(residual_vq, True),
    "geoopt": geoopt_cascade,
    "faiss": partial(faiss_quantizer, False),
    "faiss tables": partial(faiss_quantizer, True),
    "floor": floor,
}


def geometry(contender: str) -> str:
    kinds = {"ghrq": "ghrq", "ghrq compiled": "ghrq", "naive": "naive", "geoopt": "naive"}
    return kinds.get(contender, "euclidean")


# --- measuring -------------------------------------------------------------------------------------------------


def measure_times(shape: Shape, books: dict[str, Tensor], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Samples of every task and contender, in seconds."""
    z, times = vectors(shape, seed=2), {}
    for task in TASKS:
        calls = {name: build(task, books[geometry(name)], z) for name, build in CONTENDERS.items()}
        times[task] = timing.interleaved({name: call for name, call in calls.items() if call}, repeats)
    return times


def agreement(shape: Shape, books: Tensor) -> dict[str, float]:
    """The share of vectors for which peers find all the codes of our Euclidean quantizer: is it the same job?"""
    z = vectors(shape, seed=2)
    true = ours("euclidean", "encode", books, z)()
    found = {"vq": residual_vq(True, "encode", books, z)().squeeze(0)}
    for name in ("faiss", "faiss tables"):
        if call := CONTENDERS[name]("encode", books, z):
            found[name] = torch.from_numpy(faiss.unpack_bitstrings(call(), shape.stages, shape.codes.bit_length() - 1))
    return {name: (codes.long() == true).all(-1).double().mean().item() for name, codes in found.items()}


def extra_memory(contender: str, task: str, shape: Shape, books: np.ndarray, threads: int) -> int:
    """Bytes that one call takes at its peak, its result included, after a call on a few vectors has loaded the code."""
    timing.seeded(threads)
    faiss.omp_set_num_threads(threads)
    build, z = CONTENDERS[contender], vectors(shape, seed=2)
    codebooks = torch.from_numpy(books)
    if (call := build(task, codebooks, z)) is None:
        return -1
    build(task, codebooks, z[:16].clone())()
    return timing.extra_bytes(call)


def measure_memory(shape: Shape, books: dict[str, Tensor], threads: int, many: int) -> dict[str, dict[str, int]]:
    """Extra bytes of a train step and of encode; and of our encode on ``many`` vectors without its result."""

    def of(contender: str, task: str, shape: Shape) -> int:
        codebooks = books[geometry(contender)].numpy()
        return timing.in_fresh_process(extra_memory, contender, task, shape, codebooks, threads)

    names = [name for name in CONTENDERS if not name.endswith("compiled")]
    sizes = {task: {name: of(name, task, shape) for name in names} for task in ("train", "encode")}
    memory = {task: {name: size for name, size in taken.items() if size >= 0} for task, taken in sizes.items()}
    result = many * shape.stages * torch.int64.itemsize
    memory["encode many"] = {"ghrq": max(0, of("ghrq", "encode", shape._replace(vectors=many)) - result)}
    return memory


def measure_optimisers(repeats: int) -> dict[str, list[float]]:
    """Samples of one step on a stack of codebooks."""
    torch.manual_seed(0)
    points = 0.5 * torch.nn.functional.normalize(torch.randn(OPTIMISER), dim=-1) * torch.rand(*OPTIMISER[:2], 1)

    def step(optimiser: Callable[..., torch.optim.Optimizer], parameter: Tensor) -> Call:
        parameter.grad = torch.randn_like(parameter) / 100.0
        return optimiser([parameter], lr=1e-3).step

    on_ball = manifold.ManifoldParameter(points.clone(), manifold=manifold.PoincareBall(1.0))
    on_theirs = geoopt.ManifoldParameter(points.clone(), manifold=geoopt.PoincareBall(1.0))
    calls = {
        "ghrq RiemannianAdam": step(optim.RiemannianAdam, on_ball),
        "geoopt RiemannianAdam": step(geoopt.optim.RiemannianAdam, on_theirs),
        "torch Adam": step(torch.optim.Adam, torch.nn.Parameter(points.clone())),
    }
    return timing.interleaved(calls, repeats)


# --- the targets of issue 3 --------------------------------------------------------------------------------------


def verdict(text: str, at: str, value: float, at_most: float = math.inf, at_least: float = 0.0, unit: str = "") -> Row:
    """A row of the table: what was promised, where, what was measured, the limit, and whether it was kept."""
    limit = f"≤ {at_most:g}{unit}" if at_most < math.inf else f"≥ {at_least:g}{unit}"
    return [text, at, f"{value:.2f}{unit}", limit, "met" if at_least <= value <= at_most else "MISSED"]


def fastest(times: Times, peer: str) -> float:
    return min((seconds for name, seconds in times.items() if name.startswith(peer)), default=math.nan)


def judge_times(name: str, medians: dict[str, Times]) -> list[Row]:
    """The promises about one shape."""
    shape, train, encode = Shape.parse(name), medians["train"], medians["encode"]
    wide = shape.codes >= 512
    speedup = 6.0 if wide and shape.dim <= 16 else 2.5
    rows = [
        verdict("train: fastest ResidualVQ / ghrq", name, fastest(train, "vq") / train["ghrq"], at_least=speedup),
        verdict("train: ghrq / euclidean", name, train["ghrq"] / train["euclidean"], 1.3),
        verdict("encode: ghrq / floor", name, encode["ghrq"] / encode["floor"], 1.15 if wide else 1.5),
    ]
    if mine := train.get("ghrq compiled"):
        rows.append(
            verdict("train: fastest ResidualVQ / ghrq compiled", name, fastest(train, "vq") / mine, at_least=speedup)
        )
        rows.append(verdict("train: ghrq / euclidean, compiled", name, mine / train["euclidean compiled"], 1.3))
    if wide:
        rows.append(verdict("train: ghrq / floor", name, train["ghrq"] / train["floor"], 1.6))
    if not math.isnan(peer := fastest(encode, "faiss")):
        rows.append(verdict("encode: ghrq / fastest faiss", name, encode["ghrq"] / peer, 1.0 if wide else 1.3))
    return rows


def judge(medians: dict[str, dict[str, Times]], steps: Times, memory: dict[str, Any]) -> list[Row]:
    """All rows of the table of targets, those of one target together."""
    rows = [row for name, times in medians.items() for row in judge_times(name, times)]
    rows.sort(key=lambda row: row[0], reverse=True)
    ratio = steps["ghrq RiemannianAdam"] / steps["torch Adam"]
    rows.append(verdict("optimiser: RiemannianAdam / Adam", "x".join(map(str, OPTIMISER)), ratio, 4.0))
    for name, sizes in memory.items():
        extra = sizes["encode many"]["ghrq"] / MIB
        rows.append(verdict("encode of many: extra memory", name, extra, 64.0, unit=" MiB"))
    return rows


# --- the report --------------------------------------------------------------------------------------------------


def against_ours(times: Times) -> dict[str, str]:
    """Our time, and those of the others as multiples of it."""
    ratios = {name: f"{seconds / times['ghrq']:.2f}" for name, seconds in times.items()}
    return ratios | {"ghrq": f"{1e3 * times['ghrq']:.2f} ms"}


def formatted(values: dict[str, float], form: str, unit: float = 1.0) -> dict[str, str]:
    return {name: format(value / unit, form) for name, value in values.items()}


def parse_shape(text: str) -> Shape:
    """A number from 1 on, of a built-in shape, or ``VECTORSxDIMxCODESxSTAGES``."""
    if text.isdigit():
        if not 1 <= int(text) <= len(SHAPES):
            raise argparse.ArgumentTypeError(f"there are {len(SHAPES)} built-in shapes, {text} is not one of them")
        return SHAPES[int(text) - 1]
    return Shape.parse(text)


def options() -> argparse.Namespace:
    listed = ", ".join(f"{i} = {shape}" for i, shape in enumerate(SHAPES, 1))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = f"problems, each a number or VECTORSxDIMxCODESxSTAGES (default: all of {listed})"
    parser.add_argument("--shapes", nargs="+", type=parse_shape, metavar="SHAPE", help=which)
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory")
    timing.add_common_options(parser, "quantizer", repeats=25)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.repeats, chosen.shapes = min(chosen.repeats, 3), chosen.shapes or [SHAPES[0], SHAPES[3]]
    chosen.shapes = chosen.shapes or SHAPES
    return chosen


def main() -> None:
    chosen = options()
    timing.seeded(chosen.threads)
    faiss.omp_set_num_threads(chosen.threads)
    about = timing.machine(chosen.threads)
    print(timing.describe(about), flush=True)
    samples, memory, same = {}, {}, {}
    for shape in chosen.shapes:
        print(f"measuring {shape}", flush=True)
        books = {kind: fitted(shape, kind) for kind in KINDS}
        same[str(shape)] = agreement(shape, books["euclidean"])
        samples[str(shape)] = measure_times(shape, books, chosen.repeats)
        if not chosen.no_memory:
            many = MANY_QUICK if chosen.quick else MANY
            memory[str(shape)] = measure_memory(shape, books, chosen.threads, many)
    optimisers = measure_optimisers(chosen.repeats)
    report(samples, memory, same, optimisers)
    results = {"machine": about, "repeats": chosen.repeats, "seconds": samples, "extra_bytes": memory}
    timing.write_json(chosen.json, {**results, "same_codes": same, "optimiser_seconds": optimisers})


def report(samples: dict, memory: dict, same: dict, optimisers: dict) -> None:
    medians = {shape: {task: timing.medians(of) for task, of in tasks.items()} for shape, tasks in samples.items()}
    steps, size = timing.medians(optimisers), "x".join(map(str, OPTIMISER))
    print("\nTime of ghrq, and of the others as multiples of it (medians; above 1: slower than ghrq)\n")
    for task in TASKS:
        print(timing.grid(task, {shape: against_ours(of[task]) for shape, of in medians.items()}))
    print("\nTime of one step of an optimiser, ms\n")
    print(timing.grid("codebooks", {size: formatted(steps, ".2f", 1e-3)}))
    if memory:
        print("\nPeak resident memory above the level before, results included, in a process of its own, MiB\n")
    for task in ("train", "encode") if memory else ():
        print(timing.grid(task, {shape: formatted(of[task], ".1f", MIB) for shape, of in memory.items()}))
    print("\nVectors for which peers find all the codes of our Euclidean quantizer\n")
    print(timing.grid("encode", {shape: formatted(shares, ".2%") for shape, shares in same.items()}))
    print("\nTargets (for the shapes that are listed by default)\n")
    print(timing.table(["target", "shape", "measured", "limit", ""], judge(medians, steps, memory)))
    noise = max(timing.spread(of["ghrq"]) for tasks in samples.values() for of in tasks.values())
    print(f"\nThe quartiles of ghrq's samples lie at most {noise:.0%} of the median apart.")


if __name__ == "__main__":
    main()
