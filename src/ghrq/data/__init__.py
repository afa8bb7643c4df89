"""Readers of data sets and tables in their published formats, and what is computed from them without a model."""

from ghrq.data.shipped import wordnet_ids

__all__ = ["wordnet_ids"]
