"""What a WordNet recipe may say."""

from typing import Annotated, Literal

from pydantic import Field

from ghrq.quantizer import QuantizerConfig
from ghrq.quantizer.residual import Kind
from ghrq.system.settings import Positive, Rate, Section
from ghrq.training.recipe import Recipe, Transformer


class Data(Section):
    """Which hierarchy, and what is held out."""

    source: str = ""
    """A Princeton ``dict`` folder, or a file of :func:`ghrq.data.wordnet.save`; empty for the shipped nouns."""
    instances: bool = True
    """Whether instance hypernyms count: 743,241 pairs with them, 663,508 without."""
    split: Literal["closure", "direct"] = "closure"
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    split_seed: Annotated[int, Field(ge=0)] = 42
    """The split stays the same when the seed of the run changes."""


class Encoder(Section):
    """The continuous embedding."""

    dim: Positive = 16
    initial_scale: Annotated[float, Field(ge=0)] = 1.0
    hidden: Annotated[int, Field(ge=0)] = 0
    """0: a table. Otherwise the width of the fully-connected network behind it."""


class Quantizer(QuantizerConfig):
    """The codes. ``random`` gives every synset a random tuple of its own: what the codes must beat."""

    kind: Kind | Literal["random"] = "ghrq"  # type: ignore[assignment]
    commitment_weight: Annotated[float, Field(ge=0)] = 1.0
    weight: Annotated[float, Field(ge=0)] = 1.0
    warm_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs of contrast alone, before the quantizer joins and k-means starts it."""
    collisions: Literal["none", "reassign"] = "none"
    """``reassign`` moves synsets that share a tuple to the next best free ones before the seq2seq sees them."""


class Contrast(Section):
    """InfoNCE over ancestors."""

    on: Literal["encoder", "codes"] = "encoder"
    """Whether the pair's points are the encoder's or the quantizer's; the negatives' are always the encoder's."""
    negatives: Positive = 50
    ancestor_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How many of the negatives are ancestors in other pairs of the batch: frequent ones, so hard to tell apart."""
    outside: Literal["closure", "train"] = "closure"
    """What is never a negative: all true ancestors, as in the paper's runs (that is to know the held-out ones), or
    only those that follow from the training pairs."""
    temperature: Rate = 1.0
    itself: bool = True
    """Whether the point itself, at distance 0, is among the wrong answers, as in the paper's runs."""


class Optimizer(Section):
    """Of encoder and codebooks; the same for every kind of quantizer."""

    name: Literal["sgd", "adam"] = "sgd"
    """Riemannian, both of them."""
    rate: Rate = 1.0
    codebook_rate: Rate = 1.0
    epochs: Annotated[int, Field(ge=0)] = 50
    batch: Positive = 2048
    decay: Literal["none", "linear"] = "none"
    """``linear`` brings the rates down to 0 at the end."""


class Seq2Seq(Transformer):
    """The model that predicts the tuples of ancestors."""

    layers: Positive = 4
    feedforward: Positive = 1024
    rate: Rate = 1e-3
    epochs: Annotated[int, Field(ge=0)] = 10
    batch: Positive = 64
    """Synsets in a batch, each with all its training ancestors: about 8 pairs each."""


class Evaluation(Section):
    """How the codes are judged."""

    k: Positive = 10
    sources: Annotated[int, Field(ge=0)] = 0
    """How many of the synsets with held-out ancestors are asked; 0 for all."""
    map_sources: Annotated[int, Field(ge=0)] = 2000
    """How many synsets the mean average precision of the embedding is measured on."""
    glove: str = ""
    """File of GloVe vectors, for the similarity of synsets that share a tuple."""


class WordNetRecipe(Recipe):
    """Everything that decides a run on WordNet."""

    data: Data = Data()
    encoder: Encoder = Encoder()
    quantizer: Quantizer = Quantizer()
    contrast: Contrast = Contrast()
    optimizer: Optimizer = Optimizer()
    seq2seq: Seq2Seq = Seq2Seq()
    evaluation: Evaluation = Evaluation()
