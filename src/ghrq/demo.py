"""A small demonstration: a tree of points on the ball, quantized by every kind. Run it with ``make demo``."""

import time

import torch
from torch import Tensor

from ghrq import ball
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import KINDS, ResidualQuantizer

DIM, SIZE, STAGES, STEPS = 16, 64, 4, 200


def tree(branching: tuple[int, ...] = (8, 8, 8, 16), dim: int = DIM, hop: float = 1.2) -> Tensor:
    """The leaves of a random tree on the ball, each child one hop from its parent: ``(leaves, dim)`` points."""
    points = torch.zeros(1, dim)
    for children in branching:
        points = points.repeat_interleave(children, dim=0)
        directions = torch.nn.functional.normalize(torch.randn_like(points), dim=-1)
        points = ball.expmap(points, directions * hop / ball.conformal_factor(points))
    return points


def main() -> None:
    """Train every kind for a moment and print what its codes are worth."""
    torch.manual_seed(0)
    points = tree()
    z = ball.logmap0(points)
    print(
        f"{len(z):,} leaves of a random tree (branching 8·8·8·16) in {DIM} dimensions, "
        f"{STAGES} stages of {SIZE} codes, k-means start, {STEPS} steps"
    )
    print(f"{'kind':<12}{'mean d(ẑ, z)² at depth 1 to 4':^36}{'recomposes to':>15}{'distinct':>10}{'seconds':>9}")
    for kind in KINDS:
        torch.manual_seed(1)
        start = time.perf_counter()
        rq = ResidualQuantizer(DIM, SIZE, STAGES, kind=kind)
        rq.initialize(z)
        optimizer = RiemannianAdam(rq.parameters(), lr=1e-3)
        rq.attach(optimizer)
        for _ in range(STEPS):
            optimizer.zero_grad()
            rq(z[torch.randint(len(z), (2048,))]).loss.backward()
            optimizer.step()
        rq.eval()
        codes = rq.encode(z)
        error = ball.distance(ball.expmap0(rq.prefixes(codes)), points.unsqueeze(1)).square().mean(0)
        distinct = len(codes.unique(dim=0)) / len(codes)
        away = rq.diagnose(z).telescoping_error ** 0.5
        depths = " ".join(f"{value:8.3f}" for value in error.tolist())
        print(f"{kind:<12}{depths:^36}{away:>15.1e}{distinct:>10.1%}{time.perf_counter() - start:>9.1f}", flush=True)
    print(
        "recomposes to: distance from z of all codes and the last residual put together again, in float64; 0 is right."
    )
    print("No encoder is trained here, so kinds that differ in their gradients alone come out the same.")


if __name__ == "__main__":
    main()
