"""Training in one process or in several: rank, world size, and the set-up of Accelerate."""

import os
from datetime import timedelta
from typing import Any

from ghrq.system.errors import require

# Set by torchrun and accelerate launch, and by the MPI launchers that Accelerate supports.
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def rank() -> int:
    """The number of this process, from 0. It is read from the environment, so torch is not imported."""
    return _first(_RANK, 0)


def world_size() -> int:
    """How many processes the launcher started."""
    return _first(_SIZE, 1)


def is_main() -> bool:
    """Whether this is the first process, the only one that writes files and messages."""
    return rank() == 0


def accelerator() -> Any:
    """An ``accelerate.Accelerator``; the first call connects the processes.

    The timeout is long because the others wait while the first process evaluates. Autocast is left to the loop:
    Accelerate allows one precision a process, and a process may run several recipes.
    """
    import torch

    accelerate = require("accelerate", "train")
    timeout = accelerate.InitProcessGroupKwargs(timeout=timedelta(days=1))
    # Parameters without a gradient are no error with one process, so they are none with several.
    unused = accelerate.DistributedDataParallelKwargs(find_unused_parameters=True)
    many = world_size() > 1
    # Without a GPU, Accelerate connects processes only if cpu=True.
    cpu = many and not torch.accelerator.is_available()
    return accelerate.Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[timeout, unused] if many else [])


def from_main(value: Any) -> Any:
    """The ``value`` of the first process, on every process."""
    if world_size() == 1:
        return value
    accelerator()
    values = [value]
    require("accelerate.utils", "train").broadcast_object_list(values)
    return values[0]


def _first(names: tuple[str, ...], default: int) -> int:
    return int(next((os.environ[name] for name in names if name in os.environ), default))
