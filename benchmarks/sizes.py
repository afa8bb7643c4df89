"""Sizes by level, and balanced codebooks: collisions at equal bits. The table of docs/semantic-ids.md.

    python benchmarks/sizes.py beauty --data FOLDER              # FOLDER/amazon-beauty, or GHRQ_DATA
    python benchmarks/sizes.py wordnet --run runs/wordnet-demo   # of: ghrq train wordnet/demo

Every tokenizer is fitted by k-means on all items, once for each seed, and encodes the same items. Collisions are the
items that would need a tie-break token other than 0: items minus distinct tuples. Perplexity is by level.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import label_agreement
import numpy as np
import timing

import ghrq
from ghrq.metrics.quality import quality

SIZES = ([256, 256, 256], [64, 256, 1024], [1024, 256, 64])


def measured(vectors: Any, sizes: list[int], seed: int, **settings: Any) -> dict[str, Any]:
    """Of one tokenizer."""
    tokenizer = ghrq.Tokenizer(codebook_size=sizes, radius=label_agreement.RADIUS, seed=seed, **settings).fit(vectors)
    found = quality(tokenizer.encode(vectors), vectors, tokenizer, neighbours=0, seed=seed)
    return {
        "collisions": 1.0 - found.uniqueness[-1],
        "error": found.reconstruction.relative[-1] if found.reconstruction else 0.0,
        "perplexity": found.perplexity,
    }


def cells(found: list[dict[str, Any]]) -> list[str]:
    """Means and standard deviations over seeds."""
    collisions, errors = ([run[name] for run in found] for name in ("collisions", "error"))
    evenness = np.mean([run["perplexity"] for run in found], axis=0)
    return [
        f"{100 * np.mean(collisions):.2f}" + (f" ± {100 * np.std(collisions):.2f}" if len(found) > 1 else ""),
        f"{np.mean(errors):.4f}",
        ", ".join(f"{value:.0f}" for value in evenness),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("beauty", "wordnet"))
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"), help="folder of amazon-beauty/")
    parser.add_argument("--run", type=Path, help="run of the WordNet task")
    parser.add_argument("--kind", default="ghrq")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if not (given.data if given.what == "beauty" else given.run):
        parser.error(f"{given.what} needs {'--data' if given.what == 'beauty' else '--run'}")
    load = label_agreement.beauty if given.what == "beauty" else label_agreement.wordnet_nouns
    items = load(Path(given.data if given.what == "beauty" else given.run))
    rows = []
    for balance in (False, True):
        for sizes in SIZES:
            found = [
                measured(items.vectors, sizes, seed, kind=given.kind, balance=balance) for seed in range(given.seeds)
            ]
            bits = sum(size.bit_length() - 1 for size in sizes)
            rows.append([", ".join(map(str, sizes)), "yes" if balance else "no", str(bits), *cells(found)])
            print(rows[-1], flush=True)
    print(f"\n{items.title}, {given.kind}, {given.seeds} seed{'s' if given.seeds > 1 else ''}\n")
    print(timing.table(["sizes", "balanced", "bits", "collisions, %", "error / variance", "perplexity"], rows))


if __name__ == "__main__":
    main()
