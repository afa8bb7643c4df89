"""Collective operations on tensors for data-parallel training. With one process, each of them does nothing."""

import torch.distributed as dist
from torch import Tensor


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def sum_(tensor: Tensor) -> Tensor:
    """Sum a tensor over all processes, in place."""
    if _joined():
        dist.all_reduce(tensor)
    return tensor


def mean_(tensor: Tensor) -> Tensor:
    """Average a tensor over all processes, in place."""
    return sum_(tensor).div_(dist.get_world_size()) if _joined() else tensor


def broadcast_(tensor: Tensor) -> Tensor:
    """Overwrite a tensor with that of the first process, in place."""
    if _joined():
        dist.broadcast(tensor, src=0)
    return tensor
