"""The order of the training data, and the decay of learning rates."""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Batch = TypeVar("Batch")


def shuffled(rows: int, batch: int, seed: int, take: Callable[[Tensor], Batch]) -> Callable[[int], Iterator[Batch]]:
    """``Stage.batches`` of all rows in random order: ``take`` of ``batch`` row numbers at a time.

    The order of an epoch depends on the seed and the epoch only.
    """
    per_epoch = -(-rows // batch)

    def batches(step: int) -> Iterator[Batch]:
        while True:
            epoch, within = divmod(step, per_epoch)
            order = torch.from_numpy(np.random.default_rng((seed, epoch)).permutation(rows))
            for part in order.split(batch)[within:]:
                yield take(part)
                step += 1

    return batches


def linear_decay(steps: int) -> Callable[[int], float]:
    """Factor of the learning rate: linear from 1 to 0 in ``steps``."""
    return lambda step: max(0.0, 1.0 - step / max(1, steps))


def cosine_decay(steps: int, warmup: int = 0) -> Callable[[int], float]:
    """Factor of the learning rate: linear warm-up to 1 in ``warmup`` steps, then cosine decay to 0."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))

    return factor
