"""Do the codes of a tokenizer know the labels that people gave the items? Tables of docs/semantic-ids.md.

    python benchmarks/label_agreement.py beauty --data FOLDER              # FOLDER/amazon-beauty, or GHRQ_DATA
    python benchmarks/label_agreement.py wordnet --run runs/wordnet-best   # of: ghrq train wordnet/best
    python benchmarks/label_agreement.py wordnet --run RUN --codes 32 --seeds 5

Every kind of quantizer is fitted to the same vectors, with the same settings, once for each seed, without a look at the
labels; random codes are uniform. What was measured is kept in a file, so that a run that was stopped goes on.
"""

import argparse
import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import ghrq
from ghrq.data import wordnet
from ghrq.metrics.quality import quality
from ghrq.report import Column, Table
from ghrq.report.grid import Grid
from ghrq.report.results import StudyResults
from ghrq.system import files
from ghrq.training.checkpoint import newest_checkpoint
from ghrq.training.run import Run
from ghrq.training.study import Outcome

RESULTS = Path(__file__).parent / "results"
QUANTIZERS = ("ghrq", "naive", "euclidean")
WORDNET_DEPTHS = (2, 3, 4, 6)
# Of the tables in the documents. By default it is smaller, which changes the error but not the agreement: dial.py.
RADIUS = 0.5


class Items(NamedTuple):
    """Vectors and what is known of them."""

    title: str
    vectors: npt.NDArray[np.float32]
    labels: Any
    separator: str | None


def beauty(folder: Path) -> Items:
    """MPNet embeddings of products. Of several category paths an item's deepest counts, the first of equally deep."""
    with gzip.open(folder / "amazon-beauty" / "items.jsonl.gz", "rt", encoding="utf-8") as file:
        items = [json.loads(line) for line in file]
    paths = [" > ".join(max(item["categories"], key=len)) for item in items]
    vectors = np.load(folder / "amazon-beauty" / "mpnet-embeddings.f16.npy").astype(np.float32)
    return Items(f"Beauty: MPNet embeddings of {len(paths):,} products", vectors, paths, " > ")


def wordnet_nouns(folder: Path) -> Items:
    """The embedding that a run of the WordNet task learned, and each noun's ancestors at some depths below the root."""
    run = Run.open(folder)
    trained = newest_checkpoint(run.checkpoints("embedding"), print)
    if trained is None:
        raise SystemExit(f"{folder} has no trained embedding: ghrq train wordnet/best --out {folder}")
    recipe: Any = run.recipe
    where = "flat space" if recipe.quantizer.kind == "euclidean" else "the Poincaré ball"
    vectors = trained.model["encoder.table"].numpy()
    title = f"WordNet: {len(vectors):,} nouns embedded in {where} ({vectors.shape[1]} dimensions)"
    return Items(title, vectors, ancestors(wordnet.load(), WORDNET_DEPTHS), None)


def ancestors(nouns: wordnet.Nouns, depths: Sequence[int]) -> dict[str, npt.NDArray[np.float64]]:
    """The ancestor of each noun at so many edges below the root, itself included; NaN for nouns above.

    A noun with several parents is put below the first, in the order of WordNet.
    """
    every = np.arange(len(nouns.names))
    parent = every.copy()
    child, first = np.unique(nouns.edges[:, 0], return_index=True)
    parent[child] = nouns.edges[first, 1]
    line = [every]  # everybody's ancestor, one generation further up each; a root is its own
    while (line[-1] != parent[line[-1]]).any():
        line.append(parent[line[-1]])
    depth = sum((up != parent[up]).astype(np.int64) for up in line)
    table = np.stack(line)
    return {
        f"{wanted} below the root": np.where(
            depth >= wanted, table[np.maximum(depth - wanted, 0), every].astype(np.float64), np.nan
        )
        for wanted in depths
    }


# --- measuring -----------------------------------------------------------------------------------------------------


def measure(items: Items, kind: str, seed: int, codes: int, stages: int) -> dict[str, Any]:
    given: dict[str, Any] = {"labels": items.labels, "separator": items.separator, "seed": seed}
    if kind == "random":
        drawn = np.random.default_rng(seed).integers(codes, size=(len(items.vectors), stages))
        return quality(drawn, items.vectors, **given).to_dict()
    tokenizer = ghrq.Tokenizer(kind=kind, num_stages=stages, codebook_size=codes, radius=RADIUS, seed=seed)
    tokenizer.fit(items.vectors)
    return quality(tokenizer.encode(items.vectors), items.vectors, tokenizer, **given).to_dict()


def measured(name: str, load: Callable[[], Items], codes: int, stages: int, seeds: int, fresh: bool) -> dict[str, Any]:
    """``{kind: [a quality for each seed]}``, from the file as far as it is there."""
    path = RESULTS / f"label-agreement-{name}-{stages}x{codes}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() and not fresh else {}
    items = None
    for kind in (*QUANTIZERS, "random"):
        for seed in range(seeds):
            if f"{kind} {seed}" not in known:
                items = items or load()
                known |= {"title": items.title, f"{kind} {seed}": measure(items, kind, seed, codes, stages)}
                RESULTS.mkdir(exist_ok=True)
                files.write_json(path, known)
                print(f"measured {name}, {kind}, seed {seed}", flush=True)
    found = {kind: [known[f"{kind} {seed}"] for seed in range(seeds)] for kind in (*QUANTIZERS, "random")}
    return {"title": known["title"], "kinds": found}


