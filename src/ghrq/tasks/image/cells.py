"""The runs behind the tables of the image task."""

from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.recipe import load_recipe
from ghrq.training.task import Budget

KINDS = ("ghrq", "hra-only", "dhste-only", "naive", "euclidean")
MAIN_KINDS = ("ghrq", "naive", "euclidean")


def cells(budget: Budget, seeds: int, grid: bool, dataset: str) -> dict[str, ImageRecipe]:
    """Recipes by the name of their run, ``KIND-s0``: the main kinds, and with ``grid`` the ablations between them."""
    found = {}
    for seed in range(seeds):
        for kind in KINDS if grid else MAIN_KINDS:
            name = f"{kind}-s{seed}"
            overrides = [f"name={name}", f"seed={seed}", f"quantizer.kind={kind}"]
            recipe = load_recipe(f"image/{dataset}-{budget}", overrides)
            assert isinstance(recipe, ImageRecipe)
            found[name] = recipe
    return found
