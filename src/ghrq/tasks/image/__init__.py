"""Pictures: tokenizer, prior, and what the codes know of a taxonomy."""

from ghrq.tasks.image.task import Image

__all__ = ["Image"]
