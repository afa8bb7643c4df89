"""Encoder-scale control: a multiplier that keeps encoder outputs at a target radius of the ball, and their mean."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ghrq.geometry import numerics
from ghrq.quantizer.routes import Units
from ghrq.system import distributed
from ghrq.system.checks import inside

# Of ``scale_control=True`` without a radius, and of the average that the paper's kinds use.
DEFAULT_RADIUS, SLOW_DECAY = 0.5, 0.99
# The encoder's norms may grow by several percent a step: an average that lags behind lets points run to the boundary.
FAST_DECAY = 0.9

# The step of a batch uses at most OVERSHOOT times the multiplier that fits the batch. A batch of tiny vectors counts in
# the average as at most _RISE times that.
OVERSHOOT, _RISE = 2.0, 5.0

# Where most vectors are tiny beside the others (silence, empty background), their median says nothing of these: this
# share of the vectors is at most _TAIL times as long as what is taken to the target radius.
_SHARE, _TAIL = 0.99, 4.0

# A single row counts in a midpoint as at most this many at the target radius.
_OUTWEIGHS = 8.0

# Longer vectors count as this long: the multiplier and its inverse are float32.
_LONGEST = 1e30

# Of a saved scale: no smaller one comes of vectors that count as at most that long; the weight is that of an average.
_LEAST, _HEAVIEST = 1e-35, 1.001


def target_radius(
    radius: float | None, scale_control: bool | None, default: float | None, curvature: float, units: Units
) -> float | None:
    """The radius that scale control aims at, from the arguments of a quantizer; None is no scale control.

    ``default`` is the radius of the kind; flat space has none, where a scale would change nothing.
    """
    if radius is not None:
        inside("radius", radius, 0.0, 1.0)
        if scale_control is False:
            raise ValueError(f"radius={radius} needs scale control: leave out scale_control=False")
    elif scale_control is False:
        return None
    else:
        radius = (default if curvature > 0.0 else None) or (DEFAULT_RADIUS if scale_control else None)
    if radius is not None and units == "encoder" and curvature not in (0.0, 1.0):
        raise ValueError(
            f"with a target radius (here {radius}) the curvature follows the data, and curvature={curvature:g} would "
            "make no difference: leave it out, or give scale_control=False"
        )
    return radius


def heaviest_weight(radius: float | None) -> float:
    """The largest λ of a point among those whose midpoint a code is: some times that at the target ``radius``."""
    return math.inf if radius is None else _OUTWEIGHS * 2.0 / (1.0 - radius**2)


def fitting_scale(
    v: Tensor, weights: Tensor, radius: float, curvature: float = 1.0, least: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """The multiplier ``()`` that takes the median of tangent vectors ``v (n, d)`` to ``radius``, and if there is one.

    It is less where the median is less than a quarter of the 99th percentile, which would come to the boundary. Rows of
    ``weights (n,)`` 0 do not count; there is none if that length is not above ``least``.
    """
    norms = torch.linalg.vector_norm(v.detach().float(), dim=-1)
    if not numerics.below(norms, 1e15):  # the squares may overflow in float32
        norms = numerics.norm(v.detach()).squeeze(-1).clamp(max=_LONGEST).float()
    counts = weights > 0
    number = counts.sum()
    # One more, so that there is always one; those that do not count come last.
    ordered = F.pad(torch.where(counts, norms, torch.inf), (0, 1), value=torch.inf).sort().values
    places = [((share * number).ceil().long() - 1).clamp(min=0) for share in (0.5, _SHARE)]
    median, tail = ordered.gather(0, torch.stack(places)).unbind()
    length = torch.maximum(median, tail / _TAIL)
    wanted = math.atanh(radius) / math.sqrt(curvature) / length
    return wanted, (number > 0) & (length > least) & wanted.isfinite()


class MovingAverage(nn.Module):
    """An exponential moving average of one number or one vector per batch, exact from the first batch on.

    It carries no gradient, changes only by :meth:`add` and is saved with the model. ``shape`` is that of the average.
    """

    total: Tensor
    weight: Tensor

    def __init__(self, shape: tuple[int, ...], decay: float, empty: float) -> None:
        super().__init__()
        self.decay, self.empty = decay, empty
        self.register_buffer("total", torch.zeros(shape))
        self.register_buffer("weight", torch.zeros(()))

    @torch.no_grad()
    def add(self, value: Tensor, valid: Tensor) -> None:
        """Add the ``value`` of a batch where ``valid ()`` is true; several processes add their mean."""
        one = valid.to(self.total.dtype)
        batch = torch.cat((torch.where(valid, value.to(self.total.dtype), 0.0).reshape(-1), one.reshape(1)))
        distributed.sum_(batch)
        count = batch[-1]
        seen = count.clamp(max=1.0)  # no update if the value of no process is valid
        keep = 1.0 - (1.0 - self.decay) * seen
        mean = (batch[:-1] / count.clamp(min=1.0)).view(self.total.shape)
        self.total.mul_(keep).add_((1.0 - self.decay) * mean)
        self.weight.mul_(keep).add_((1.0 - self.decay) * seen)

    def clear(self) -> None:
        """Forget all batches."""
        self.total.zero_()
        self.weight.zero_()

    def forward(self) -> Tensor:
        """:meth:`average`."""
        return self.average()

    def average(self) -> Tensor:
        """The average; ``empty`` before the first batch."""
        return torch.where(self.weight > 0.0, self.total / self.weight.clamp(min=1e-12), self.empty)


class EncoderScale(MovingAverage):
    """A multiplier ``s ()`` on tangent vectors such that their median radius on the ball is ``radius``.

    Encoder outputs have norms of order √d, which the exponential map puts onto the boundary. ``s`` follows
    ``artanh(radius) / (√c · median‖v‖)``. A ball of curvature c on which all vectors are s times as long is, in units
    of the vectors, a ball of curvature ``c s²``: so this is a curvature that follows the data. Without any update
    s is 1.

    A batch that is out of scale must not come to the boundary, where points have enormous weights in midpoints: its
    own training step uses at most ``overshoot`` times the multiplier that fits it.
    """

    limit: Tensor

    def __init__(
        self, curvature: float, radius: float = DEFAULT_RADIUS, decay: float = SLOW_DECAY, overshoot: float = math.inf
    ) -> None:
        super().__init__((), decay, empty=1.0)
        self.radius, self.overshoot = radius, overshoot
        self.curvature = curvature or 1.0
        self.register_buffer("limit", torch.tensor(torch.inf), persistent=False)

    @torch.no_grad()
    def update(self, v: Tensor, weights: Tensor, least: Tensor | float = 0.0) -> None:
        """Update from a batch of tangent vectors ``v (n, d)``, and limit s until :meth:`unlimit`.

        Rows of ``weights (n,)`` 0 are ignored; so is a batch whose median norm is not above ``least``.
        """
        wanted, valid = fitting_scale(v, weights, self.radius, self.curvature, least)
        # A batch of tiny vectors must not raise the average by orders of magnitude.
        highest = torch.where(self.weight > 0.0, _RISE * self.overshoot * self.average(), torch.inf)
        self.add(wanted.minimum(highest), valid)
        self.limit.copy_(torch.where(valid, self.overshoot * wanted, torch.inf))

    def unlimit(self) -> None:
        """After the training step of a batch: s is the average again."""
        self.limit.fill_(torch.inf)

    def forward(self) -> Tensor:
        """The multiplier ``()``."""
        return torch.minimum(self.average(), self.limit) if self.training else self.average()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.unlimit()
        if not self.total.is_meta and not (self.average() > _LEAST and 0.0 <= self.weight <= _HEAVIEST):
            raise ValueError(
                f"the encoder scale is {float(self.average()):.3g}, its weight {float(self.weight):.3g}: not those of "
                "an average of finite vectors"
            )


class EncoderMean(MovingAverage):
    """The mean ``(d,)`` of the encoder's outputs, which the quantizer subtracts first and adds last."""

    def __init__(self, dim: int) -> None:
        super().__init__((dim,), SLOW_DECAY, empty=0.0)

    @torch.no_grad()
    def update(self, v: Tensor, weights: Tensor) -> None:
        """Update from a batch of tangent vectors ``v (n, d)`` with ``weights (n,)``, whose sum is 1 or 0."""
        self.add(weights.to(v.dtype) @ v.detach(), weights.sum() > 0.0)
