"""The image task: see :class:`ghrq.tasks.image.task.Image`."""

from ghrq.tasks.image.task import Image

__all__ = ["Image"]
