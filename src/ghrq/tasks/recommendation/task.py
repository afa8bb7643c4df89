"""Generative recommendation: IDs from texts, a recommender that generates them, and its baselines in one harness."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ghrq.data.interactions import Interactions
from ghrq.models.followers import Followers
from ghrq.models.recommender import Recommender
from ghrq.models.recommender_network import RecommenderConfig
from ghrq.report.page import Page
from ghrq.report.results import StudyResults
from ghrq.system import processes
from ghrq.system.checks import largest_size, stage_sizes
from ghrq.system.errors import UserError, require
from ghrq.system.progress import Progress
from ghrq.tasks.recommendation import evaluation
from ghrq.tasks.recommendation.item_ids import ItemIds, ids_of, load, tokenizer_of
from ghrq.tasks.recommendation.losses import RecommenderLosses, T5Losses
from ghrq.tasks.recommendation.recipe import RecommendationRecipe
from ghrq.tasks.recommendation.report import TABLES, page
from ghrq.tasks.recommendation.study import STUDY
from ghrq.tokenizer import Tokenizer
from ghrq.training.best import KeepBest
from ghrq.training.loop import Stage
from ghrq.training.schedule import cosine_decay
from ghrq.training.task import Task

# Numbers of an embedding: sums of their squares have to be finite in float32.
_LARGEST = 1e15


class Recommendation(Task):
    """The tokenizer of the items is fitted, then one stage trains the recommender.

    The weights that are kept, tested and saved are those of the best validation.
    """

    Recipe = RecommendationRecipe
    recipe: RecommendationRecipe
    study = STUDY
    title = "Recommendation: generating the next item's codes"
    tables = TABLES
    diagnosis = "ids.quantizer"

    tokenizer: Tokenizer | None = None
    """None if the IDs are not the quantizer's."""
    ids: ItemIds | None = None
    """None if the recommender has no codes."""
    recommender: Recommender

    def __init__(self, recipe: RecommendationRecipe, run: Any) -> None:
        super().__init__(recipe, run)
        self.data, self.split = load(recipe.data)
        files = [path for path in (recipe.data.source, recipe.data.items, recipe.data.embeddings) if path]
        called = f"the orders and items in {', '.join(files) or 'amazon-beauty'} (their order counts)"
        self.check_same_data(self._deciding(), called)

    @classmethod
    def check(cls, recipe: RecommendationRecipe) -> None:
        """The data are there, and what the recommender looks at exists."""
        data, split = load(recipe.data)
        settings = recipe.recommender
        if data.vectors is None and (recipe.ids.source == "tokenizer" or "text" in settings.inputs):
            table = "" if recipe.data.items or not recipe.data.own else "their table with --set data.items=… and "
            raise UserError(
                "the items have no text embeddings, which the tokenizer and the input 'text' need: name "
                f"{table}data.vectors or data.encoder, or set ids.source=random and recommender.inputs without 'text'"
            )
        if recipe.ids.source == "none" and "codes" in (*settings.inputs, *settings.outputs):
            raise UserError("ids.source=none: leave 'codes' out of recommender.inputs and recommender.outputs")
        if settings.generator == "t5":
            if (settings.inputs, settings.outputs) != (("codes",), ("codes",)):
                raise UserError('recommender.generator=t5: set recommender.inputs and recommender.outputs to ["codes"]')
            require("transformers", "rec")
        if recipe.ids.source == "tokenizer" and len(data.items) < largest_size(recipe.quantizer.codebook_size):
            raise UserError(
                f"quantizer.codebook_size = {recipe.quantizer.codebook_size}: {len(data.items)} items are too few for "
                f"so many codes: set it to some {max(2, len(data.items) // 8)}, and quantizer.num_stages to 3"
            )
        tuples = math.prod(stage_sizes(recipe.quantizer.codebook_size, recipe.quantizer.num_stages))
        if recipe.ids.source == "random" and tuples < len(data.items):
            raise UserError(
                f"quantizer.codebook_size = {recipe.quantizer.codebook_size} and quantizer.num_stages = "
                f"{recipe.quantizer.num_stages} allow only {tuples:,} random IDs for {len(data.items):,} items: raise "
                "one of them"
            )
        if data.vectors is not None:
            largest, item = data.vectors.abs().amax(1).max(0)
            if float(largest) > _LARGEST:
                raise UserError(
                    f"the embedding of the item {data.items[int(item)]!r} has numbers up to {float(largest):g}, whose "
                    "squares are not finite in float32: scale the embeddings to about 1"
                )
        if int(split.train.lengths.max()) < 2:
            raise UserError("no user has two items to train with (and two more for validation and test): more orders")

    def stages(self) -> Iterator[Stage]:
        """See the class."""
        if self.recipe.ids.source == "tokenizer":
            self.tokenizer = self._fitted_tokenizer()
        self.ids = ids_of(self.recipe, self.data, self.tokenizer)
        model = KeepBest(self._losses(), self.recommender)
        yield self._stage(model)
        self.recommender = model.best.eval()
        if self.recommender.memory is not None:
            evaluation.tune_memory(self.recommender, self.split, self.recipe.evaluation)

    def models(self) -> dict[str, nn.Module]:
        """``recommender``; the tokenizer is in the folder ``tokenizer`` of the run."""
        return {"recommender": self.recommender}

    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """Everything that the tables and the report show."""
        settings = self.recipe.evaluation
        scores = evaluation.test_scores(self.recommender, self.split, settings, self.run, progress)
        way = self.recommender.ways[-1]
        best = scores["test"][way]["unseen"]
        results = {"recall@10": best["recall@10"], "ndcg@10": best["ndcg@10"], "way": way, **scores}
        results["baselines"] = evaluation.baseline_scores(self.recipe.data, settings)
        if self.ids is not None:
            results["ids"] = evaluation.id_scores(self.ids, self.tokenizer, self.data.vectors)
        return results | {"examples": evaluation.examples(self.recommender, self.data, self.split)}

    @classmethod
    def report(cls, study: StudyResults) -> Page:
        """Table 3 of the paper and recommendation's part of tables 7 and 8, with baselines and examples."""
        return page(cls.title, study)

    def _deciding(self) -> Iterator[str | memoryview]:
        """What decides a run, for :meth:`check_same_data`. Items are numbers, so their order counts."""
        data = self.data
        yield "\0".join(data.items)
        yield data.starts.numpy().data
        yield data.sequence.numpy().data
        if self.recipe.data.encoder and data.texts is not None:  # its embeddings differ from machine to machine
            yield "\0".join(data.texts)
        elif data.vectors is not None:
            yield data.vectors.contiguous().numpy().data

    def _fitted_tokenizer(self) -> Tokenizer:
        """Of the run's folder, or a new one: a run that goes on must have the same IDs."""
        folder = self.run.folder / "tokenizer"
        if processes.is_main() and not folder.exists():
            assert self.data.vectors is not None
            tokenizer_of(self.recipe, self.data.vectors).save(folder)
        processes.from_main(None)  # the others wait for it
        return Tokenizer.load(folder)

    def _losses(self) -> RecommenderLosses | T5Losses:
        settings, data = self.recipe.recommender, self.data
        text = data.vectors if "text" in settings.inputs else None
        memory = Followers.counted(self.split.train) if settings.memory and "items" in settings.outputs else None
        config = RecommenderConfig(
            keys=tuple(data.items),
            titles=tuple(data.titles or ()),
            sizes=() if self.ids is None else self.ids.sizes,
            text_dim=0 if text is None else text.shape[1],
            pairs=0 if memory is None else len(memory.items),
            memory_repeats=None if memory is None else self.split.train.repeat_share(),
            **settings.model_dump(include=set(RecommenderConfig.model_fields)),
        )
        codes = None if self.ids is None else self.ids.codes
        self.recommender = Recommender(config, codes, text, self.split.train.counts() > 0)
        if memory is not None and self.recommender.memory is not None:
            self.recommender.memory.load_state_dict(memory.state_dict())
        if settings.generator == "t5":
            return T5Losses(self.recommender)
        return RecommenderLosses(self.recommender, settings.negatives, settings.item_dropout)

    def _stage(self, model: KeepBest[Recommender]) -> Stage:
        settings, train = self.recipe.recommender, self.split.train
        ends, lengths = _sequences(train, settings.history + 1, every_prefix=settings.generator == "t5")
        every, epochs = self.recipe.evaluation.validate_every, settings.epochs

        def take(rows: Tensor) -> dict[str, Tensor]:
            count = lengths[rows]
            place = torch.arange(int(count.max()))
            first = ends[rows] - count
            items = train.sequence[(first.unsqueeze(1) + place).clamp(max=len(train.sequence) - 1)]
            return {"items": items.masked_fill(place >= count.unsqueeze(1), -1)}

        def validate() -> dict[str, float]:
            model.epochs += 1
            if int(model.epochs) % every and int(model.epochs) < epochs:
                return {}
            scores = evaluation.validation_scores(self.recommender, self.split, self.recipe.evaluation)
            model.validated(scores["ndcg@10"])
            return scores

        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Stage.of(
            "recommender",
            model,
            torch.optim.AdamW(parameters, lr=settings.rate, betas=(0.9, 0.98), weight_decay=settings.decay, fused=True),
            rows=len(ends),
            batch=settings.batch,
            epochs=epochs,
            seed=self.recipe.seed,
            take=take,
            lengths=lengths,
            decay=partial(cosine_decay, warmup=settings.warmup),
            validate=validate,
            clip=1.0,
        )


def _sequences(train: Interactions, longest: int, every_prefix: bool) -> tuple[Tensor, Tensor]:
    """What is trained on: ends in ``train.sequence``, and lengths, from 2 to ``longest``; both ``(rows,)``.

    The last items of each user, where every item is predicted; or, where only the last one is, those of every prefix.
    """
    lengths = train.lengths
    ends = train.starts[1:]
    if every_prefix:
        ends = torch.arange(1, len(train.sequence) + 1)
        lengths = ends - torch.repeat_interleave(train.starts[:-1], lengths)
    kept = lengths > 1
    return ends[kept], lengths[kept].clamp(max=longest)
