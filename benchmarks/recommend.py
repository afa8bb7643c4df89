"""Milliseconds of a request to a recommender, alone and in batches, by each of its ways to rank.

    python benchmarks/recommend.py runs/recommendation-cpu/cpu-ghrq-s0/models/recommender
    python benchmarks/recommend.py MODEL --repeats 50 --threads 2

Histories are random items of the catalogue, 8 long; medians over the repeats.
"""

import argparse
import statistics
import time

import torch

from ghrq.models import Recommender


def milliseconds(model: Recommender, batch: int, by: str, repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        histories = torch.randint(len(model), (batch, 8))
        begun = time.perf_counter()
        model.rank(histories, 10, by=by)
        times.append(1000.0 * (time.perf_counter() - begun))
    return statistics.median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = Recommender.from_pretrained(given.model)
    print(f"{len(model):,} items, {given.threads} threads; milliseconds a batch, a request")
    for by in model.ways:
        for batch in (1, 64):
            found = milliseconds(model, batch, by, given.repeats)
            print(f"{by:10} batch {batch:3}: {found:8.1f} {found / batch:8.2f}")


if __name__ == "__main__":
    main()
