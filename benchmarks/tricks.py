"""What each hand-written speed-up gains over the plain torch version, in the step that it is part of.

    python benchmarks/tricks.py                    # all of them
    python benchmarks/tricks.py --only dropout     # those whose name contains a word
    python benchmarks/tricks.py --repeats 30

A ratio is the time of the step with the plain version divided by the time of the step as it is, measured in one run:
both take turns, one thread, medians. A speed-up stays in the library only if its ratio is at least 1.10.

Taken out because they were below (17 November 2026, on a machine with other load): a signature kept for autograd
functions (0.98 to 1.10 of the quantizer's step, without a trend), the feed-forward network as one autograd function
(0.96 to 1.08), attention as one autograd function with torch's private softmax backward (0.98 to 1.07).
"""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import timing
import torch
import torch.nn.functional as F
from timing import Call, Shape, fitted, vectors
from torch import Tensor

import ghrq
from ghrq import ball, optim
from ghrq.geometry import kmeans, manifold, midpoints
from ghrq.geometry.gradients import to_ball
from ghrq.nets import contrast, layer
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.quantizer import routes

Patches = Callable[[], list[AbstractContextManager[Any]]]


# --- the steps ---------------------------------------------------------------------------------------------------


def translator_step() -> Call:
    """The translator of the recipe wordnet/demo: 256 sources with 8 targets each."""
    model = TupleTranslator(4, 128, width=64, layers=1, heads=2, feedforward=256, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    source, source_of = torch.randint(128, (256, 4)), torch.randint(256, (2048,))
    targets = torch.stack([torch.randint(size, (2048,)) for size in (4, 16, 128, 128)], dim=1)
    return _optimized(optimizer, lambda: model(source, targets, source_of))


def quantizer_step() -> Call:
    """The quantizer alone, forward and backward: the first shape of benchmarks/quantizer.py."""
    shape = Shape(4096, 16, 128, 4)
    quantizer = ghrq.ResidualQuantizer(shape.dim, shape.codes, shape.stages, "ghrq", revive_below=0.0)
    quantizer.codebooks.data.copy_(fitted(shape, "ghrq"))
    z = vectors(shape, seed=2).requires_grad_()

    def step() -> None:
        z.grad = quantizer.codebooks.grad = None
        result = quantizer(z)
        (result.z_hat.sum() + result.loss).backward()

    return step


def info_nce_step() -> Call:
    """A batch of 2048 pairs with 50 negatives in 16 dimensions: the recipe wordnet/paper."""
    table = torch.nn.Parameter(0.1 * torch.randn(20_000, 16))
    pairs, drawn = torch.randint(20_000, (2, 2048)), torch.randint(20_000, (2048, 50))

    def loss() -> Tensor:
        points, gaps = to_ball(table, 1.0)
        (u, v), (alpha, beta) = points[pairs], gaps[pairs]
        return contrast.info_nce(u, alpha, v, beta, points, gaps, drawn, 1.0)

    return _optimized(torch.optim.SGD([table], lr=0.1), loss)


def adam_step() -> Call:
    """One step on a stack of codebooks ``(12, 1024, 128)``."""
    points = 0.5 * F.normalize(torch.randn(12, 1024, 128), dim=-1) * torch.rand(12, 1024, 1)
    parameter = manifold.ManifoldParameter(points, manifold=manifold.PoincareBall(1.0))
    parameter.grad = torch.randn_like(points) / 100.0
    return optim.RiemannianAdam([parameter], lr=1e-3).step


def kmeans_step() -> Call:
    """Five rounds of k-means: 65,536 points in 64 dimensions, 256 centres."""
    x = ball.expmap0(0.1 * torch.randn(65_536, 64))

    def step() -> None:
        torch.manual_seed(0)
        kmeans.kmeans(x, 256, 1.0, iterations=5)

    return step


def _optimized(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Call:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


# --- the plain versions ------------------------------------------------------------------------------------------


def plain_dropout() -> list[AbstractContextManager[Any]]:
    def add(self: layer.Layer, x: Tensor, branch: Tensor) -> Tensor:
        return x + F.dropout(branch, self.byte / 256, self.training)

    return [patch.object(layer.Layer, "_add", add)]


def plain_maps() -> list[AbstractContextManager[Any]]:
    def to_ball(v: Tensor, c: float) -> tuple[Tensor, Tensor]:
        point = ball.expmap0(v, c)
        return point, ball.gap(point.detach(), c).to(v.dtype)

    def from_ball(point: Tensor, gap: Tensor, c: float) -> Tensor:
        return ball.logmap0(point, c)

    return [patch("ghrq.quantizer.coder.to_ball", to_ball), patch("ghrq.quantizer.coder.from_ball", from_ball)]


def plain_route() -> list[AbstractContextManager[Any]]:
    def route(z: Tensor, gap: Tensor, *arguments: Any, **settings: Any) -> routes.Routed:
        return routes.attached_route(z, *arguments, gradient="transport", commitment="first", **settings)

    return [patch("ghrq.quantizer.learner.transport_route", route)]


def plain_info_nce() -> list[AbstractContextManager[Any]]:
    def loss(
        u: Tensor, _a: Tensor, v: Tensor, _b: Tensor, table: Tensor, _g: Tensor, drawn: Tensor, c: float
    ) -> Tensor:
        near, far = ball.distance(u, v, c).unsqueeze(1), ball.distance(u.unsqueeze(1), table[drawn], c)
        logits = -torch.cat((near, far, torch.zeros_like(near)), dim=1)
        return F.cross_entropy(logits, torch.zeros(len(u), dtype=torch.long))

    return [patch.object(contrast, "info_nce", loss)]


def plain_geodesic() -> list[AbstractContextManager[Any]]:
    class Plain:
        def __init__(self, x: Tensor, v: Tensor, c: Tensor, *, rate: Any = 1.0, alpha: Tensor | None = None) -> None:
            self.x, self.c, self.end = x, c, ball.expmap(x, rate * v, c)

        def carry(self, w: Tensor, out: Tensor) -> Tensor:
            return out.copy_(ball.transport(w, self.x, self.end, self.c))

    return [patch("ghrq.optim.Geodesic", Plain)]


def plain_sums() -> list[AbstractContextManager[Any]]:
    def sums(x: Tensor, factor: Tensor, index: Tensor, count: int) -> tuple[Tensor, Tensor]:
        return midpoints.sums(x, index, count, 1.0)

    return [patch.object(midpoints, "sums_sorted", sums)]


TRICKS: dict[str, tuple[Callable[[], Call], Patches]] = {
    "dropout by random bytes, translator": (translator_step, plain_dropout),
    "maps with closed-form gradients, quantizer": (quantizer_step, plain_maps),
    "closed-form losses, quantizer": (quantizer_step, plain_route),
    "closed-form InfoNCE, embedding": (info_nce_step, plain_info_nce),
    "geodesic step, RiemannianAdam": (adam_step, plain_geodesic),
    "sorted midpoint sums, k-means": (kmeans_step, plain_sums),
}


def ratio(name: str, repeats: int) -> float:
    """Time of the step with the plain version, divided by the time of the step as it is."""
    make, patches = TRICKS[name]
    torch.manual_seed(0)
    step = make()

    def plain() -> None:
        with ExitStack() as stack:
            for each in patches():
                stack.enter_context(each)
            step()

    times = timing.medians(timing.interleaved({"plain": plain, "fast": step}, repeats))
    return times["plain"] / times["fast"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="only those whose name contains this word")
    parser.add_argument("--repeats", type=timing.positive, default=25, metavar="N", help="rounds (default 25)")
    chosen = parser.parse_args()
    timing.seeded(threads=1)
    print(timing.describe(timing.machine(1)), "\n", flush=True)
    for name in TRICKS:
        if chosen.only in name:
            print(f"{ratio(name, chosen.repeats):6.2f}  {name}", flush=True)


if __name__ == "__main__":
    main()
