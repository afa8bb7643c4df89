"""Pictures end to end: a tokenizer, a prior over its codes, and what both of them are worth."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ghrq.data import inception
from ghrq.nets.convolutional import grid_of
from ghrq.nets.rq_transformer import RQTransformer
from ghrq.optim import RiemannianAdam
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system import files, processes
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tasks.image import evaluation
from ghrq.tasks.image.models import GridPrior, ImageTokenizer, as_floats, make_tokenizer
from ghrq.tasks.image.pictures import load
from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.tasks.image.report import TABLES, page
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay, shuffled
from ghrq.training.study import Part, Study, key_axis
from ghrq.training.task import Task

MAIN, ABLATIONS = ("ghrq", "naive", "euclidean"), ("hra-only", "dhste-only")

# Pictures that k-means starts from.
_START_PICTURES = 2048

# Steps of the tokenizer below which hardly anything is learnt; the shipped demos have about 200.
_FEW_STEPS = 100


class Image(Task):
    """Two stages: the tokenizer, and the prior on its codes."""

    Recipe = ImageRecipe
    recipe: ImageRecipe
    title = "Images as codes"
    tables = TABLES
    study = Study(
        [Part("image/{dataset}-{budget}", [key_axis("kind", "quantizer.kind", MAIN, grid=ABLATIONS)])],
        datasets=("mnist", "cifar100", "digits"),
    )

    def __init__(self, recipe: ImageRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.pictures = load(recipe.data)
        self._check_pictures()
        self.tokenizer: ImageTokenizer | None = None
        self.prior: GridPrior | None = None
        self._codes: Tensor | None = None

    @classmethod
    def check(cls, recipe: ImageRecipe) -> None:
        """Its pictures are there and enough for the codes, and the weights of Inception are there."""
        train, quantizer = load(recipe.data).train, recipe.quantizer
        pixels, positions = train.pixels[:_START_PICTURES], math.prod(grid_of(*train.pixels.shape[2:]))
        count = len(pixels) * positions
        if quantizer.start == "kmeans" and count < quantizer.codebook_size:
            raise UserError(
                f"{len(pixels)} pictures give {count} vectors, too few for {quantizer.codebook_size} codes: take more "
                "or larger pictures (data.size), a smaller quantizer.codebook_size, or quantizer.start=random"
            )
        if recipe.tokenizer.epochs and positions * (len(train) % recipe.tokenizer.batch or recipe.tokenizer.batch) == 1:
            raise UserError(
                f"of {len(train)} pictures in batches of {recipe.tokenizer.batch} the last is a single one, of one "
                "vector, too little for a batch norm: another tokenizer.batch, or larger pictures (data.size)"
            )
        if recipe.prior.conditional and len(train.label_names) < 2:
            raise UserError(
                f"prior.conditional=true, but {recipe.data.source or recipe.data.name} has no classes: put the "
                "pictures of each class into a subfolder, or leave the setting out"
            )
        if recipe.evaluation.inception:
            inception.weights(recipe.evaluation.inception)
            inception.complete_weights()

    def _check_pictures(self) -> None:
        """A folder may have changed since the run was begun: then pictures it learnt from may be among the tests."""
        digest = hashlib.sha256()
        for images in self.pictures:
            digest.update(images.pixels.numpy().data)
        noted = self.run.folder / "pictures.sha256"
        if not noted.exists():
            if processes.is_main():
                files.write(noted, digest.hexdigest())
        elif noted.read_text("utf-8") != digest.hexdigest():
            raise UserError(
                f"the pictures in {self.recipe.data.source or self.recipe.data.name} are not those that the run in "
                f"{self.run.folder} was begun with: restore them, or begin a new run"
            )

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        self.tokenizer = make_tokenizer(self.recipe, self.pictures.train.pixels.shape[1])
        yield self._tokenizer_stage()
        if self.recipe.prior.epochs:
            self.prior = self._prior()
            yield self._prior_stage()

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show."""
        assert self.tokenizer is not None
        settings = self.recipe.tokenizer
        steps = settings.epochs * self._tokenizer_epoch
        if steps < _FEW_STEPS:
            progress.note(
                f"the tokenizer was trained for {steps} steps only (tokenizer.epochs={settings.epochs}, "
                f"{len(self.pictures.train):,} pictures in batches of {settings.batch}): with more epochs or smaller "
                "batches it learns more"
            )
        return evaluation.evaluate(self.recipe, self.run, self.pictures, self.tokenizer, self.prior, progress)

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Tables 4 to 8 of the paper, and figures."""
        return page(cls.title, study)

    def codes(self, progress: Progress | None = None) -> Tensor:
        """``(n, T, num_stages)`` of the training pictures, in the smallest type that holds them; found once."""
        if self._codes is None:
            assert self.tokenizer is not None
            small = torch.uint8 if self.recipe.quantizer.codebook_size <= 256 else torch.int32
            found = evaluation.encode(self.tokenizer, self.pictures.train.pixels, progress)
            self._codes = found.to(small).flatten(1, 2)
        return self._codes

    # --- stages ----------------------------------------------------------------------------------------------

    @property
    def _tokenizer_epoch(self) -> int:
        """Steps of the tokenizer in an epoch."""
        return -(-len(self.pictures.train) // self.recipe.tokenizer.batch)

    def _tokenizer_stage(self) -> Stage:
        model, settings, pixels = self.tokenizer, self.recipe.tokenizer, self.pictures.train.pixels
        assert model is not None
        steps = settings.epochs * self._tokenizer_epoch
        networks = [*model.encoder.parameters(), *model.decoder.parameters()]
        optimizer = RiemannianAdam(
            [
                {"params": networks, "lr": settings.rate},
                {"params": list(model.quantizer.parameters()), "lr": settings.codebook_rate},
            ],
            lr=settings.rate,
        )
        model.quantizer.attach(optimizer)
        return Stage(
            name="tokenizer",
            model=model,
            optimizer=optimizer,
            batches=shuffled(len(pixels), settings.batch, self.recipe.seed, lambda rows: pixels[rows]),
            steps=steps,
            steps_per_epoch=self._tokenizer_epoch,
            scheduler=LambdaLR(optimizer, cosine_decay(steps)) if settings.decay == "cosine" else None,
            begin=self._kmeans_start if self.recipe.quantizer.start == "kmeans" else None,
            validate=self._validate,
        )

    def _validate(self) -> dict[str, float]:
        assert self.tokenizer is not None
        return evaluation.validate(self.tokenizer, self.pictures.validation)

    @torch.no_grad()
    def _kmeans_start(self, progress: Progress) -> None:
        assert self.tokenizer is not None
        device = self.tokenizer.quantizer.codebooks.device
        drawn = np.random.default_rng(self.recipe.seed).permutation(len(self.pictures.train.pixels))[:_START_PICTURES]
        pixels = self.pictures.train.pixels[torch.from_numpy(drawn)].to(device)
        with progress.patient_bar("k-means", self.recipe.quantizer.num_stages, "stages") as bar:
            self.tokenizer.quantizer.initialize(self.tokenizer.vectors(as_floats(pixels)), each_stage=bar.advance)

    def _prior(self) -> GridPrior:
        assert self.tokenizer is not None
        p, quantizer, train = self.recipe.prior, self.tokenizer.quantizer, self.pictures.train
        prior = RQTransformer(
            quantizer.dim,
            quantizer.codebook_size,
            quantizer.num_stages,
            math.prod(grid_of(*train.pixels.shape[2:])),
            width=p.width,
            spatial_layers=p.spatial_layers,
            depth_layers=p.depth_layers,
            heads=p.heads,
            dropout=p.dropout,
            classes=len(train.label_names) if p.conditional else 0,
        )
        return GridPrior(prior, quantizer)

    def _prior_stage(self) -> Stage:
        model, settings, labels = self.prior, self.recipe.prior, self.pictures.train.labels
        assert model is not None
        steps_per_epoch = -(-len(labels) // settings.batch)
        steps = settings.epochs * steps_per_epoch
        optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, fused=True)

        def take(rows: Tensor) -> dict[str, Tensor]:
            return {"codes": self.codes()[rows], "labels": labels[rows]}

        return Stage(
            name="prior",
            model=model,
            optimizer=optimizer,
            batches=shuffled(len(labels), settings.batch, self.recipe.seed + 1, take),
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            scheduler=LambdaLR(optimizer, cosine_decay(steps, settings.warmup)),
            begin=self._standardize_prior,
            clip=1.0,
        )

    def _standardize_prior(self, progress: Progress) -> None:
        """Vectors of a few dimensions and any size are to look alike to the prior, whatever the kind."""
        assert self.prior is not None
        assert self.tokenizer is not None
        device = self.tokenizer.quantizer.codebooks.device
        codes = self.codes(progress)
        if (codes == codes[:1, :1]).all():
            raise UserError(
                "every part of every training picture has the same codes, so there is nothing for a prior to learn: "
                "train the tokenizer longer, or on more pictures"
            )
        rows = torch.arange(0, len(codes), max(1, len(codes) // _START_PICTURES))
        self.prior.prior.standardize(self.tokenizer.quantizer.prefixes(codes[rows].long().to(device)))
