"""The pictures of a run: to learn from, to watch the training, to judge the end."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ghrq.data import images
from ghrq.data.images import Images
from ghrq.system.errors import UserError
from ghrq.tasks.image.recipe import Data

# Which pictures watch the training is the same for every seed of a run.
_SPLIT_SEED = 42


class Pictures(NamedTuple):
    """No picture is in two of them."""

    train: Images
    validation: Images
    test: Images


@lru_cache(maxsize=1)
def load(data: Data) -> Pictures:
    """The pictures that a recipe names; the cells of one table share them."""
    train = images.load(data.name, split="train", source=data.source, download=True, size=data.size)
    test = images.load(data.name, split="test", source=data.source, download=True, size=data.size)
    if len(train) < 2:
        raise UserError(
            f"{data.source or data.name} has {len(train)} pictures to train on, of which one watches the training: "
            "name a folder with at least three in all as data.source"
        )
    order = torch.from_numpy(np.random.default_rng(_SPLIT_SEED).permutation(len(train)))
    watching = max(1, round(data.validation * len(train)))
    if watching == len(train):
        raise UserError(
            f"data.validation={data.validation} leaves none of {len(train)} pictures to train on: take a smaller share"
        )
    return Pictures(train.take(order[watching:].sort().values), train.take(order[:watching].sort().values), test)
