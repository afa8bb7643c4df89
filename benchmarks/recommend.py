"""Milliseconds of a request to a recommender, alone and in batches, by each of its ways to rank.

    python benchmarks/recommend.py runs/recommendation-cpu/cpu-ghrq-s0/models/recommender
    python benchmarks/recommend.py MODEL --repeats 50 --threads 2

Histories are random items of the catalogue, 8 long; medians over the repeats. Where other processes share the cores,
the CPU time (of all threads) is nearer to what an idle machine takes than the time on the clock.
"""

import argparse
import statistics
import time

import torch

from ghrq.models import Recommender
from ghrq.models.recommender_ranking import Way


def milliseconds(model: Recommender, batch: int, by: Way, repeats: int) -> tuple[float, float]:
    """On the clock, and of CPU time."""
    times = []
    for _ in range(repeats + 2):
        histories = torch.randint(len(model), (batch, 8))
        begun, cpu = time.perf_counter(), time.process_time()
        model.rank(histories, 10, by=by)
        times.append((1000.0 * (time.perf_counter() - begun), 1000.0 * (time.process_time() - cpu)))
    clock, used = zip(*times[2:], strict=True)
    return statistics.median(clock), statistics.median(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = Recommender.from_pretrained(given.model)
    print(f"{len(model):,} items, threads: {given.threads}; milliseconds")
    print(f"{'ranked by':10} {'batch':>5} {'a request':>10} {'of CPU':>8} {'a batch':>9}")
    for by in model.ways:
        for batch in (1, 64):
            clock, cpu = milliseconds(model, batch, by, given.repeats)
            print(f"{by:10} {batch:5} {clock / batch:10.2f} {cpu / batch:8.2f} {clock:9.1f}")


if __name__ == "__main__":
    main()
