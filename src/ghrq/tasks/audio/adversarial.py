"""A codec that learns from discriminators, which learn to tell what it decodes from real sound.

Both sides learn in one step from one pass of the codec: its quantizer is called once, so that its moving statistics
count every batch once. The gradients stay apart: the codec is judged by discriminators whose parameters are held fixed,
and they learn from decoded sound that is held fixed.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ghrq.nets.discriminators import Discriminators, adversarial_loss, discriminator_loss, feature_loss
from ghrq.tasks.audio.losses import CodecLosses
from ghrq.tasks.audio.recipe import Adversary


class AdversarialLosses(nn.Module):
    """Codec and discriminators in training: ``(B, T)`` samples to losses. The sum of both sides is minimised."""

    steps: Tensor
    """Of training so far, saved with the model: the discriminators begin after ``adversary.start``."""

    def __init__(self, codec: CodecLosses, adversary: Adversary) -> None:
        super().__init__()
        self.adversary, self.codec = adversary, codec
        self.discriminators = Discriminators(adversary.discriminators)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def discriminator_group(self) -> dict[str, Any]:
        """Their parameters, for the optimiser, with their own settings."""
        settings = {"lr": self.adversary.rate, "betas": self.adversary.betas}
        return {"params": list(self.discriminators.parameters()), **settings}

    def forward(self, wave: Tensor) -> dict[str, Tensor]:
        """The losses of the codec; once the discriminators have begun, also those of both sides."""
        heard, parts = self.codec.heard(wave)
        begun = int(self.steps) >= self.adversary.start
        if self.training:
            self.steps += 1
        if not begun:
            return parts
        fixed = {name: parameter.detach() for name, parameter in self.discriminators.named_parameters()}
        judged = torch.func.functional_call(self.discriminators, fixed, (heard,))
        real, fake = self.discriminators(wave), self.discriminators(heard.detach())
        adversarial, features = adversarial_loss(judged), feature_loss(real, judged)
        discriminator = discriminator_loss(real, fake)
        loss = parts["loss"] + self.adversary.weight * adversarial + self.adversary.feature_weight * features
        both = {"adversarial": adversarial, "features": features, "discriminator": discriminator}
        return parts | both | {"loss": loss + discriminator}
