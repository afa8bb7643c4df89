"""The WordNet task: see :class:`ghrq.tasks.wordnet.task.WordNet`."""

from ghrq.tasks.wordnet.task import WordNet

__all__ = ["WordNet"]
