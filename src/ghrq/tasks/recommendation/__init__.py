"""The recommendation task: see :class:`ghrq.tasks.recommendation.task.Recommendation`."""

from ghrq.tasks.recommendation.task import Recommendation

__all__ = ["Recommendation"]
