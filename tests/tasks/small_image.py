"""A recipe of the image task that is trained in seconds."""

from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.recipe import load_recipe

SMALL = [
    "tokenizer.epochs=2", "tokenizer.dim=4", "quantizer.codebook_size=8", "quantizer.num_stages=3", "prior.epochs=1",
    "prior.width=16", "prior.heads=2", "prior.spatial_layers=1", "prior.depth_layers=1", "prior.warmup=5",
    "sampling.count=60", "evaluation.classifier_epochs=1", "training.trackers=[]",
]  # fmt: skip


def small(*settings: str) -> ImageRecipe:
    recipe = load_recipe("image/digits-demo", [*SMALL, *settings])
    assert isinstance(recipe, ImageRecipe)
    return recipe
