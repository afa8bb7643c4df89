"""The radius as a dial: what IDs lose, and what they know of the labels, by the median radius of the points.

    python benchmarks/dial.py beauty --data FOLDER                       # FOLDER/amazon-beauty, or GHRQ_DATA
    python benchmarks/dial.py wordnet --run runs/wordnet-demo            # of: ghrq train wordnet/demo
    python benchmarks/dial.py images runs/dial/*                         # of: ghrq train image/cifar100-cpu, see docs

Tokenizers of the first two are fitted here (k-means), for three seeds; the runs of the third are finished ones.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import label_agreement
import numpy as np
import superclasses
import timing

import ghrq
from ghrq.metrics.quality import quality
from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.training.run import Run

RADII = (0.15, 0.3, 0.5, 0.7, 0.9)


def fitted(items: label_agreement.Items, kind: str, radius: float, seed: int) -> dict[str, Any]:
    """The quality of a tokenizer's codes."""
    tokenizer = ghrq.Tokenizer(kind=kind, radius=radius, seed=seed).fit(items.vectors)
    codes = tokenizer.encode(items.vectors)
    return quality(codes, items.vectors, tokenizer, labels=items.labels, separator=items.separator, seed=seed).to_dict()


def of_items(items: label_agreement.Items, seeds: int) -> None:
    """Print the curve of tokenizers: relative error, and adjusted mutual information with the labels."""
    rows = []
    for kind, radius in [("euclidean", 0.5), *(("calibrated", radius) for radius in RADII)]:
        found = [fitted(items, kind, radius, seed) for seed in range(seeds)]
        levels = label_agreement.informative({"ghrq": found})
        middle = list(levels)[len(levels) // 2]
        cells = [[run["reconstruction"]["relative"][-1] for run in found]]
        cells += [[run["labels"][middle]["codes"]["ami"][depth] for run in found] for depth in range(2)]
        rows.append(["flat space" if kind == "euclidean" else str(radius), *map(spread, cells)])
        print(rows[-1], flush=True)
    name = levels[middle]["level"]
    print(f"\n{items.title}, {seeds} seeds\n")
    print(timing.table(["radius", "error / variance", f"AMI with {name}, depth 1", "depth 2"], rows))


def of_images(folders: list[Path]) -> None:
    """Print the curve of finished runs on CIFAR-100."""
    runs = defaultdict(list)
    for folder in folders:
        recipe = superclasses.recipe_of(folder)
        results = files.read_json(folder / "results.json", f"ghrq train --resume {folder}")
        held_out = [line["validation/ari"] for line in Run.open(folder).metrics() if "validation/ari" in line]
        runs[recipe.quantizer.kind, recipe.quantizer.radius].append(
            (1000.0 * results["mse"], held_out[-1], results["taxonomy"]["resampled"]["ari"]["mean"])
        )
    rows = [
        [kind, f"{radius or '–'}", str(len(found)), *(spread(column) for column in zip(*found, strict=True))]
        for (kind, radius), found in sorted(runs.items(), key=str)
    ]
    print(timing.table(["kind", "radius", "seeds", "MSE × 1000", "ARI, held out", "ARI, test, resampled"], rows))


def spread(values: Any) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("beauty", "wordnet", "images"))
    parser.add_argument("runs", nargs="*", type=Path, help="finished runs on CIFAR-100")
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"), help="folder of amazon-beauty/")
    parser.add_argument("--run", type=Path, help="run of the WordNet task")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    needed = {"beauty": "data", "wordnet": "run", "images": "runs"}[given.what]
    if not getattr(given, needed):
        parser.error(f"{given.what} needs {'folders of runs' if needed == 'runs' else f'--{needed}'}")
    try:
        if given.what == "images":
            of_images(given.runs)
        else:
            load = {"beauty": label_agreement.beauty, "wordnet": label_agreement.wordnet_nouns}[given.what]
            of_items(load(Path(getattr(given, needed))), given.seeds)
    except UserError as problem:
        parser.exit(2, f"{problem}\n")


if __name__ == "__main__":
    main()
