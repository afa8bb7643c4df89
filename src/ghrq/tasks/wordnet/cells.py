"""The runs behind the tables of the WordNet task."""

from ghrq.tasks.wordnet.recipe import WordNetRecipe
from ghrq.training.recipe import load_recipe
from ghrq.training.task import Budget

KINDS = ("ghrq", "hra-only", "dhste-only", "naive", "euclidean")
MAIN_KINDS = ("ghrq", "naive", "euclidean")

# Table 1's capacities: dimension of the encoder, codes of a stage. The first is the one of all other tables.
CAPACITIES = ((16, 128), (16, 64), (8, 128), (8, 64))

# Recipe and kinds of each budget. What only the seq2seq decides (random codes) is asked for once a recipe.
SETTINGS: dict[Budget, dict[str, tuple[str, ...]]] = {
    "demo": {"demo": (*MAIN_KINDS, "random")},
    "cpu": {"cpu": (*KINDS, "random"), "best": MAIN_KINDS},
    "paper": {"paper": (*KINDS, "random"), "best": MAIN_KINDS},
}


def cells(budget: Budget, seeds: int, grid: bool) -> dict[str, WordNetRecipe]:
    """Recipes by the name of their run, ``RECIPE-KIND-d16-b128-s0``."""
    found = {}
    for seed in range(seeds):
        for dim, size in CAPACITIES if grid else CAPACITIES[:1]:
            for setting, kinds in SETTINGS[budget].items():
                for kind in kinds:
                    name = f"{setting}-{kind}-d{dim}-b{size}-s{seed}"
                    recipe = load_recipe(
                        f"wordnet/{setting}",
                        [
                            f"name={name}",
                            f"seed={seed}",
                            f"quantizer.kind={kind}",
                            f"encoder.dim={dim}",
                            f"quantizer.codebook_size={size}",
                        ],
                    )
                    assert isinstance(recipe, WordNetRecipe)
                    found[name] = recipe
    return found
