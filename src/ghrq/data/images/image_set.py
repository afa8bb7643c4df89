"""Images and their labels."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

Split = Literal["train", "test"]
"""Which part of an image set."""


@dataclass(frozen=True, eq=False)
class Images:
    """``n`` images of one size with labels, in some data sets also with labels of coarser classes."""

    pixels: Tensor
    """uint8 ``(n, channels, height, width)``; 1 channel is grey, 3 are red, green and blue."""
    labels: Tensor
    """int64 ``(n,)``, from 0 on."""
    label_names: tuple[str, ...]
    coarse: Tensor | None = None
    """int64 ``(n,)``: the superclass of each image, where the data set has them."""
    coarse_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[2], self.pixels.shape[3]

    def take(self, rows: Tensor) -> "Images":
        """The images of ``rows``: int64 ``(m,)``, in that order, or bool ``(n,)``."""
        coarse = None if self.coarse is None else self.coarse[rows]
        return replace(self, pixels=self.pixels[rows], labels=self.labels[rows], coarse=coarse)

    def coarse_of_labels(self) -> Tensor:
        """int64 ``(labels,)``: the superclass of each class, from the images; -1 for a class without an image."""
        if self.coarse is None:
            raise ValueError("these images have no superclasses")
        table = torch.full((len(self.label_names),), -1)
        table[self.labels] = self.coarse
        mixed = self.labels[table[self.labels] != self.coarse]
        if len(mixed):
            raise ValueError(f"images of the class {self.label_names[mixed[0]]!r} are in more than one superclass")
        return table
