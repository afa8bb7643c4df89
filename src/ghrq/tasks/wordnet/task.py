"""WordNet: embed the noun hierarchy, quantize it, and ask how much of the hierarchy the codes still know."""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from ghrq.data import glove, wordnet
from ghrq.data.closure import Closure, Negatives, Split, closure, split_closure, split_direct, wordnet_closure
from ghrq.ids.collisions import resolve_reassign
from ghrq.nets.embedding import Embedding
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.optim import RiemannianAdam, RiemannianSGD
from ghrq.quantizer import ball_units
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tasks.wordnet import evaluation
from ghrq.tasks.wordnet.models import AncestorTranslator, HierarchyEmbedding
from ghrq.tasks.wordnet.recipe import Data, Optimizer, WordNetRecipe
from ghrq.tasks.wordnet.report import TABLES, page
from ghrq.tasks.wordnet.study import STUDY
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay, linear_decay, shuffled
from ghrq.training.task import Task


class WordNet(Task):
    """Three stages: the embedding alone (if the recipe warms up), embedding and codes, and the seq2seq on the codes."""

    Recipe = WordNetRecipe
    recipe: WordNetRecipe
    study = STUDY
    title = "WordNet: what do the codes know of the hierarchy?"
    tables = TABLES

    def __init__(self, recipe: WordNetRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.nouns, self.closure, self.split = _load(recipe.data)
        self.train = torch.from_numpy(self.split.train)
        self.embedding: HierarchyEmbedding | None = None
        self.translator: AncestorTranslator | None = None

    @classmethod
    def check(cls, recipe: WordNetRecipe) -> None:
        """Its files are there and whole, and random codes are enough for all synsets."""
        try:
            nouns, _, _ = _load(recipe.data)
        except (OSError, ValueError) as error:
            raise UserError(f"data.source = '{recipe.data.source}': {error}") from error
        try:
            if recipe.evaluation.glove:
                glove.find(recipe.evaluation.glove)
        except FileNotFoundError as error:
            raise UserError(f"evaluation.glove: {error}") from error
        tuples, count = recipe.quantizer.codebook_size**recipe.quantizer.num_stages, len(nouns.names)
        if tuples < count and (recipe.quantizer.kind == "random" or recipe.quantizer.collisions == "reassign"):
            raise UserError(
                f"quantizer.codebook_size = {recipe.quantizer.codebook_size}: {tuples:,} tuples are not enough for "
                f"{count:,} synsets: use more codes or more stages"
            )

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        recipe = self.recipe
        if recipe.quantizer.kind != "random":
            self.embedding = self._embedding()
            if recipe.quantizer.warm_epochs:
                yield self._embedding_stage("embedding", recipe.quantizer.warm_epochs, weight=0.0)
            yield self._embedding_stage("codes", recipe.optimizer.epochs, recipe.quantizer.weight)
        self.translator = self._translator()
        yield self._translator_stage()

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show."""
        assert self.translator is not None
        return evaluation.evaluate(
            self.recipe,
            self.nouns,
            self.closure,
            self.split,
            self.embedding,
            self.translator.translator,
            self.quantized,
            self.codes,
            progress,
        )

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Tables 1, 2, 7 and 8 of the paper, WordNet's part of them, with baselines and figures."""
        return page(cls.title, study)

    # --- codes -----------------------------------------------------------------------------------------------

    @cached_property
    def quantized(self) -> Tensor:
        """``(n, num_stages)`` what the quantizer, once it is trained, makes of all synsets."""
        if self.embedding is None:
            return self._random_codes()
        return self.embedding.quantizer.encode(self.embedding.encoder().detach())

    @cached_property
    def codes(self) -> Tensor:
        """``(n, num_stages)`` the tuples that the seq2seq works with: the same, or a distinct one for each synset."""
        if self.embedding is None or self.recipe.quantizer.collisions == "none":
            return self.quantized
        vectors = self.embedding.encoder().detach()
        return resolve_reassign(self.quantized, lambda rows: vectors[rows], self.embedding.quantizer)

    def _random_codes(self) -> Tensor:
        size, stages, n = self.recipe.quantizer.codebook_size, self.recipe.quantizer.num_stages, len(self.nouns.names)
        random = np.random.default_rng(self.recipe.seed)
        numbers = np.unique(random.integers(size**stages, size=2 * n))
        while len(numbers) < n:
            numbers = np.unique(np.concatenate((numbers, random.integers(size**stages, size=n))))
        numbers = random.permutation(numbers)[:n]
        return torch.from_numpy(np.stack([numbers // size**i % size for i in range(stages)], axis=1))

    # --- stages ----------------------------------------------------------------------------------------------

    def _embedding(self) -> HierarchyEmbedding:
        recipe, size = self.recipe, len(self.nouns.names)
        q = recipe.quantizer
        quantizer = q.build(recipe.encoder.dim)
        encoder = Embedding(size, recipe.encoder.dim, recipe.encoder.initial_scale, recipe.encoder.hidden)
        known = self.closure if recipe.contrast.outside == "closure" else closure(self.split.train, size)
        return HierarchyEmbedding(encoder, quantizer, Negatives(known, size), recipe.contrast, q.weight)

    def _embedding_stage(self, name: str, epochs: int, weight: float) -> Stage:
        model, settings = self.embedding, self.recipe.optimizer
        assert model is not None
        model.quantizer_weight = weight
        steps_per_epoch = -(-len(self.train) // settings.batch)
        steps = epochs * steps_per_epoch
        optimizer = self._optimizer(model, settings)
        model.quantizer.attach(optimizer)
        return Stage(
            name=name,
            model=model,
            optimizer=optimizer,
            batches=shuffled(len(self.train), settings.batch, self.recipe.seed, self.train.__getitem__),
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            scheduler=LambdaLR(optimizer, linear_decay(steps)) if settings.decay == "linear" else None,
            begin=self._kmeans_start if weight > 0.0 and self.recipe.quantizer.start == "kmeans" else None,
        )

    def _optimizer(self, model: HierarchyEmbedding, settings: Optimizer) -> torch.optim.Optimizer:
        groups = [
            {"params": list(model.encoder.parameters()), "lr": settings.rate},
            {"params": [model.quantizer.codebooks], "lr": settings.codebook_rate},
        ]
        if settings.name == "adam":
            return RiemannianAdam(groups, lr=settings.rate)
        groups[1]["lr"] = settings.codebook_rate / ball_units(model.quantizer)
        return RiemannianSGD(groups, lr=settings.rate)

    def _kmeans_start(self, _: Progress) -> None:
        """On every synset once: codes are for all of them, not for the few ancestors that most pairs end in."""
        assert self.embedding is not None
        self.embedding.quantizer.initialize(self.embedding.encoder().detach())

    def _translator(self) -> AncestorTranslator:
        q, s = self.recipe.quantizer, self.recipe.seq2seq
        translator = TupleTranslator(
            q.num_stages, q.codebook_size, s.width, s.layers, s.heads, s.feedforward, s.dropout
        )
        return AncestorTranslator(translator, self.codes.cpu(), self.split.train)

    def _translator_stage(self) -> Stage:
        model, settings = self.translator, self.recipe.seq2seq
        assert model is not None
        nodes = torch.from_numpy(np.unique(self.split.train[:, 0]))
        steps_per_epoch = -(-len(nodes) // settings.batch)
        steps = settings.epochs * steps_per_epoch
        optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=0.01, fused=True)
        return Stage(
            name="seq2seq",
            model=model,
            optimizer=optimizer,
            batches=shuffled(len(nodes), settings.batch, self.recipe.seed + 1, nodes.__getitem__),
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            scheduler=LambdaLR(optimizer, cosine_decay(steps, settings.warmup)),
            clip=1.0,
        )


@lru_cache(maxsize=2)
def _load(data: Data) -> tuple[wordnet.Nouns, Closure, Split]:
    """Nouns, closure and split: the cells of one table share them."""
    nouns = wordnet.from_dict(data.source) if Path(data.source or " ").is_dir() else wordnet.load(data.source or None)
    above = wordnet_closure(nouns, data.instances)
    if data.split == "closure":
        return nouns, above, split_closure(above, data.test_fraction, data.split_seed)
    return nouns, above, split_direct(nouns.hypernyms(data.instances), above, data.test_fraction, data.split_seed)
