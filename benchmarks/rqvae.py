"""The IDs of recipe recommendation/paper on Beauty, for as many epochs as there is time.

    OMP_NUM_THREADS=1 python benchmarks/rqvae.py --epochs 1000       # about 20 minutes for each kind
    python benchmarks/rqvae.py --epochs 20 --kinds ghrq              # seconds

The table is in docs/results/recommendation.md. Reads amazon-beauty in GHRQ_DATA. Prints for each kind the share of
distinct tuples (without the tie-break token), the used codes by stage, the telescoping error, and CPU seconds.
"""

import argparse
import time
from typing import cast

from ghrq.tasks.recommendation.evaluation import id_scores
from ghrq.tasks.recommendation.item_ids import ids_of, load, tokenizer_of
from ghrq.tasks.recommendation.recipe import RecommendationRecipe
from ghrq.training.recipe import load_recipe


def main() -> None:
    """Train the tokenizers and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=["ghrq", "naive", "euclidean"])
    parser.add_argument("--recipe", default="recommendation/paper", help="or recommendation/as-run")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for kind in chosen.kinds:
        keys = {"quantizer.kind": kind, "quantizer.epochs": chosen.epochs, "seed": chosen.seed}
        recipe = cast(RecommendationRecipe, load_recipe(chosen.recipe, keys=keys))
        data, _ = load(recipe.data)
        assert data.vectors is not None
        begun = time.process_time()
        tokenizer = tokenizer_of(recipe, data.vectors)
        seconds = time.process_time() - begun
        ids = ids_of(recipe, data, tokenizer)
        assert ids is not None
        found = id_scores(ids, tokenizer, data.vectors)
        used = [f"{share:.2f}" for share in found["quantizer"]["usage"]]
        print(
            f"{kind}: {chosen.epochs} epochs, distinct {found['distinct']:.4f}, used codes {' '.join(used)}, "
            f"telescoping error {found['quantizer']['telescoping_error']:.2g}, {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
