"""One process or many: who is first, and Accelerate set up the same way everywhere."""

import os
from datetime import timedelta
from typing import Any

from ghrq.system.errors import require

# What torchrun and accelerate launch set, and then the MPI launchers that Accelerate knows.
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def rank() -> int:
    """Which of the processes this is, from 0. Known before torch is: the launcher says it in the environment."""
    return _first(_RANK, 0)


def world_size() -> int:
    """How many processes the launcher started."""
    return _first(_SIZE, 1)


def is_main() -> bool:
    """Whether this is the process that writes files and talks to the user."""
    return rank() == 0


def accelerator() -> Any:
    """An ``accelerate.Accelerator``; the first one joins the processes together.

    The others wait while the first evaluates, which may take longer than the usual timeouts. Autocast is left to the
    loop: Accelerate allows one precision a process, and a process may run several recipes.
    """
    import torch

    accelerate = require("accelerate", "train")
    patience = accelerate.InitProcessGroupKwargs(timeout=timedelta(days=1))
    # A model may have parameters that a loss does not reach; with one process that is no error, so nor is it with more.
    unused = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
    many = world_size() > 1
    # Without a GPU, Accelerate joins processes only if told that it is meant so.
    cpu = many and not torch.accelerator.is_available()
    return accelerate.Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[patience, unused] if many else [])


def from_main(value: Any) -> Any:
    """The first process's ``value``, on every process."""
    if world_size() == 1:
        return value
    accelerator()
    values = [value]
    require("accelerate.utils", "train").broadcast_object_list(values)
    return values[0]


def _first(names: tuple[str, ...], default: int) -> int:
    return int(next((os.environ[name] for name in names if name in os.environ), default))
