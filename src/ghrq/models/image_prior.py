"""A prior over the codes of images: it gives their probabilities, and samples new ones."""

import math
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from ghrq.nets.rq_transformer import RQTransformer
from ghrq.quantizer import QuantizerConfig, ResidualQuantizer
from ghrq.system.pretrained import Format, Pretrained
from ghrq.system.settings import Count, Positive, Section


class ImagePriorConfig(Section):
    """What makes an :class:`ImagePrior`."""

    grid: tuple[Positive, Positive]
    """Rows and columns of codes: height and width of the images over 4."""
    dim: Positive
    """Of the quantizer's vectors."""
    quantizer: QuantizerConfig
    classes: Count = 0
    """Classes of images; 0 if the prior does not know classes."""
    width: Positive = 256
    spatial_layers: Positive = 4
    depth_layers: Positive = 4
    heads: Positive = 8
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1


class ImagePrior(nn.Module, Pretrained):
    """An RQ-Transformer over grids of code tuples, with a copy of the quantizer that made the codes.

    The transformer takes codes as the vectors that the quantizer makes of them, so the model needs both. The quantizer
    is not trained here.

    Examples:
        >>> Config = ghrq.models.ImagePrior.Config
        >>> prior = ghrq.models.ImagePrior(Config(grid=(2, 2), dim=8, quantizer={}, width=32, heads=2)).eval()
        >>> prior.sample(3).shape  # codes, for ImageTokenizer.decode
        torch.Size([3, 2, 2, 4])

    Args:
        config: sizes.
        quantizer: the trained one of the tokenizer; by default an untrained one.

    """

    Config = ImagePriorConfig
    config: ImagePriorConfig
    _format = Format("ghrq-image-prior", "image prior")

    def __init__(self, config: ImagePriorConfig, quantizer: ResidualQuantizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.quantizer = config.quantizer.build(config.dim) if quantizer is None else quantizer
        self.transformer = RQTransformer(
            config.dim,
            self.quantizer.codebook_size,
            self.quantizer.num_stages,
            math.prod(config.grid),
            **config.model_dump(exclude={"grid", "dim", "quantizer"}),
        )

    def losses(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of each depth ``(num_stages,)`` in nats.

        Args:
            codes: ``(B, h, w, num_stages)`` integers.
            labels: ``(B,)`` int64, the classes; not used if the prior does not know classes.

        """
        flat = codes.flatten(1, 2).long()
        return self.transformer(self.quantizer.prefixes(flat), flat, labels if self.config.classes else None)

    @torch.no_grad()
    def standardize(self, codes: Tensor) -> None:
        """Set mean and scale of the transformer's inputs from ``codes (n, h, w, num_stages)``, before training."""
        self.transformer.standardize(self.quantizer.prefixes(codes.long()))

    def sample(self, count: int, labels: Tensor | None = None, **options: Any) -> Tensor:
        """Codes ``(count, h, w, num_stages)`` int64 of new images, for the ``decode`` of the tokenizer.

        Args:
            count: number of images.
            labels: ``(count,)`` int64, their classes; by default all classes in turn, if the prior knows classes.
            **options: ``temperature``, ``top_k``, ``top_p``, ``generator``, ``batch`` and ``progress`` of
                :meth:`ghrq.nets.rq_transformer.RQTransformer.sample`.

        """
        if labels is None and self.config.classes:
            labels = torch.arange(count, device=self.transformer.places.device) % self.config.classes
        codes = self.transformer.sample(count, self.quantizer, labels=labels, **options)
        return codes.unflatten(1, self.config.grid)
