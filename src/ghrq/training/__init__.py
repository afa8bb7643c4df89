"""Everything that tasks share: recipes, studies, run folders, the training loop, checkpoints and resume, trackers.

The names of ``__all__`` are what a task needs. They are imported on first use, so that reading recipes and listing runs
does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghrq.system.progress import Progress
    from ghrq.system.settings import Section
    from ghrq.training.loop import Stage
    from ghrq.training.recipe import Recipe, load_recipe
    from ghrq.training.schedule import cosine_decay, linear_decay
    from ghrq.training.study import Axis, Outcome, Part, Study, key_axis
    from ghrq.training.task import Task

__all__ = ["Axis", "Outcome", "Part", "Progress", "Recipe", "Section", "Stage", "Study", "Task"]
__all__ += ["cosine_decay", "key_axis", "linear_decay", "load_recipe"]

_MODULES = ("study", "task", "recipe", "schedule", "loop")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (importlib.import_module(f"{__name__}.{module}") for module in _MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
