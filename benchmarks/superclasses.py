"""Tokenizers of CIFAR-100 side by side: what they lose, and whether their codes know the superclasses.

    python benchmarks/superclasses.py runs/sweep/*                # finished runs of ghrq train image/cifar100-cpu …
    python benchmarks/superclasses.py runs/sweep/* --geometry     # is it the codes, or the geometry they are judged in?

The first table is of the runs' results. With --geometry the vectors that the codes of validation images stand for are
judged again, whatever their kind, in flat space and on the ball, stretched to several median radii.
"""

import argparse
from pathlib import Path

import numpy as np
import timing
import torch
from torch import Tensor

from ghrq import ball
from ghrq.data.images import Images, load_splits
from ghrq.metrics import taxonomy
from ghrq.metrics.image_codes import resampled
from ghrq.models import ImageTokenizer
from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress, make_progress
from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.run import Run

RADII = (0.25, 0.5, 0.75, 0.85, 0.95)


def recipe_of(folder: Path) -> ImageRecipe:
    recipe = Run.open(folder).recipe
    if not isinstance(recipe, ImageRecipe) or recipe.data.name != "cifar100":
        raise UserError(f"{folder} is no run on CIFAR-100: name those of ghrq train image/cifar100-cpu")
    return recipe


def settings(recipe: ImageRecipe) -> list[str]:
    weight = np.format_float_positional(recipe.quantizer.weight, trim="-")
    return [recipe.quantizer.kind, weight, str(recipe.seed)]


def of_results(folder: Path) -> list[str]:
    chosen = settings(recipe_of(folder))
    results = files.read_json(folder / "results.json", f"ghrq train --resume {folder}, or leave it out")
    held_out = [line["validation/ari"] for line in Run.open(folder).metrics() if "validation/ari" in line]
    if not held_out:
        raise UserError(f"{folder}/metrics.jsonl has no validation/ari: train it anew, or leave it out")
    again = results["taxonomy"]["resampled"]["ari"]
    return [
        *chosen,
        f"{1000 * results['mse']:.3f}",
        f"{results['quantizer']['radius']['median']:.2f}",
        f"{held_out[-1]:.3f}",
        f"{results['ari']:.3f}",
        f"{again['mean']:.3f} ± {again['deviation']:.3f}",
    ]


def resampled_ari(vectors: Tensor, images: Images, c: float, progress: Progress) -> str:
    """Of ``vectors (n, positions, d)``, points of the ball for ``c > 0``."""
    return f"{resampled(taxonomy.centres(vectors, c), images, c, progress)['ari'].mean:.3f}"


@torch.no_grad()
def in_other_geometries(folder: Path) -> list[str]:
    recipe = recipe_of(folder)
    images = load_splits(**recipe.data.model_dump()).validation
    tokenizer, progress = ImageTokenizer.from_pretrained(folder / "models" / "tokenizer"), make_progress()
    codes = tokenizer.encode(images.pixels, progress).flatten(1, 2)
    # Flat vectors for every kind; decode takes points of the ball back by its logarithm.
    vectors = torch.cat([tokenizer.quantizer.decode(part) for part in codes.split(500)])
    unit = vectors / torch.linalg.vector_norm(vectors, dim=-1).median()
    stretched = [ball.expmap0(unit * torch.tensor(radius).atanh(), 1.0) for radius in RADII]
    return [
        *settings(recipe),
        resampled_ari(vectors, images, 0.0, progress),
        *(resampled_ari(points, images, 1.0, progress) for points in stretched),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--geometry", action="store_true", help="score validation images in several geometries")
    arguments = parser.parse_args()
    try:
        if arguments.geometry:
            head = ["kind", "weight", "seed", "flat", *(f"ball, {radius}" for radius in RADII)]
            rows = [in_other_geometries(folder) for folder in arguments.runs]
        else:
            head = ["kind", "weight", "seed", "MSE × 1000", "median radius", "ARI, held out", "ARI, test", "resampled"]
            rows = [of_results(folder) for folder in arguments.runs]
    except UserError as problem:
        parser.exit(2, f"{problem}\n")
    print(timing.table(head, rows))


if __name__ == "__main__":
    main()
