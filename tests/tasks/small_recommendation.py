"""A small shop in the compact form, and a recipe that is trained on it in seconds."""

import gzip
import json
from pathlib import Path

import numpy as np

from ghrq.tasks.recommendation.recipe import RecommendationRecipe
from ghrq.training.recipe import load_recipe

ITEMS, USERS, GROUPS = 60, 150, 6

SMALL = [
    "quantizer.codebook_size=8", "quantizer.num_stages=2", "recommender.width=16", "recommender.heads=2",
    "recommender.feedforward=16", "recommender.hidden=16", "recommender.components=8", "recommender.epochs=4",
    "recommender.batch=32", "recommender.warmup=5", "recommender.rate=0.02", "recommender.negatives=20",
    "recommender.dropout=0.0", "evaluation.validate_every=2", "evaluation.beam=50", "training.trackers=[]",
]  # fmt: skip


# The generator of the paper.
T5 = ("recommender.generator=t5", 'recommender.inputs=["codes"]', 'recommender.outputs=["codes"]')


def write_shop(folder: Path) -> Path:
    """Every user buys from one of six groups, whose items have similar vectors; the last item is never bought."""
    random = np.random.default_rng(0)
    group = np.arange(ITEMS) % GROUPS
    lines = []
    for user in range(USERS):
        own = np.flatnonzero((group == user % GROUPS) & (np.arange(ITEMS) < ITEMS - 1))
        lines.append(" ".join(map(str, [f"u{user}", *(1 + random.permutation(own)[: 4 + user % 5])])))
    folder.mkdir()
    with gzip.open(folder / "sequences.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    with gzip.open(folder / "items.jsonl.gz", "wt") as file:
        for i in range(ITEMS):
            file.write(json.dumps({"id": i + 1, "asin": f"A{i}", "title": f"Item {i}", "categories": []}) + "\n")
    vectors = random.normal(size=(GROUPS, 12))[group] + 0.3 * random.normal(size=(ITEMS, 12))
    np.save(folder / "mpnet-embeddings.f16.npy", vectors.astype(np.float16))
    (folder / "codes.csv").write_text(
        "item,code1,code2\n" + "".join(f"{i + 1},{group[i]},{i // GROUPS}\n" for i in range(ITEMS))
    )
    return folder


def small(shop: Path, *settings: str) -> RecommendationRecipe:
    recipe = load_recipe("recommendation/demo", [*SMALL, f"data.source={shop}", *settings])
    assert isinstance(recipe, RecommendationRecipe)
    return recipe
