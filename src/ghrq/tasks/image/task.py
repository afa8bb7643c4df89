"""Images: a tokenizer, a prior over its codes, and their evaluation."""

import math
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ghrq.data import inception
from ghrq.data.images import ImageSplits, load_splits
from ghrq.metrics.image_codes import mean_squared_error, validation_scores
from ghrq.models.image_prior import ImagePrior, ImagePriorConfig
from ghrq.models.image_tokenizer import ImageTokenizer, ImageTokenizerConfig, as_floats
from ghrq.nets.convolutional import grid_of
from ghrq.optim import RiemannianAdam
from ghrq.quantizer import kmeans_start
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system.checks import largest_size
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress, make_progress
from ghrq.tasks.image import evaluation
from ghrq.tasks.image.recipe import ImageData, ImageRecipe
from ghrq.tasks.image.report import TABLES, page
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay
from ghrq.training.study import Axis, Part, Study
from ghrq.training.task import Task

KINDS = Axis(
    "kind",
    {
        **{kind: {"quantizer.kind": kind} for kind in ("ghrq", "naive", "euclidean")},
        "calibrated": {"quantizer.kind": "calibrated", "quantizer.weight": 0.01},
    },
    grid={kind: {"quantizer.kind": kind} for kind in ("hra-only", "dhste-only")},
)

# Images for the k-means start.
_START_IMAGES = 2048

# With fewer steps the tokenizer learns hardly anything; the shipped demos have about 200.
_FEW_STEPS = 100


