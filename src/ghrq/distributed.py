"""What the processes of one training run agree on. Each function does nothing when there is only one."""

import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_(tensor: Tensor) -> Tensor:
    """Add a tensor up over all processes, in place."""
    if world_size() > 1:
        dist.all_reduce(tensor)
    return tensor


def from_first_(tensor: Tensor) -> Tensor:
    """Overwrite a tensor with the first process's, in place."""
    if world_size() > 1:
        dist.broadcast(tensor, src=0)
    return tensor
