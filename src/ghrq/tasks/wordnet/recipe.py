"""The sections of a WordNet recipe."""

from typing import Annotated, Literal

from pydantic import Field

from ghrq.quantizer import QuantizerConfig
from ghrq.quantizer.kinds import Kind
from ghrq.system.settings import Count, Positive, Rate, Section, Share, Weight
from ghrq.training.recipe import Recipe, Transformer


class WordNetData(Section):
    """The hierarchy, and its split into training and test pairs."""

    source: str = ""
    """A Princeton ``dict`` folder, or a file of :func:`ghrq.data.wordnet.save`; empty for the shipped nouns."""
    instances: bool = True
    """Whether instance hypernyms count: 743,241 pairs with them, 663,508 without."""
    split: Literal["closure", "direct"] = "closure"
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    split_seed: Count = 42
    """Of the split, which does not depend on the seed of the run."""


class EncoderSection(Section):
    """The continuous embedding."""

    dim: Positive = 16
    initial_scale: Weight = 1.0
    hidden: Count = 0
    """0: a table. Otherwise the width of the fully-connected network behind it."""


class NounQuantizer(QuantizerConfig):
    """The codes. ``random`` gives every synset a distinct random tuple: the lower bound of all codes."""

    kind: Kind | Literal["random"] = "ghrq"  # type: ignore[assignment]
    commitment_weight: Weight = 1.0
    weight: Weight = 1.0
    warm_epochs: Count = 0
    """Epochs of the contrastive loss alone, before the quantizer is started and trained."""
    collisions: Literal["none", "reassign"] = "none"
    """``reassign`` gives synsets that share a tuple the next best free ones, before the seq2seq is trained."""

    def of_model(self) -> QuantizerConfig:
        """The part of it that makes a quantizer."""
        return QuantizerConfig(**self.model_dump(include=set(QuantizerConfig.model_fields)))


class Contrast(Section):
    """InfoNCE over ancestors."""

    on: Literal["encoder", "codes"] = "encoder"
    """Whether a pair's points are the encoder's or the quantizer's; those of negatives are always the encoder's."""
    negatives: Positive = 50
    ancestor_share: Share = 0.0
    """The share of negatives that are ancestors in other pairs of the batch: frequent nodes, hard to tell apart."""
    outside: Literal["closure", "train"] = "closure"
    """What is never a negative: all true ancestors, as in the paper (which uses knowledge of the test pairs), or only
    those that follow from the training pairs."""
    temperature: Rate = 1.0
    itself: bool = True
    """Whether the point itself, at distance 0, is one of the negatives, as in the paper."""


class Optimizer(Section):
    """Of encoder and codebooks; the same for every kind of quantizer."""

    name: Literal["sgd", "adam"] = "sgd"
    """Both are Riemannian."""
    rate: Rate = 1.0
    codebook_rate: Rate = 1.0
    epochs: Count = 50
    batch: Positive = 2048
    decay: Literal["none", "linear"] = "none"
    """``linear`` decays the learning rates to 0."""


class Seq2Seq(Transformer):
    """The model that predicts the tuples of ancestors."""

    layers: Positive = 4
    feedforward: Positive = 1024
    rate: Rate = 1e-3
    epochs: Count = 10
    batch: Positive = 64
    """Synsets in a batch, each with all its training ancestors: about 8 pairs each."""


class WordNetEvaluation(Section):
    """How the codes are evaluated."""

    k: Positive = 10
    sources: Count = 0
    """How many of the synsets with test ancestors are used; 0 for all."""
    map_sources: Count = 2000
    """How many synsets the mean average precision of the embedding is measured on."""
    glove: str = ""
    """File of GloVe vectors, for the similarity of synsets that share a tuple."""


class WordNetRecipe(Recipe):
    """Everything that decides a run on WordNet."""

    data: WordNetData = WordNetData()
    encoder: EncoderSection = EncoderSection()
    quantizer: NounQuantizer = NounQuantizer()
    contrast: Contrast = Contrast()
    optimizer: Optimizer = Optimizer()
    seq2seq: Seq2Seq = Seq2Seq()
    evaluation: WordNetEvaluation = WordNetEvaluation()
