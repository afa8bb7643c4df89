"""The audio task: see :class:`ghrq.tasks.audio.task.Audio`."""

from ghrq.tasks.audio.task import Audio

__all__ = ["Audio"]
