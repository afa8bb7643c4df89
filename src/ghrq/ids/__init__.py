"""Semantic IDs: code tuples as identifiers of items."""

from ghrq.ids.catalogue import Catalogue, Neighbours
from ghrq.ids.catalogue_file import CatalogueFile
from ghrq.ids.collisions import Policy, resolve, resolve_append, resolve_reassign
from ghrq.ids.logits import TrieLogitsProcessor
from ghrq.ids.trie import Items, PrefixTrie
from ghrq.ids.vocabulary import Vocabulary

__all__ = [
    "Catalogue",
    "CatalogueFile",
    "Items",
    "Neighbours",
    "Policy",
    "PrefixTrie",
    "TrieLogitsProcessor",
    "Vocabulary",
    "resolve",
    "resolve_append",
    "resolve_reassign",
]
