"""The order of the training data, and the decay of learning rates."""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Batch = TypeVar("Batch")

# Batches whose rows are sorted by length together.
_BUCKETS = 64


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


def bucketed(
    lengths: Tensor, batch: int, seed: int, take: Callable[[Tensor], Batch]
) -> Callable[[int], Iterator[Batch]]:
    """As :func:`shuffled`, with rows of about equal ``lengths (rows,)`` in a batch, so that little of it is padding.

    The rows are in random order before they are sorted by length in groups of some batches; the order of the batches
    is random again.
    """
    rows, per_epoch = len(lengths), -(-len(lengths) // batch)

    def batches(step: int) -> Iterator[Batch]:
        while True:
            epoch, within = divmod(step, per_epoch)
            random = np.random.default_rng((seed, epoch))
            groups = torch.from_numpy(random.permutation(rows)).split(batch * _BUCKETS)
            parts = [part for group in groups for part in group[lengths[group].argsort(stable=True)].split(batch)]
            for place in random.permutation(len(parts))[within:]:
                yield take(parts[place])
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