# --- tables --------------------------------------------------------------------------------------------------------


def tables(title: str, found: dict[str, list[dict[str, Any]]]) -> list[Grid | None]:
    first = found["ghrq"][0]
    setting = f"{first['stages']} × {first['codebook_size'][0]} codes, {len(found['ghrq'])} seeds"
    return [
        agreement(f"{title}: adjusted mutual information ({setting})", found),
        raw(f"{title}: other measures ({setting})", found),
        rest(f"{title}: the rest ({setting})", found),
    ]


def outcomes(
    found: dict[str, list[dict[str, Any]]], part: Callable[[dict[str, Any]], dict[str, Any]] = dict, **axes: str
) -> list[Outcome]:
    """Every run as an outcome: ``part`` of its results, with ``axes`` besides its kind and its seed."""
    return [
        Outcome({"kind": kind, **axes, "seed": seed}, Path(), part(run))
        for kind, runs in found.items()
        for seed, run in enumerate(runs)
    ]


def informative(found: dict[str, list[dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    """The levels where not nearly all items have one label (what random groups then agree on)."""
    levels = found["ghrq"][0]["labels"]
    return {i: level for i, level in enumerate(levels) if level["shuffled"]["purity"][0] < 0.99}


def agreement(title: str, found: dict[str, list[dict[str, Any]]]) -> Grid | None:
    runs = []
    for i, level in informative(found).items():
        name = f"{level['level']}: {level['labels']:,} labels of {level['items']:,} items"
        runs += outcomes(found, lambda run, i=i: run["labels"][i], level=name)
    note = (
        "Depth m: items that share their first m codes are one group. "
        "0 is chance, 1 is perfect; ± is the spread over seeds."
    )
    columns = [Column("depth {}", "codes.ami.*", "z.3f", "highest")]
    return Table(title, columns, blocks=["level"], note=note).fill(StudyResults(runs))


def raw(title: str, found: dict[str, list[dict[str, Any]]]) -> Grid | None:
    """NMI, purity and ARI of the level in the middle at the first two depths."""
    levels = informative(found)
    middle = list(levels)[len(levels) // 2]
    runs: list[Outcome] = []
    measures = ("nmi", "purity", "ari")
    for m in range(2):
        runs += outcomes(
            found,
            lambda run, m=m: {
                of: {name: run["labels"][middle][of][name][m] for name in measures} for of in ("codes", "shuffled")
            },
            depth=f"depth {m + 1}",
        )
    columns = [
        column
        for title, name in (("NMI", "nmi"), ("purity", "purity"), ("ARI", "ari"))
        for column in (
            Column(title, f"codes.{name}", "z.3f"),
            Column("shuffled", f"shuffled.{name}", "z.3f", aside=True),
        )
    ]
    note = f"Of {levels[middle]['level']}. *Shuffled*: the same groups with shuffled labels."
    return Table(title, columns, blocks=["depth"], note=note).fill(StudyResults(runs))


def rest(title: str, found: dict[str, list[dict[str, Any]]]) -> Grid | None:
    depth = found["ghrq"][0]["stages"]
    columns = [
        Column("error / variance, depth 1", "reconstruction.relative.0", ".3f", "lowest"),
        Column(f"error / variance, depth {depth}", "reconstruction.relative.-1", ".3f", "lowest"),
        Column("distinct / items, depth 2", "uniqueness.1", ".3f"),
        Column(f"distinct / items, depth {depth}", f"uniqueness.{depth - 1}", ".3f"),
        Column("codes shared with neighbours", "neighbours.mean_length", ".3f", "highest"),
        Column("random pairs", "neighbours.mean_length_random", ".3f", aside=True),
        Column("recall of neighbours", "neighbours.recall", ".3f", "highest"),
        Column("random", "neighbours.recall_random", ".4f", aside=True),
    ]
    near = found["ghrq"][0]["neighbours"]
    note = (
        f"The {near['k']} nearest neighbours of {near['queries']:,} random items among all of them; *recall* is how "
        f"many of them are among the {near['k']} items with the most first codes in common."
    )
    return Table(title, columns, note=note).fill(StudyResults(outcomes(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", choices=("beauty", "wordnet"))
    parser.add_argument("--data", type=Path, default=os.environ.get("GHRQ_DATA"), help="folder of amazon-beauty/")
    parser.add_argument("--run", type=Path, help="run of the WordNet task")
    parser.add_argument("--codes", type=int, default=256, help="of each stage")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    given = parser.parse_args()
    if given.items == "beauty":
        if given.data is None:
            parser.error("the products are in a folder of yours: give --data FOLDER, or set GHRQ_DATA")
        name, load = "beauty", lambda: beauty(Path(given.data))
    else:
        if given.run is None:
            parser.error("the embedding is that of a run: ghrq train wordnet/best --out RUN, then --run RUN")
        name, load = f"wordnet-{given.run.name}", lambda: wordnet_nouns(given.run)
    result = measured(name, load, given.codes, given.stages, given.seeds, given.fresh)
    for table in filter(None, tables(result["title"], result["kinds"])):
        print(f"\n{table.markdown()}")


if __name__ == "__main__":
    main()
