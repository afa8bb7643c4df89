"""What codes of WordNet's nouns keep of the hierarchy: recall of ancestors, collisions, who collides with whom."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghrq.data import glove
from ghrq.data.closure import Closure, Split
from ghrq.data.wordnet import Nouns
from ghrq.metrics import hierarchy
from ghrq.metrics.baselines import composition_recall, popularity_recall
from ghrq.metrics.ranking import beam_for, rank_pairs, recall, reconstruction_map
from ghrq.models.ancestors import AncestorTranslator
from ghrq.models.hierarchy import HierarchyEmbedding
from ghrq.system.progress import Progress

EXAMPLES = ("dog.n.01", "piano.n.01", "paris.n.01")

_FREQUENT = 200
_LONGEST_BEAM = 50
_NODES_AT_A_TIME = 1024
_LISTED = 12


def ancestor_recall(
    translator: AncestorTranslator, split: Split, k: int, sources: int, chance: np.random.Generator, progress: Progress
) -> dict[str, Any]:
    """Recall of the test ancestors among the first ``k`` predictions, and the recall of the baselines.

    ``sources``: how many random nodes of those with test ancestors are used; 0 for all.
    """
    asked = np.unique(split.test[:, 0])
    if 0 < sources < len(asked):
        asked = np.sort(chance.choice(asked, sources, replace=False))
    test = split.test[np.isin(split.test[:, 0], asked)]
    beam = beam_for(k, split.train, asked, _LONGEST_BEAM)
    found: dict[str, Any] = {"k": k, "sources": len(asked), "pairs": len(test), "beam": beam}
    for name, known in (("constrained", True), ("free", False)):
        parts = progress.track(torch.from_numpy(asked).split(_NODES_AT_A_TIME), label=f"beam search, {name}")
        lists = torch.cat([translator.ancestors(part, beam, known)[0] for part in parts])
        found[name] = recall(rank_pairs(lists, asked, test, split.train, translator.codes.cpu()), k)._asdict()
    return {
        "recall": found,
        "baselines": {
            "popularity": popularity_recall(split.train, test, k)._asdict(),
            "composition": composition_recall(split.train, test, translator.config.size, k)._asdict(),
        },
    }


def distinctness(codes: Tensor, closure: Closure) -> dict[str, Any]:
    """How many of ``codes (n, num_stages)`` differ: of all nouns, of those with the most descendants, by depth."""
    frequent = np.argsort(-np.bincount(closure.indices, minlength=closure.size), kind="stable")[:_FREQUENT]
    return {
        "distinct": hierarchy.uniqueness(codes.numpy()),
        "distinct_frequent": hierarchy.distinct_tuples(codes.numpy(), frequent),
        "distinct_by_depth": [len(codes[:, : i + 1].unique(dim=0)) for i in range(codes.shape[1])],
    }


def colliding_similarity(codes: Tensor, nouns: Nouns, glove_file: str = "") -> dict[str, Any]:
    """Similarity of nouns that share a tuple of ``codes (n, num_stages)``, and of random groups of the same sizes.

    ``glove_file``: vectors for the third similarity; if empty, that of :func:`ghrq.data.glove.load` where there is one.
    """
    tree = hierarchy.ancestry(nouns.hypernyms(), len(nouns.names), nouns.names)
    measures = {
        "path": lambda pairs: hierarchy.path_similarity(tree, pairs),
        "wu_palmer": lambda pairs: hierarchy.wu_palmer_similarity(tree, pairs),
    }
    try:
        vectors = glove.load(glove_file or None).of_lemmas(nouns.lemmas)
        measures["glove"] = lambda pairs: hierarchy.cosine_similarity(vectors, pairs)
    except FileNotFoundError:
        if glove_file:
            raise
    sizes = np.diff(hierarchy.colliding_groups(codes.numpy()).indptr)
    found: dict[str, Any] = {"groups": len(sizes), "largest": int(sizes.max(initial=1))}
    for name, measure in measures.items() if len(sizes) else ():
        similarity = hierarchy.group_similarity(codes.numpy(), measure)
        found[name] = {side: getattr(similarity, side)._asdict() for side in ("shared", "random")}
    return found


def embedding_scores(
    embedding: HierarchyEmbedding, closure: Closure, sources: int, chance: np.random.Generator
) -> dict[str, Any]:
    """How well the points reconstruct the hierarchy, on ``sources`` random nodes (0: all), and the codes' diagnosis."""
    below = np.flatnonzero(np.diff(closure.indptr))
    chosen = chance.choice(below, min(len(below), sources or len(below)), replace=False)
    curvature = embedding.quantizer.curvature
    found = reconstruction_map(embedding.points().cpu(), closure.indptr, closure.indices, chosen, curvature)
    return {
        "reconstruction": found._asdict(),
        "diagnosis": embedding.quantizer.diagnose(embedding.vectors()).to_dict(),
    }


def examples(codes: Tensor, nouns: Nouns) -> list[dict[str, Any]]:
    """For each of :data:`EXAMPLES`: its codes, the nouns that share the first one, two and three, and their number."""
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
                "sharing": [[nouns.names[i] for i in items[:_LISTED]] for items in sharing],
                "counts": [len(items) for items in sharing],
            }
        )
    return found
