"""Fully-connected networks."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from ghrq.system.checks import at_least


class MLP(nn.Sequential):
    """Linear layers of the given ``sizes``, ReLU between them: ``(..., sizes[0])`` -> ``(..., sizes[-1])``.

    Weights are initialized to keep the variance of signals from layer to layer, biases to 0: with torch's default
    initialization biases dominate after a few layers, and the outputs for all vectors are nearly equal.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        for size in sizes:
            at_least("a size", size, 1, whole=True)
        if len(sizes) < 2:
            raise ValueError(f"expected at least the sizes of input and output, got {list(sizes)}")
        layers: list[nn.Module] = []
        for given, made in pairwise(sizes):
            layers += [nn.Linear(given, made), nn.ReLU()]
        super().__init__(*layers[:-1])
        *inner, last = (layer for layer in layers if isinstance(layer, nn.Linear))
        for layer in inner:
            nn.init.normal_(layer.weight, std=(2.0 / layer.in_features) ** 0.5)  # ReLU halves the variance
            nn.init.zeros_(layer.bias)
        nn.init.normal_(last.weight, std=last.in_features**-0.5)
        nn.init.zeros_(last.bias)
