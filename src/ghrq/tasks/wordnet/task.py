"""WordNet: embed the noun hierarchy, quantize it, and measure how much of the hierarchy the codes keep."""

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ghrq.data import glove, wordnet
from ghrq.data.closure import Closure, Negatives, Split, closure, split_closure, split_direct, wordnet_closure
from ghrq.ids.collisions import resolve_reassign
from ghrq.metrics import noun_codes
from ghrq.metrics.baselines import random_codes
from ghrq.models.ancestors import AncestorTranslator, AncestorTranslatorConfig
from ghrq.models.hierarchy import HierarchyEmbedding, HierarchyEmbeddingConfig
from ghrq.optim import RiemannianAdam, RiemannianSGD
from ghrq.quantizer import ball_units, kmeans_start
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system.checks import stage_sizes
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.tasks.wordnet.losses import AncestorLoss, ContrastiveLosses
from ghrq.tasks.wordnet.recipe import WordNetData, WordNetRecipe
from ghrq.tasks.wordnet.report import TABLES, page
from ghrq.tasks.wordnet.study import STUDY
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay, linear_decay
from ghrq.training.task import Task


class WordNet(Task):
    """Three stages: the embedding alone (if the recipe has warm epochs), embedding and codes, the seq2seq on the codes.

    ``quantized (n, num_stages)`` are the codes of all synsets, once they are trained. Those of the seq2seq are the
    same, or a distinct tuple for each synset.
    """

    Recipe = WordNetRecipe
    recipe: WordNetRecipe
    study = STUDY
    title = "WordNet: what do the codes know of the hierarchy?"
    tables = TABLES
    diagnosis = "diagnosis"

    embedding: HierarchyEmbedding | None = None
    """None if the codes are random."""
    quantized: Tensor
    translator: AncestorTranslator

    def __init__(self, recipe: WordNetRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.nouns, self.closure, self.split = _load(recipe.data)
        self.train = torch.from_numpy(self.split.train)
        pairs = (part.tobytes() for part in (self.split.train, self.split.test))
        self.check_same_data(["\n".join(self.nouns.names), *pairs], f"the nouns in {recipe.data.source or 'ghrq'}")

    @classmethod
    def check(cls, recipe: WordNetRecipe) -> None:
        """Its files are there and readable, and there are enough tuples for distinct codes."""
        try:
            nouns, _, _ = _load(recipe.data)
        except (OSError, ValueError) as error:
            raise UserError(f"data.source = '{recipe.data.source}': {error}") from error
        try:
            if recipe.evaluation.glove:
                glove.find(recipe.evaluation.glove)
        except FileNotFoundError as error:
            raise UserError(f"evaluation.glove: {error}") from error
        sizes = stage_sizes(recipe.quantizer.codebook_size, recipe.quantizer.num_stages)
        tuples, count = math.prod(sizes), len(nouns.names)
        if tuples < count and (recipe.quantizer.kind == "random" or recipe.quantizer.collisions == "reassign"):
            raise UserError(
                f"quantizer.codebook_size = {recipe.quantizer.codebook_size}: {tuples:,} tuples are not enough for "
                f"{count:,} synsets: use more codes or more stages"
            )

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        q, size = self.recipe.quantizer, len(self.nouns.names)
        if q.kind == "random":
            self.quantized = codes = random_codes(size, q.codebook_size, q.num_stages, self.recipe.seed)
        else:
            encoder = self.recipe.encoder.model_dump()
            model = HierarchyEmbedding(HierarchyEmbeddingConfig(size=size, quantizer=q.of_model(), **encoder))
            self.embedding, losses = model, self._losses(model)
            if q.warm_epochs:
                yield self._embedding_stage("embedding", losses, q.warm_epochs, weight=0.0)
            yield self._embedding_stage("codes", losses, self.recipe.optimizer.epochs, q.weight)
            self.quantized = codes = model.codes()
            if q.collisions == "reassign":
                vectors = model.vectors()
                codes = resolve_reassign(codes, lambda rows: vectors[rows], model.quantizer)
        sizes = self.recipe.seq2seq.model_dump(include={"width", "layers", "heads", "feedforward", "dropout"})
        config = AncestorTranslatorConfig(size=size, num_stages=q.num_stages, codebook_size=q.codebook_size, **sizes)
        self.translator = AncestorTranslator(config, codes.cpu())
        yield self._translator_stage()

    def models(self) -> dict[str, nn.Module]:
        """``translator`` and, unless the codes are random, ``embedding``."""
        return {"translator": self.translator, **({} if self.embedding is None else {"embedding": self.embedding})}

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show."""
        settings, chance = self.recipe.evaluation, np.random.default_rng(self.recipe.seed)
        codes = self.quantized.cpu()
        found = noun_codes.ancestor_recall(self.translator, self.split, settings.k, settings.sources, chance, progress)
        results = {
            "entity_recall": found["recall"]["constrained"]["entity_filtered"],
            **noun_codes.distinctness(codes, self.closure),
            **found,
            "similarity": noun_codes.colliding_similarity(codes, self.nouns, settings.glove),
            "examples": noun_codes.examples(codes, self.nouns),
        }
        if self.embedding is not None:
            results |= noun_codes.embedding_scores(self.embedding, self.closure, settings.map_sources, chance)
        return results

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Tables 1, 2, 7 and 8 of the paper, WordNet's part of them, with baselines and figures."""
        return page(cls.title, study)

    def _losses(self, model: HierarchyEmbedding) -> ContrastiveLosses:
        size, contrast = model.config.size, self.recipe.contrast
        known = self.closure if contrast.outside == "closure" else closure(self.split.train, size)
        return ContrastiveLosses(model, Negatives(known, size), contrast, self.recipe.quantizer.weight)

    def _embedding_stage(self, name: str, losses: ContrastiveLosses, epochs: int, weight: float) -> Stage:
        settings, quantizer = self.recipe.optimizer, losses.quantizer
        losses.quantizer_weight = weight
        # Adam does not see the units of a loss, SGD does: see ball_units.
        units = ball_units(quantizer) if settings.name == "sgd" else 1.0
        groups = [
            {"params": list(losses.encoder.parameters()), "lr": settings.rate},
            {"params": [quantizer.codebooks], "lr": settings.codebook_rate / units},
        ]
        optimizer = (RiemannianSGD if settings.name == "sgd" else RiemannianAdam)(groups, lr=settings.rate)
        quantizer.attach(optimizer)

        def begin(progress: Progress) -> None:
            """Every synset counts once: codes are for all of them, not for the few that most pairs end in."""
            kmeans_start(quantizer, losses.encoder().detach(), progress)

        return Stage.of(
            name,
            losses,
            optimizer,
            rows=len(self.train),
            batch=settings.batch,
            epochs=epochs,
            seed=self.recipe.seed,
            take=self.train.__getitem__,
            decay=linear_decay if settings.decay == "linear" else None,
            begin=begin if weight > 0.0 and self.recipe.quantizer.start == "kmeans" else None,
        )

    def _translator_stage(self) -> Stage:
        settings, model = self.recipe.seq2seq, AncestorLoss(self.translator, self.split.train)
        nodes = torch.from_numpy(np.unique(self.split.train[:, 0]))
        return Stage.of(
            "seq2seq",
            model,
            torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=0.01, fused=True),
            rows=len(nodes),
            batch=settings.batch,
            epochs=settings.epochs,
            seed=self.recipe.seed + 1,
            take=nodes.__getitem__,
            decay=partial(cosine_decay, warmup=settings.warmup),
            clip=1.0,
        )


@lru_cache(maxsize=2)
def _load(data: WordNetData) -> tuple[wordnet.Nouns, Closure, Split]:
    """Nouns, closure and split; the runs of one table share them."""
    nouns = wordnet.from_dict(data.source) if Path(data.source or " ").is_dir() else wordnet.load(data.source or None)
    above = wordnet_closure(nouns, data.instances)
    if data.split == "closure":
        return nouns, above, split_closure(above, data.test_fraction, data.split_seed)
    return nouns, above, split_direct(nouns.hypernyms(data.instances), above, data.test_fraction, data.split_seed)
