"""How much of the hierarchy the codes still know, in the numbers that the tables and the report show."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghrq.data import glove
from ghrq.data.closure import Closure, Edges, Ints, Split
from ghrq.data.wordnet import Nouns
from ghrq.ids import PrefixTrie
from ghrq.metrics import hierarchy
from ghrq.metrics.baselines import composition_recall, popularity_recall
from ghrq.metrics.ranking import beam_for, rank_pairs, recall, reconstruction_map
from ghrq.nets.beam_search import beam_search
from ghrq.nets.seq2seq import TupleTranslator
from ghrq.system.progress import Progress
from ghrq.tasks.wordnet.models import HierarchyEmbedding
from ghrq.tasks.wordnet.recipe import Evaluation, WordNetRecipe

FREQUENT = 200
LONGEST_BEAM = 50
SOURCES_AT_A_TIME = 1024
EXAMPLES = ("dog.n.01", "piano.n.01", "paris.n.01")
LISTED = 12


def evaluate(
    recipe: WordNetRecipe,
    nouns: Nouns,
    closure: Closure,
    split: Split,
    embedding: HierarchyEmbedding | None,
    translator: TupleTranslator,
    quantized: Tensor,
    codes: Tensor,
    progress: Progress,
) -> dict[str, Any]:
    """Everything about the quantizer's codes ``quantized (n, N)`` and the models behind and upon them, ready for JSON.

    ``codes (n, N)`` are those that the seq2seq knows, the same unless collisions were settled.
    """
    settings, chance = recipe.evaluation, np.random.default_rng(recipe.seed)
    sources, test = _asked(settings, split, chance)
    recalls = _recalls(settings, sources, test, split.train, translator, codes, progress)
    results: dict[str, Any] = {
        "entity_recall": recalls["constrained"]["entity_filtered"],
        "distinct": hierarchy.uniqueness(quantized.numpy()),
        "distinct_frequent": hierarchy.distinct_tuples(quantized.numpy(), _frequent(closure)),
        "recall": recalls,
        "baselines": {
            "popularity": popularity_recall(split.train, test, settings.k)._asdict(),
            "composition": composition_recall(split.train, test, closure.size, settings.k)._asdict(),
        },
        "distinct_by_depth": [len(quantized[:, : i + 1].unique(dim=0)) for i in range(quantized.shape[1])],
        "similarity": _similarities(settings, nouns, quantized),
        "examples": _examples(nouns, quantized),
    }
    if embedding is not None:
        results |= _of_embedding(settings, closure, embedding, chance)
    return results


def _frequent(closure: Closure) -> np.ndarray:
    """The synsets with the most descendants."""
    return np.argsort(-np.bincount(closure.indices, minlength=closure.size), kind="stable")[:FREQUENT]


def _asked(settings: Evaluation, split: Split, chance: np.random.Generator) -> tuple[Ints, Edges]:
    """The synsets that are asked for their ancestors, and the held-out pairs ``(M, 2)`` that are theirs."""
    sources = np.unique(split.test[:, 0])
    if 0 < settings.sources < len(sources):
        sources = np.sort(chance.choice(sources, settings.sources, replace=False))
    return sources, split.test[np.isin(split.test[:, 0], sources)]


def _recalls(
    settings: Evaluation,
    sources: Ints,
    test: Edges,
    train: Edges,
    translator: TupleTranslator,
    codes: Tensor,
    progress: Progress,
) -> dict[str, Any]:
    beam = beam_for(settings.k, train, sources, LONGEST_BEAM)
    device = next(translator.parameters()).device
    trie = PrefixTrie(codes, translator.codebook_size).to(device)
    found: dict[str, Any] = {"k": settings.k, "sources": len(sources), "pairs": len(test), "beam": beam}
    for name, constraint in (("constrained", trie), ("free", None)):
        asked = codes[torch.from_numpy(sources)].to(device)
        lists = [
            beam_search(translator, part, beam, constraint)[0].cpu()
            for part in progress.track(asked.split(SOURCES_AT_A_TIME), label=f"beam search, {name}")
        ]
        ranks = rank_pairs(torch.cat(lists), sources, test, train, codes)
        found[name] = recall(ranks, settings.k)._asdict()
    return found


def _similarities(settings: Evaluation, nouns: Nouns, codes: Tensor) -> dict[str, Any]:
    """Of synsets that share a tuple, each beside groups of the same sizes drawn at random."""
    tree = hierarchy.ancestry(nouns.hypernyms(), len(nouns.names), nouns.names)
    measures = {
        "path": lambda pairs: hierarchy.path_similarity(tree, pairs),
        "wu_palmer": lambda pairs: hierarchy.wu_palmer_similarity(tree, pairs),
    }
    try:
        vectors = glove.load(settings.glove or None).of_lemmas(nouns.lemmas)
        measures["glove"] = lambda pairs: hierarchy.cosine_similarity(vectors, pairs)
    except FileNotFoundError:
        if settings.glove:
            raise
    groups = hierarchy.colliding_groups(codes.numpy())
    sizes = np.diff(groups.indptr)
    found: dict[str, Any] = {"groups": len(sizes), "largest": int(sizes.max(initial=1))}
    for name, measure in measures.items() if len(sizes) else ():
        similarity = hierarchy.group_similarity(codes.numpy(), measure)
        found[name] = {side: getattr(similarity, side)._asdict() for side in ("shared", "random")}
    return found


def _of_embedding(
    settings: Evaluation, closure: Closure, embedding: HierarchyEmbedding, chance: np.random.Generator
) -> dict[str, Any]:
    below = np.flatnonzero(np.diff(closure.indptr))
    sources = chance.choice(below, min(len(below), settings.map_sources or len(below)), replace=False)
    points, curvature = embedding.points().cpu(), embedding.quantizer.curvature
    reconstruction = reconstruction_map(points, closure.indptr, closure.indices, sources, curvature)
    return {
        "reconstruction": reconstruction._asdict(),
        "diagnosis": embedding.quantizer.diagnose(embedding.encoder().detach()).to_dict(),
    }


def _examples(nouns: Nouns, codes: Tensor) -> list[dict[str, Any]]:
    """For a few synsets: their tuple, and who shares its first one, two and three codes, and how many they are."""
    index = {name: i for i, name in enumerate(nouns.names)}
    found = []
    for name in EXAMPLES:
        if name not in index:
            continue
        code = codes[index[name]]
        shared = (codes == code).long().cumprod(1).sum(1)
        sharing = [(shared >= depth).nonzero().flatten().tolist() for depth in range(1, min(4, codes.shape[1] + 1))]
        found.append(
            {
                "name": name,
                "gloss": nouns.glosses[index[name]],
                "codes": code.tolist(),
                "sharing": [[nouns.names[i] for i in items[:LISTED]] for items in sharing],
                "counts": [len(items) for items in sharing],
            }
        )
    return found
