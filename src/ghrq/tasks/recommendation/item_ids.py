"""The data of a recipe, and the IDs of its items."""

import gzip
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghrq.data.interactions import Interactions, leave_two_out, read_amazon, read_compact, read_orders
from ghrq.data.interactions.compact import SEQUENCES
from ghrq.data.interactions.sequences import Split
from ghrq.data.text_vectors import embed_texts
from ghrq.data.wheels import data_folder
from ghrq.ids import resolve_append
from ghrq.ids.tuples import count_distinct
from ghrq.metrics.baselines import random_codes
from ghrq.system.checks import stage_sizes
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile
from ghrq.system.progress import make_progress
from ghrq.tasks.recommendation.recipe import RecommendationData, RecommendationRecipe
from ghrq.tokenizer import Tokenizer

BEAUTY, LETTER = "amazon-beauty", "letter-codes.csv.gz"


class ItemIds(NamedTuple):
    """The IDs of all items."""

    codes: Tensor
    """``(n, num_stages)``, all distinct: the last is the tie-break token."""
    sizes: tuple[int, ...]
    """Number of codes of each stage."""
    distinct: float
    """Distinct tuples before the tie-break token, as a share of the items."""


@lru_cache(maxsize=2)
def load(data: RecommendationData) -> tuple[Interactions, Split]:
    """The interactions of a recipe and their split; the runs of one table share them."""
    source = Path(data.source) if data.source else _beauty()
    if source.is_dir() and (source / SEQUENCES).is_file():
        found = read_compact(source)
    elif source.name.startswith("reviews_"):
        found = read_amazon(source)
    elif source.exists():
        found = read_orders(
            source,
            Path(data.items) if data.items else None,
            user=data.user,
            item=data.item,
            time=data.time,
            title=data.title or None,
            text=data.text,
            vectors=data.vectors or None,
            embeddings=Path(data.embeddings) if data.embeddings else None,
            core=data.core,
            on_bad=data.on_bad,
            progress=make_progress(),
        )
    else:
        raise UserError(f"data.source: there is no {source}: name a table of orders, or the folder {BEAUTY}")
    unused = data.of_a_table()
    if unused and (source.is_dir() or source.name.startswith("reviews_")):
        raise UserError(
            f"data.{unused[0]} = {getattr(data, unused[0])} is of a table of orders, and {source} is none: name that "
            "table as data.source, or leave the setting out"
        )
    if found.vectors is None and found.texts is not None and data.encoder:
        found = replace(found, vectors=embed_texts(found.texts, data.encoder, progress=make_progress()))
    return found, leave_two_out(found)


def _beauty() -> Path:
    root = data_folder()
    if root is None or not (root / BEAUTY).is_dir():
        where = "GHRQ_DATA is not set" if root is None else f"GHRQ_DATA ({root}) has no folder {BEAUTY}"
        raise UserError(f"{where}: set it to the folder with {BEAUTY}, or name one as data.source")
    return root / BEAUTY


def tokenizer_of(recipe: RecommendationRecipe, vectors: Tensor) -> Tokenizer:
    """Fit the tokenizer of a recipe."""
    return Tokenizer(**recipe.quantizer.model_dump(), seed=recipe.seed).fit(vectors.numpy())


def ids_of(recipe: RecommendationRecipe, data: Interactions, tokenizer: Tokenizer | None) -> ItemIds | None:
    """The IDs of the items; None if the recipe wants none."""
    settings, quantizer = recipe.ids, recipe.quantizer
    if settings.source == "none":
        return None
    if tokenizer is not None:
        assert data.vectors is not None
        codes, sizes = torch.from_numpy(tokenizer.encode(data.vectors.numpy())), tokenizer.quantizer_.sizes
    elif settings.source == "random":
        sizes = stage_sizes(quantizer.codebook_size, quantizer.num_stages)
        codes = random_codes(len(data.items), sizes, quantizer.num_stages, recipe.seed)
    else:
        codes = _published(Path(settings.file) if settings.file else _beauty() / LETTER, len(data.items))
        sizes = stage_sizes(int(codes.max()) + 1, codes.shape[1])
    whole = resolve_append(codes)
    tie_break = max(settings.tie_break, int(whole[:, -1].max()) + 1)
    return ItemIds(whole, (*sizes, tie_break), count_distinct(codes) / len(codes))


def _published(path: Path, count: int) -> Tensor:
    """Codes ``(count, N)`` from a CSV file of ``item,code1,code2,…``."""
    opened = gzip.open if path.suffix == ".gz" else open
    with InputFile(path).reading("CSV of item,code1,code2,…"), opened(path, "rt") as file:
        table = np.loadtxt(file, dtype=np.int64, delimiter=",", skiprows=1, ndmin=2)
    order = table[:, 0].argsort(kind="stable")
    if table.shape[1] < 2 or not np.array_equal(table[order, 0], np.arange(1, count + 1)) or table.min() < 0:
        raise UserError(f"{path}: expected codes of 0 and above for the items 1 to {count}: they are of other items")
    return torch.from_numpy(table[order, 1:])
