"""The layer that the Transformers here are made of, with what makes it fast on a CPU."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

P = ParamSpec("P")
T = TypeVar("T")

Activation = Literal["relu", "gelu"]


def without_autocast(method: Callable[P, T]) -> Callable[P, T]:
    """A method of a module made of these layers: their gradients in closed form want one type throughout."""

    @wraps(method)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        device = next(cast(nn.Module, args[0]).parameters()).device
        with torch.autocast(device.type, enabled=False):
            return method(*args, **kwargs)

    return plain


class Layer(nn.Module):
    """Attention and a feed-forward network on rows ``(..., width)``, each after a norm and added to its input.

    The caller does what comes between :meth:`project` and :meth:`finish`: who attends to whom.

    Args:
        width: of the rows.
        feedforward: the inner width of the feed-forward network.
        dropout: on the output of both branches; in steps of 1/256.
        layers: how many there are one after the other, of which this is one.
        activation: of the feed-forward network.

    """

    def __init__(
        self, width: int, feedforward: int, dropout: float, layers: int, activation: Activation = "relu"
    ) -> None:
        super().__init__()
        self.norm, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, feedforward, bias=False), nn.Linear(feedforward, width, bias=False)
        self.byte = round(256 * dropout)
        self.activation: Activation = activation
        for linear in (self.query, self.key_value, self.up):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
        # 2·layers branches are added up; small starts keep the sum near its input.
        for linear in (self.out, self.down):
            nn.init.normal_(linear.weight, std=(2 * layers * linear.in_features) ** -0.5)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries ``(..., width)``, and keys and values ``(..., 2·width)``, of rows ``x (..., width)``."""
        x = self.norm(x)
        return self.query(x), self.key_value(x)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output ``(..., width)`` from its input and what attention fetched."""
        x = self._add(x, self.out(attended))
        inner = self.up(self.norm_forward(x))
        return self._add(x, self.down(inner.relu_() if self.activation == "relu" else F.gelu(inner)))

    def _add(self, x: Tensor, branch: Tensor) -> Tensor:
        if not self.training or not self.byte:
            return x + branch
        return _AddDropped.apply(x, branch, self.byte)


def layers_of(modules: nn.ModuleList) -> list[Layer]:
    """``modules`` as what they are."""
    return [cast(Layer, module) for module in modules]


class _AddDropped(torch.autograd.Function):
    """``x + dropout(branch)``, with one random byte for each number: torch's own takes as long as the whole layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, byte: int) -> Tensor:
        """Drop a number where its random byte is below ``byte``."""
        draws = torch.empty((branch.numel() + 7) // 8, dtype=torch.int64, device=branch.device)
        random = draws.random_(-(2**63), None).view(torch.uint8)[: branch.numel()].view(branch.shape)
        # Comparing into floats is one fast pass; a boolean would be turned into them by a slow one.
        ctx.keep = torch.ge(random, byte, out=torch.empty_like(branch))
        ctx.scale = 256.0 / (256 - byte)
        return torch.addcmul(x, branch, ctx.keep, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """The same numbers are dropped."""
        return grad, torch.addcmul(grad.new_zeros(()), grad, ctx.keep, value=ctx.scale), None
