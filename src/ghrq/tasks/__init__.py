"""The experiments: what a task has to offer, and where to find each by its name.

A recipe names its task: one of :data:`TASKS`, or your own as ``task = "mymodule:MyTask"``, found like any import or in
the current folder.
"""

import difflib
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ghrq.errors import UserError
from ghrq.training import processes
from ghrq.training import recipe as recipes
from ghrq.training.progress import Progress
from ghrq.training.run import Run

if TYPE_CHECKING:
    from ghrq.training.loop import Stage

Budget = Literal["demo", "cpu", "paper"]

TASKS = {"wordnet": "ghrq.tasks.wordnet:WordNet"}


class Task(ABC):
    """One experiment, from data to numbers: ``Task(recipe, run)`` makes the data ready, then come the stages.

    Random numbers are seeded before ``__init__``, before each stage is built and before ``evaluate``, each with a seed
    of its own, so that none of them depends on what was loaded and what was computed before.
    """

    Recipe: ClassVar[type[recipes.Recipe]]
    """What its recipes may say."""

    recipe: Any
    run: Run

    def __init__(self, recipe: Any, run: Run) -> None:
        self.recipe, self.run = recipe, run

    @abstractmethod
    def stages(self) -> "Iterator[Stage]":
        """The stages in order. A generator: when it goes on after a ``yield``, that stage's model is trained.

        Called for evaluation too, where every model is loaded and none is trained; so what is costly and needed for
        training alone belongs into ``Stage.batches`` and ``Stage.begin``.
        """

    @abstractmethod
    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """What results.json will hold. ``ghrq runs`` shows the first three numbers on its top level."""

    @classmethod
    def cells(cls, budget: Budget, seeds: int, grid: bool) -> Mapping[str, recipes.Recipe]:
        """The runs behind the paper's tables: recipes by the folder's name of their run, for :meth:`reproduce`."""
        raise UserError(f"{cls.__name__} has no tables to reproduce")

    @classmethod
    def report(cls, results: Mapping[str, dict[str, Any]], folder: Path) -> Path:
        """Write the tables from the results of :meth:`cells` into ``folder``; returns the file to open first.

        A cell that diverged has the single entry ``{"error": message}``.
        """
        raise UserError(f"{cls.__name__} has no tables to reproduce")

    @classmethod
    def reproduce(cls, budget: Budget, seeds: int, grid: bool, folder: Path, progress: Progress) -> Path:
        """Train and evaluate every cell, then report. Cells that are done are not repeated."""
        from ghrq.training.train import train_all

        results = train_all(cls.cells(budget, seeds, grid), folder, progress)
        report: Path = processes.from_main(cls.report(results, folder) if processes.is_main() else None)
        return report


def task_class(name: str, origin: str = "") -> type[Task]:
    """The class of a task by its name or as ``module:Class``. ``origin``: what to name in errors."""
    where = TASKS.get(name, name)
    context = f"{origin}: " if origin else ""
    module_name, colon, class_name = where.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(TASKS)}, or your own as 'module:Class'"
        raise UserError(f"{context}unknown task '{name}'; {hint}")
    try:
        found = getattr(_import(module_name), class_name, None)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise
        raise UserError(f"{context}task '{name}': there is no module '{module_name}'") from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"{context}task '{name}': '{class_name}' of {module_name} is not a subclass of ghrq.tasks.Task")
    return found


def _import(module: str) -> Any:
    """Import a module, from the current folder if it is nowhere else: an installed command does not look there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    sys.path.append(str(Path.cwd()))
    return importlib.import_module(module)
