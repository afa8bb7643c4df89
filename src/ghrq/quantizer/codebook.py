"""Codebook state: initial codes, usage statistics, revival of dead codes, moving midpoints."""

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ghrq.geometry import ball, midpoints, numerics
from ghrq.system import distributed, memory
from ghrq.system.errors import UserError

INITIAL_RADIUS = 0.5

# Codes beyond this many times the radius of the ball mean nothing: their gaps and distances are no numbers of the ball.
_FAR_OUTSIDE = 3.0


def existing(sizes: Sequence[int], device: torch.device | None = None) -> Tensor:
    """``(num_stages, largest size)`` bool: which rows of the codebooks are codes. The others are 0 and never chosen."""
    return torch.arange(max(sizes), device=device) < torch.tensor(sizes, device=device).unsqueeze(1)


def uneven(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The ``sizes`` of the stages, if they differ."""
    return tuple(sizes) if len(set(sizes)) > 1 else None


def check_memory(num_stages: int, codebook_size: int, dim: int, midpoints: bool) -> None:
    """Raise an error if there is not the memory to make the codebooks: some 12 bytes a number, 28 with midpoints."""
    if torch.empty(0).device.type == "cpu":
        needed = num_stages * codebook_size * (dim * (28 if midpoints else 12) + 16)
        told = f"{num_stages} codebooks (num_stages) of {codebook_size} codes (codebook_size) of {dim} numbers"
        memory.check_room(needed, told, "lower one of them")


def initial_codebooks(sizes: Sequence[int], dim: int, curvature: float) -> Tensor:
    """Random codes ``(num_stages, largest size, dim)``: all directions alike, radius uniform up to 0.5."""
    num_stages, largest = len(sizes), max(sizes)
    codes = nn.functional.normalize(torch.randn(num_stages, largest, dim), dim=-1)
    radius = INITIAL_RADIUS / (curvature or 1.0) ** 0.5
    codes = codes * radius * (1.0 - torch.rand(num_stages, largest, 1))
    return codes if uneven(sizes) is None else torch.where(existing(sizes).unsqueeze(-1), codes, 0.0)


def check_inside(codebooks: Tensor, gaps: Tensor, curvature: float, told: bool) -> bool:
    """Warn once about codes ``(N, K, d)`` outside the ball, and refuse those far outside; ``gaps (N, K)`` are theirs.

    Returns whether the user was ``told``, now or before.
    """
    eps = torch.finfo(numerics.computable(codebooks).dtype).eps  # the gap that ball.gap gives to points outside
    if float(gaps.min()) > eps:
        return told
    outside = codebooks.detach()[~(gaps > eps)]
    radius = float(numerics.norm(outside).max()) * curvature**0.5
    number = f"{len(outside)} of {gaps.numel()} codes lie outside the ball"
    remedy = (
        "an optimiser that does not know the ball, such as torch.optim.Adam, moves them out; use "
        "ghrq.optim.RiemannianAdam or RiemannianSGD for the quantizer's parameters, or codebook_update='ema'"
    )
    if not radius <= _FAR_OUTSIDE:
        raise UserError(
            f"{number}, the farthest at {radius:.3g} times its radius: {remedy}, and start again from codes inside"
        )
    if not told:
        warnings.warn(f"{number}: {remedy}", stacklevel=4)
    return True


class Usage(nn.Module):
    """How often each code is chosen, relative to uniform use: a moving average ``share (num_stages, largest size)``.

    It starts at 1, uniform, so that no code counts as dead in the first steps. A share does not depend on the
    batch size. Beyond the size of a stage it is 0.
    """

    share: Tensor

    def __init__(self, sizes: Sequence[int], decay: float) -> None:
        super().__init__()
        self.decay, self._sizes = decay, tuple(sizes)
        self.register_buffer("share", existing(sizes).float())

    @torch.no_grad()
    def update(self, codes: Tensor, weights: Tensor) -> None:
        """Count ``codes (n, num_stages)`` with ``weights (n, num_stages)``."""
        stages, size = self.share.shape
        offsets = torch.arange(0, stages * size, size, device=codes.device)
        counts = self.share.new_zeros(stages * size)
        counts.scatter_add_(0, (codes + offsets).flatten(), weights.to(counts.dtype).flatten())
        counts = distributed.sum_(counts).view(stages, size)
        total = counts.sum(-1, keepdim=True)
        sizes = size if uneven(self._sizes) is None else torch.tensor(self._sizes, device=counts.device).unsqueeze(1)
        # A stage that no row reached (depth dropout, an empty mask) keeps its shares.
        share = torch.where(total > 0.0, counts * sizes / total.clamp(min=1e-30), self.share)
        self.share.lerp_(share, 1.0 - self.decay)

    def dead(self, below: float) -> Tensor:
        """``(num_stages, largest size)`` bool: the codes whose share is ``below`` this."""
        dead = self.share < below
        return dead if uneven(self._sizes) is None else dead & existing(self._sizes, dead.device)

    def reset(self, where: Tensor | None = None) -> None:
        """Back to uniform, everywhere or ``where (num_stages, largest size)`` is true."""
        uniform = existing(self._sizes, self.share.device).to(self.share.dtype)
        self.share.copy_(uniform if where is None else torch.where(where, 1.0, self.share))


class MovingMidpoints(nn.Module):
    """Codebooks that follow their points: moving averages of the midpoint's sums ``Σλx`` and ``Σ(λ-1)``.

    A code whose points stay where they are converges to exactly their midpoint; averages of ``⊕`` would drift outward.
    A point at the boundary has an enormous λ: it counts as at most ``heaviest``, so that no row outweighs all others.
    """

    s: Tensor
    t: Tensor

    def __init__(
        self, codebooks: Tensor, sizes: Sequence[int], curvature: float, decay: float, heaviest: float = math.inf
    ) -> None:
        super().__init__()
        self.curvature, self.decay, self._sizes, self._heaviest = curvature, decay, tuple(sizes), heaviest
        self.register_buffer("s", torch.zeros(codebooks.shape, dtype=torch.float64))
        self.register_buffer("t", torch.zeros(*codebooks.shape[:2], 1, dtype=torch.float64))
        self.restart(codebooks)

    @torch.no_grad()
    def restart(self, codebooks: Tensor, where: Tensor | None = None, weights: Tensor | None = None) -> None:
        """Reset the averages to ``codebooks``, as if each code had received an equal share of a batch.

        ``weights (num_stages,)``: the total weight of the rows that reach each stage, by default 1. Under depth
        dropout it is less at the deep stages; a code that started there with a full share would not move for long.
        """
        exists = existing(self._sizes, codebooks.device).double()
        weight = (exists / exists.sum(-1, keepdim=True)).unsqueeze(-1)
        if weights is not None:
            weight = weight * weights.double().view(-1, 1, 1)
        w, mass = ball.midpoint_weights(codebooks.detach(), weight, self.curvature)
        s, t = mass * codebooks.detach().to(self.s.dtype), mass - w
        mask = torch.ones_like(t, dtype=torch.bool) if where is None else where.unsqueeze(-1)
        self.s.copy_(torch.where(mask, s, self.s))
        self.t.copy_(torch.where(mask, t, self.t))

    @torch.no_grad()
    def update(self, codebooks: Tensor, codes: Tensor, residuals: list[Tensor], weights: Tensor) -> None:
        """Move ``codebooks`` in place. ``codes (n, N)``, ``N`` residuals ``(n, d)``, ``weights (n, N)``."""
        sums = [
            midpoints.sums(r, codes[:, i], codebooks.shape[1], self.curvature, weights[:, i], self._heaviest)
            for i, r in enumerate(residuals)
        ]
        s = distributed.mean_(torch.stack([s for s, _ in sums]))
        t = distributed.mean_(torch.stack([t for _, t in sums]))
        self.s.lerp_(s.to(self.s.dtype), 1.0 - self.decay)
        self.t.lerp_(t.to(self.t.dtype), 1.0 - self.decay)
        # A code that no row has chosen for hundreds of steps has sums near 0 but keeps its position.
        moved = midpoints.from_sums(self.s, self.t, self.curvature)
        codebooks.copy_(ball.project(torch.where(self.t > 1e-30, moved, codebooks).to(codebooks.dtype), self.curvature))

    @torch.no_grad()
    def stretch(self, factor: Tensor) -> None:
        """Multiply the distances of the midpoints from the origin by ``factor ()``.

        The sums become those of one point at each midpoint, with all of its weight.
        """
        size = self.curvature**0.5 * torch.linalg.vector_norm(self.s, dim=-1, keepdim=True)
        radius = size / (self.t + (self.t.square() - size.square()).clamp(min=0.0).sqrt()).clamp(min=1e-300)
        moved = _stretched(radius, factor.to(radius.dtype))
        # λ - 1 = (1 + r²) / (1 - r²) and λ r = 2r / (1 - r²), at the radius r of the midpoint
        weight = self.t * (1.0 - radius.square()) / (1.0 + radius.square())
        ratio = torch.where(size > 0.0, weight * 2.0 * moved / (1.0 - moved.square()) / size, factor)
        self.s.mul_(torch.where(factor == 1.0, 1.0, ratio))  # all bits stay where nothing changes
        self.t.copy_(torch.where(factor == 1.0, self.t, weight * (1.0 + moved.square()) / (1.0 - moved.square())))


@torch.no_grad()
def stretch(points: Tensor, factor: Tensor, curvature: float) -> None:
    """Multiply the distances of ``points (..., d)`` from the origin by ``factor ()``, in place.

    It is ``mobius_scalar_mul`` of the manifold for one factor, without a logarithm of every entry.
    """
    radius = curvature**0.5 * torch.linalg.vector_norm(points, dim=-1, keepdim=True)
    ratio = torch.where(radius > 0.0, _stretched(radius, factor) / radius, factor)
    points.mul_(torch.where(factor == 1.0, 1.0, ratio).to(points.dtype))
    points.copy_(ball.project(points, curvature))  # a rounded product may lie on the boundary


def _stretched(radius: Tensor, factor: Tensor) -> Tensor:
    """``tanh(factor · artanh(radius))``, inside the ball."""
    bound = ball.max_radius(radius.dtype)
    return torch.tanh(factor * torch.atanh(radius.clamp(max=bound))).clamp(max=bound)


@torch.no_grad()
def revive(codebooks: Tensor, dead: Tensor, residuals: list[Tensor], weights: Tensor) -> None:
    """Put the ``dead (N, K)`` codes, in place, onto random residuals of their stage: ``N`` tensors ``(n, d)``.

    Rows are sampled by ``weights (n, N)``; all processes use those of the first.
    """
    for i, r in enumerate(residuals):
        # If no row reached this stage, uniform weights keep the sampling defined.
        chance = torch.where(weights[:, i].sum() > 0.0, weights[:, i], 1.0).float()
        rows = torch.multinomial(chance, codebooks.shape[1], replacement=True)
        codebooks[i].copy_(
            torch.where(dead[i].unsqueeze(-1), r.index_select(0, rows).to(codebooks.dtype), codebooks[i])
        )
    distributed.broadcast_(codebooks)


@torch.no_grad()
def forget_moments(optimizer: torch.optim.Optimizer, codebooks: Tensor, revived: Tensor) -> None:
    """Zero gradient and optimiser state of ``revived (N, K)`` codes, and then ``revived`` itself."""
    alive = ~revived.unsqueeze(-1)
    for value in (codebooks.grad, *optimizer.state.get(codebooks, {}).values()):
        if isinstance(value, Tensor) and value.dim() == 3:
            value.mul_(alive)
    revived.zero_()