class Image(Task):
    """Two stages: the tokenizer, and the prior on its codes."""

    Recipe = ImageRecipe
    recipe: ImageRecipe
    title = "Images as codes"
    tables = TABLES
    study = Study(
        [Part("image/{dataset}-{budget}", [KINDS])],
        datasets=("mnist", "cifar100", "digits"),
    )

    tokenizer: ImageTokenizer
    tokenizer_steps: int
    prior: ImagePrior | None = None
    """None if the recipe trains no prior."""

    def __init__(self, recipe: ImageRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.images = _load(recipe.data)
        pixels = (images.pixels.numpy().data for images in self.images)
        where = recipe.data.source or recipe.data.name
        self.check_same_data(pixels, f"the images in {where}", "pictures.sha256")  # named as in runs of 0.1.0

    @classmethod
    def check(cls, recipe: ImageRecipe) -> None:
        """The images are there and enough for the codes, and the weights of Inception are there."""
        train, quantizer = _load(recipe.data).train, recipe.quantizer
        pixels, positions = train.pixels[:_START_IMAGES], math.prod(grid_of(*train.size))
        count = len(pixels) * positions
        if quantizer.start == "kmeans" and count < largest_size(quantizer.codebook_size):
            raise UserError(
                f"{len(pixels)} images give {count} vectors, too few for {quantizer.codebook_size} codes: take more "
                "or larger images (data.size), a smaller quantizer.codebook_size, or quantizer.start=random"
            )
        if recipe.tokenizer.epochs and positions * (len(train) % recipe.tokenizer.batch or recipe.tokenizer.batch) == 1:
            raise UserError(
                f"{len(train)} images in batches of {recipe.tokenizer.batch} leave a single one, of one vector, for "
                "the last batch, too little for a batch norm: another tokenizer.batch, or larger images (data.size)"
            )
        if recipe.prior.conditional and len(train.label_names) < 2:
            raise UserError(
                f"prior.conditional=true, but {recipe.data.source or recipe.data.name} has no classes: put the "
                "images of each class into a subfolder, or leave the setting out"
            )
        if recipe.evaluation.inception:
            inception.weights(recipe.evaluation.inception)
            inception.complete_weights()

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        recipe, train = self.recipe, self.images.train
        model: dict[str, Any] = {"quantizer": recipe.quantizer, "dim": recipe.tokenizer.dim}
        channels, pixel_range = train.pixels.shape[1], recipe.tokenizer.pixel_range
        self.tokenizer = ImageTokenizer(ImageTokenizerConfig(channels=channels, pixel_range=pixel_range, **model))
        stage = self._tokenizer_stage()
        self.tokenizer_steps = stage.steps
        yield stage
        if recipe.prior.epochs:
            sizes = recipe.prior.model_dump(include={"width", "spatial_layers", "depth_layers", "heads", "dropout"})
            classes = len(train.label_names) if recipe.prior.conditional else 0
            config = ImagePriorConfig(grid=grid_of(*train.size), classes=classes, **model, **sizes)
            self.prior = ImagePrior(config, self.tokenizer.quantizer)
            yield self._prior_stage(self.prior)

    @cached_property
    def _test_codes(self) -> Tensor:
        return self.tokenizer.encode(self.images.test.pixels, make_progress())

    def models(self) -> dict[str, nn.Module]:
        """``tokenizer``, with its error on the test images, and, if it was trained, ``prior``."""
        error = mean_squared_error(self.tokenizer, self.images.test.pixels, self._test_codes)
        self.tokenizer.config = self.tokenizer.config.model_copy(update={"test_error": error})
        return {"tokenizer": self.tokenizer, **({} if self.prior is None else {"prior": self.prior})}

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show; errors are of the test images."""
        settings, test = self.recipe.tokenizer, self.images.test
        if self.tokenizer_steps < _FEW_STEPS:
            progress.note(
                f"the tokenizer was trained for {self.tokenizer_steps} steps only (tokenizer.epochs={settings.epochs}, "
                f"{len(self.images.train):,} images in batches of {settings.batch}): with more epochs or smaller "
                "batches it learns more"
            )
        codes = self._test_codes
        results = evaluation.evaluate_tokenizer(self.tokenizer, test, codes, self.run, progress)
        if self.prior is not None:
            results |= evaluation.evaluate_prior(
                self.prior, self.tokenizer, self.images, codes, self.recipe, self.run, progress
            )
        return results

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Tables 4 to 8 of the paper, and figures."""
        return page(cls.title, study)

    def _tokenizer_stage(self) -> Stage:
        model, settings, pixels = self.tokenizer, self.recipe.tokenizer, self.images.train.pixels
        networks = [*model.encoder.parameters(), *model.decoder.parameters()]
        optimizer = RiemannianAdam(
            [
                {"params": networks, "lr": settings.rate},
                {"params": list(model.quantizer.parameters()), "lr": settings.codebook_rate},
            ],
            lr=settings.rate,
        )
        model.quantizer.attach(optimizer)
        return Stage.of(
            "tokenizer",
            model,
            optimizer,
            rows=len(pixels),
            batch=settings.batch,
            epochs=settings.epochs,
            seed=self.recipe.seed,
            take=lambda rows: pixels[rows],
            decay=cosine_decay if settings.decay == "cosine" else None,
            begin=self._kmeans_start if self.recipe.quantizer.start == "kmeans" else None,
            validate=lambda: validation_scores(model, self.images.validation),
        )

    @torch.no_grad()
    def _kmeans_start(self, progress: Progress) -> None:
        model, pixels = self.tokenizer, self.images.train.pixels
        rows = np.random.default_rng(self.recipe.seed).permutation(len(pixels))[:_START_IMAGES]
        few = pixels[torch.from_numpy(rows)].to(model.quantizer.codebooks.device)
        kmeans_start(model.quantizer, model.vectors(as_floats(few)), progress)

    def _prior_stage(self, prior: ImagePrior) -> Stage:
        settings, train = self.recipe.prior, self.images.train
        model = PriorLosses(prior)
        encoded: list[Tensor] = []

        def codes(progress: Progress | None = None) -> Tensor:
            """Of the training images, in the smallest type that holds them; encoded once, when first needed."""
            if not encoded:
                small = torch.uint8 if max(self.tokenizer.quantizer.sizes) <= 256 else torch.int32
                encoded.append(self.tokenizer.encode(train.pixels, progress).to(small))
            return encoded[0]

        def begin(progress: Progress) -> None:
            if (codes(progress) == codes()[:1, :1, :1]).all():
                raise UserError(
                    "every part of every training image has the same codes, so there is nothing for a prior to "
                    "learn: train the tokenizer longer, or on more images"
                )
            few = codes()[:: max(1, len(train) // _START_IMAGES)]
            prior.standardize(few.to(prior.quantizer.codebooks.device))

        return Stage.of(
            "prior",
            model,
            torch.optim.AdamW(model.parameters(), lr=settings.rate, fused=True),
            rows=len(train),
            batch=settings.batch,
            epochs=settings.epochs,
            seed=self.recipe.seed + 1,
            take=lambda rows: {"codes": codes()[rows], "labels": train.labels[rows]},
            decay=partial(cosine_decay, warmup=settings.warmup),
            begin=begin,
            clip=1.0,
        )


class PriorLosses(nn.Module):
    """The prior as it is trained: its transformer only, not its quantizer."""

    def __init__(self, prior: ImagePrior) -> None:
        super().__init__()
        self.prior = prior.transformer  # the name that checkpoints of 0.1.0 have
        self._losses = prior.losses

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The loss of ``codes (B, h, w, num_stages)`` with ``labels (B,)``, and that of each depth."""
        losses = self._losses(batch["codes"], batch["labels"])
        return {"loss": losses.mean(), **{f"depth_{i}": loss for i, loss in enumerate(losses.unbind(), start=1)}}


def _load(data: ImageData) -> ImageSplits:
    return load_splits(data.name, data.source, data.size, data.validation)
