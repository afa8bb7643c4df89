"""The weights of the best validation, kept during training and by every checkpoint."""

import copy
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


class KeepBest(nn.Module, Generic[Model]):
    """A model in training, and a copy of it as it was when its validation was best.

    It is the ``model`` of a stage: ``losses(batch)`` gives the losses, ``model`` is the part to keep. Call
    :meth:`validated` after each epoch, with a score every few epochs; :attr:`best` is the model to go on with.

    Args:
        losses: contains ``model``.
        model: what is copied.

    """

    score: Tensor
    epochs: Tensor

    def __init__(self, losses: nn.Module, model: Model) -> None:
        super().__init__()
        self.losses = losses
        self._model = [model]  # not a second time in the state
        self.best: Model = copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("score", torch.full((), -1.0))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """The losses of a batch."""
        return self.losses(batch)

    @torch.no_grad()
    def validated(self, score: float) -> None:
        """Copy the model if ``score``, 0 or above, is higher than ever before."""
        if score > float(self.score):
            self.score.fill_(score)
            self.best.load_state_dict(self._model[0].state_dict())
