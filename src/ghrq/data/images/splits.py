"""Training, validation and test images of a data set."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ghrq.data.images import sets
from ghrq.data.images.image_set import Images
from ghrq.system.errors import UserError

# The validation images are the same for every seed of a run.
_SPLIT_SEED = 42


class ImageSplits(NamedTuple):
    """Three disjoint sets of images."""

    train: Images
    validation: Images
    """A random share of the data set's training images."""
    test: Images


@lru_cache(maxsize=1)
def load_splits(name: str, source: str = "", size: int = 32, validation: float = 0.05) -> ImageSplits:
    """Load a data set, see :func:`ghrq.data.images.load`; ``validation`` is a share of its training images.

    The last one loaded is kept in memory: the runs of one table share it.
    """
    train = sets.load(name, split="train", source=source, download=True, size=size)
    test = sets.load(name, split="test", source=source, download=True, size=size)
    if len(train) < 2:
        raise UserError(
            f"{source or name} has {len(train)} images for training and validation, which need two: "
            "name a folder with at least three images as data.source"
        )
    order = torch.from_numpy(np.random.default_rng(_SPLIT_SEED).permutation(len(train)))
    held_out = max(1, round(validation * len(train)))
    if held_out == len(train):
        raise UserError(
            f"data.validation={validation} leaves none of {len(train)} images for training: take a smaller share"
        )
    return ImageSplits(train.take(order[held_out:].sort().values), train.take(order[:held_out].sort().values), test)
