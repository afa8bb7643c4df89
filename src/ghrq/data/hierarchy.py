"""WordNet's nouns with their ancestors, split into training and test pairs."""

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from ghrq.data import wordnet
from ghrq.data.closure import Closure, Split, split_closure, split_direct, wordnet_closure


class NounHierarchy(NamedTuple):
    """What :func:`load_hierarchy` gives."""

    nouns: wordnet.Nouns
    closure: Closure
    """All pairs of a noun and an ancestor."""
    split: Split


@lru_cache(maxsize=2)
def load_hierarchy(
    source: str = "",
    instances: bool = True,
    split: Literal["closure", "direct"] = "closure",
    test_fraction: float = 0.15,
    seed: int = 42,
) -> NounHierarchy:
    """Load the nouns and split their pairs. The last two are kept in memory: the runs of one table share them.

    Args:
        source: a Princeton ``dict`` folder, or a file of :func:`ghrq.data.wordnet.save`; empty for the shipped nouns.
        instances: whether instance hypernyms count.
        split: whether test pairs are a share of all pairs, or of the direct hypernyms.
        test_fraction: share of the test pairs.
        seed: of the split.

    """
    nouns = wordnet.from_dict(source) if Path(source or " ").is_dir() else wordnet.load(source or None)
    above = wordnet_closure(nouns, instances)
    if split == "closure":
        return NounHierarchy(nouns, above, split_closure(above, test_fraction, seed))
    return NounHierarchy(nouns, above, split_direct(nouns.hypernyms(instances), above, test_fraction, seed))
