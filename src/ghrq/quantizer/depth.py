"""Depth dropout: how many stages each row uses in training, and what that means for its weights."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Union, get_args

import torch
from torch import Tensor

from ghrq.system.checks import from_to, one_of

Learning = Literal["used", "all"]


@dataclass(frozen=True)
class DepthDropout:
    """Each entry of the first dimension of a batch is decoded from a random number of its codes, in training.

    Examples:
        >>> from ghrq.quantizer.depth import DepthDropout
        >>> half = DepthDropout(depths=[1, 2, 4], full=0.5, learning="all")
        >>> rq = ghrq.ResidualQuantizer(32, 64, num_stages=4, depth_dropout=half)

    Half of the entries then use all 4 stages, the others 1, 2 or 4 of them; with ``learning="all"`` the codes of all
    stages learn from all rows, so that deep stages do not see fewer.

    """

    depths: Sequence[int] | None = None
    """The depths to draw from, all equally likely; None is 1 to ``num_stages``."""
    full: float = 0.0
    """The share of entries that keep all stages instead, whatever is drawn."""
    learning: Learning = "used"
    """Which rows teach the codes of a stage: those whose decode ``"used"`` the stage, or ``"all"`` of them."""

    @classmethod
    def of(cls, given: Union["DepthDropout", bool, Sequence[int], dict[str, Any]]) -> "DepthDropout | None":
        """What the argument ``depth_dropout`` means: False, True, a list of depths, or all settings."""
        if isinstance(given, bool):
            return cls() if given else None
        if isinstance(given, dict):
            return cls(**given)
        if isinstance(given, cls):
            return given
        if isinstance(given, Sequence) and not isinstance(given, str):
            return cls(tuple(given))
        raise ValueError(
            f"depth_dropout must be True, False, a list of depths such as [1, 2, 4], or a DepthDropout, got {given!r}"
        )

    def check(self, num_stages: int) -> None:
        """Refuse depths that do not exist."""
        from_to("full of depth_dropout", self.full, 0.0, 1.0)
        one_of("learning of depth_dropout", self.learning, get_args(Learning))
        depths = range(1, num_stages + 1)
        if self.depths is not None and not (self.depths and all(type(d) is int and d in depths for d in self.depths)):
            raise ValueError(f"depth_dropout needs depths from 1 to num_stages={num_stages}, got {list(self.depths)}")

    def draw(self, count: int, num_stages: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
        """A depth for each of ``count`` entries: ``(count,)`` int64."""
        options = torch.tensor(list(self.depths or range(1, num_stages + 1)), device=device)
        # With a generator, even None, these functions cannot be compiled for several batch sizes.
        how: dict[str, Any] = {"device": device} | ({} if generator is None else {"generator": generator})
        drawn = options[torch.randint(len(options), (count,), **how)]
        if self.full == 0.0:
            return drawn
        kept = torch.rand(count, **how) < self.full
        return torch.where(kept, num_stages, drawn)

    def to_config(self) -> dict[str, Any]:
        """As JSON holds it."""
        config = asdict(self)
        return config | {"depths": None if self.depths is None else list(self.depths)}


class RowWeights(NamedTuple):
    """The weights of ``n`` rows in the losses, and how many stages each row uses."""

    weights: Tensor
    """``(n,)`` the weight of each row in a mean over rows; the sum is 1."""
    depths: Tensor | None
    """``(n,)`` the number of stages that the decode of each row uses, or None for all."""
    learning: Learning = "used"
    """Whether a stage learns only from the rows that use it."""

    @classmethod
    def of(
        cls,
        shape: torch.Size,
        mask: Tensor | None,
        like: Tensor,
        num_stages: int,
        dropout: DepthDropout | None,
        generator: torch.Generator | None,
    ) -> "RowWeights":
        """Equal weights for vectors of leading ``shape``, 0 where ``mask`` is false, and depths if there is dropout.

        ``like``: a tensor of the type and on the device of the weights.
        """
        count = math.prod(shape)  # numel() would fix the batch size of an exported graph
        if mask is None:
            # Division keeps the batch size symbolic in an exported graph.
            weights = like.new_ones(count) / count
        else:
            chosen = mask.reshape(-1).to(like)
            weights = chosen / chosen.sum().clamp(min=1.0)
        if dropout is None:
            return cls(weights, None)
        entries = shape[0] if shape else 1
        drawn = dropout.draw(entries, num_stages, like.device, generator)
        return cls(weights, drawn.repeat_interleave(count // max(entries, 1)), dropout.learning)

    def stage(self, index: int) -> Tensor:
        """``(n,)`` the weights at one stage."""
        if self.depths is None or self.learning == "all":
            return self.weights
        return self.weights * (self.depths > index)

    def stages(self, count: int) -> Tensor:
        """``(count, n)`` the weights at all stages."""
        if self.depths is None or self.learning == "all":
            return self.weights.expand(count, -1)
        return torch.stack([self.stage(i) for i in range(count)])
