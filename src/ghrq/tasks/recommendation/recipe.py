"""The sections of a recommendation recipe."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ghrq.data.tables import OnBad
from ghrq.models.recommender_network import Generator, Input, Output
from ghrq.quantizer.kinds import Kind
from ghrq.system.settings import Count, Positive, Precision, Rate, Section, Share, StagedSection, StageSizes, Weight
from ghrq.tokenizer.model import EngineName
from ghrq.training.recipe import Recipe, Transformer


def _absolute(source: str) -> str:
    """An absolute path, so that a run can be resumed from any folder."""
    return str(Path(source).expanduser().absolute()) if source else ""


PathText = Annotated[str, AfterValidator(_absolute)]


class RecommendationData(Section):
    """Who bought what. Amazon Beauty, or any table of orders."""

    source: PathText = ""
    """The folder of Amazon Beauty in its compact form, ``reviews_*.json.gz`` of Amazon Reviews with the metadata beside
    it, or a table of orders (Parquet, CSV, JSON lines); empty for ``amazon-beauty`` in ``GHRQ_DATA``."""
    items: PathText = ""
    """Of a table of orders: the table of the items."""
    user: str = "user_id"
    item: str = "item_id"
    time: str = "timestamp"
    """Columns of a table of orders."""
    title: str = ""
    """Column of the table of items with what to show."""
    vectors: str = ""
    """Column of the table of items with the text embeddings; ``emb_*`` for several."""
    embeddings: PathText = ""
    """The file of the embeddings if they are in no column of the items: a table, or a ``.npy`` with a row for each."""
    text: tuple[str, ...] = ()
    """Columns of the table of items that describe an item; by default the title."""
    encoder: str = ""
    """Where there are no embeddings: the sentence-transformers model that makes them of the texts."""
    core: Count = 0
    """Of a table of orders: leave out users and items with fewer events, again and again until all have so many."""
    on_bad: OnBad = "stop"
    """Of a table of orders: ``skip`` leaves out rows of orders and items that cannot be used, and counts them."""

    def of_a_table(self) -> list[str]:
        """The settings, other than their defaults, that only a table of orders has."""
        keys = ("items", "vectors", "embeddings", "title", "text", "user", "item", "time", "core", "on_bad")
        return [key for key in keys if getattr(self, key) != type(self).model_fields[key].default]

    @property
    def own(self) -> bool:
        """Whether it is a table of orders, as far as its name tells, and not Amazon's reviews."""
        source = Path(self.source)
        return bool(self.items) or (bool(source.suffix) and not source.name.startswith("reviews_"))


class Ids(Section):
    """Where the IDs of the items come from."""

    source: Literal["tokenizer", "random", "published", "none"] = "tokenizer"
    """``tokenizer``: the quantizer on the text embeddings. ``random``: distinct random tuples. ``published``: those of
    ``file``. ``none``: the recommender has no codes."""
    file: PathText = ""
    """CSV of ``item,code1,code2,…``, items numbered from 1; empty for LETTER's codes of Amazon Beauty."""
    tie_break: Positive = 32
    """Codes of the tie-break token, at least: the most items that may share a tuple, later ones included."""


class ItemQuantizer(StagedSection):
    """The tokenizer of the text embeddings, see :class:`ghrq.Tokenizer`."""

    kind: Kind = "ghrq"
    codebook_size: StageSizes = 256
    engine: EngineName = "kmeans"
    radius: Annotated[float, Field(gt=0, lt=1)] = 0.5
    iterations: Positive = 10
    balance: bool = False
    hidden: tuple[Positive, ...] = (512, 256, 128)
    """Of the autoencoder and the RQ-VAE, as are the next ones."""
    latent_dim: Positive = 256
    epochs: Positive = 20
    batch_size: Positive = 1024
    learning_rate: Rate = 1e-3
    codebook_rate: Rate | None = None
    """None is that of the network."""
    quantizer_weight: Weight = 0.1
    commitment_weight: Weight = 0.25
    reconstruction_weight: Weight = 1.0
    standardize: bool = True
    precision: Precision = "fp32"


class RecommenderSection(Transformer):
    """The recommender, see :class:`ghrq.models.recommender.RecommenderConfig`, and its training."""

    width: Positive = 128
    heads: Positive = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3
    layers: Positive = 2
    feedforward: Positive = 256
    hidden: Positive = 256
    history: Positive = 50
    components: Positive = 256
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)] = ("codes", "text", "item")
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)] = ("codes", "items")
    generator: Generator = "states"
    item_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the items whose own embedding is left out in a step, so that the item head can do without. Known items
    are found less often then."""
    memory: bool = True
    """Whether a model that predicts items remembers which items came after which in training."""
    negatives: Positive = 512
    """Items drawn for each batch that all targets are compared with."""
    rate: Rate = 1e-3
    decay: Share = 0.01
    """Weight decay of AdamW."""
    epochs: Positive = 35
    batch: Positive = 256


class RecommendationEvaluation(Section):
    """How the recommender is validated and tested."""

    beam: Positive = 50
    validate_every: Positive = 5
    """Epochs between validations, which choose the weights to keep; the last epoch is validated too."""
    validation_users: Positive = 5000
    """How many users are validated with, at most."""
    test_users: Count = 0
    """How many users are tested with; 0 for all."""


class RecommendationRecipe(Recipe):
    """Everything that decides a run on recommendation."""

    data: RecommendationData = RecommendationData()
    ids: Ids = Ids()
    quantizer: ItemQuantizer = ItemQuantizer()
    recommender: RecommenderSection = RecommenderSection()
    evaluation: RecommendationEvaluation = RecommendationEvaluation()
