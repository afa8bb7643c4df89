"""The experiments: what a task has to offer, and where to find each by its name.

A recipe names its task: one of :data:`TASKS`, or your own as ``task = "mymodule:MyTask"``, found like any import or in
the current folder.
"""

import difflib
import importlib
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ghrq.system import processes
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress
from ghrq.training import recipe as recipes
from ghrq.training.run import Run

if TYPE_CHECKING:
    from ghrq.training.loop import Stage

Budget = Literal["demo", "cpu", "paper"]

TASKS = {"image": "ghrq.tasks.image:Image", "wordnet": "ghrq.tasks.wordnet:WordNet"}


class Task(ABC):
    """One experiment, from data to numbers: ``Task(recipe, run)`` makes the data ready, then come the stages.

    Random numbers are seeded before ``__init__``, before each stage is built and before ``evaluate``, each with a seed
    of its own, so that none of them depends on what was loaded and what was computed before.
    """

    Recipe: ClassVar[type[recipes.Recipe]]
    """What its recipes may say."""

    datasets: ClassVar[tuple[str, ...]] = ()
    """Names of the data sets that its tables are about, if there are several; the first is the default."""

    recipe: Any
    run: Run

    def __init__(self, recipe: Any, run: Run) -> None:
        self.recipe, self.run = recipe, run

    @classmethod  # noqa: B027, most recipes are checked well enough by their types
    def check(cls, recipe: Any) -> None:
        """Refuse a recipe that cannot come to an end, before its run has a folder: files it names, sizes that must fit.

        Raises a ``UserError`` that names the key.
        """

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
    def dataset(cls, given: str | None) -> str:
        """The data set that a user asked for, or the default."""
        if given is None:
            return cls.datasets[0] if cls.datasets else ""
        if given not in cls.datasets:
            near = difflib.get_close_matches(given.lower(), cls.datasets, n=1)
            known = f"known are {', '.join(cls.datasets)}" if cls.datasets else "there is but one: leave the option out"
            raise UserError(f"--dataset {given}: {f'did you mean {near[0]!r}?' if near else known}")
        return given

    @classmethod
    def cells(cls, budget: Budget, seeds: int, grid: bool, dataset: str) -> Mapping[str, recipes.Recipe]:
        """The runs behind the paper's tables: recipes by the folder's name of their run, for :meth:`reproduce`.

        ``dataset`` is one of :attr:`datasets`, or empty for a task that has but one.
        """
        raise UserError(f"{cls.__name__} has no tables to reproduce")

    @classmethod
    def report(cls, results: Mapping[str, dict[str, Any]], folder: Path) -> Path:
        """Write the tables from the results of :meth:`cells` into ``folder``; returns the file to open first.

        A cell that diverged has the single entry ``{"error": message}``.
        """
        raise UserError(f"{cls.__name__} has no tables to reproduce")

    @classmethod
    def reproduce(
        cls,
        budget: Budget,
        seeds: int,
        grid: bool,
        dataset: str,
        folder: Path,
        progress: Progress,
        jobs: int | None = None,
    ) -> Path:
        """Train and evaluate every cell, ``jobs`` at a time, then report. Cells that are done are not repeated."""
        from ghrq.training.jobs import how_many
        from ghrq.training.train import train_all

        cells = cls.cells(budget, seeds, grid, dataset)
        results = train_all(cells, folder, progress, how_many(jobs, len(cells)))
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
    context += f"task '{name}': "
    try:
        module = _import(module_name)
    except Exception as error:
        if name in TASKS or isinstance(error, UserError):  # the former is no mistake of the user's
            raise
        if isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.partition(".")[0]):
            raise UserError(f"{context}there is no module '{module_name}'") from error
        raise UserError(context + _what_failed(error)) from error
    if not hasattr(module, class_name):
        raise UserError(f"{context}{module_name} has no class '{class_name}'; {_nearest(module, class_name)}")
    found = getattr(module, class_name)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"{context}'{class_name}' of {module_name} is not a subclass of ghrq.training.task.Task")
    return found


def _nearest(module: ModuleType, class_name: str) -> str:
    tasks = [name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Task)]
    tasks = [name for name in tasks if getattr(module, name) is not Task]
    near = difflib.get_close_matches(class_name, tasks, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"its tasks are {', '.join(tasks)}" if tasks else "nor any other subclass of ghrq.training.task.Task"


def _what_failed(error: Exception) -> str:
    """Where in the user's own files an import failed, and how: ``toy.py line 1: No module named 'x'``."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: {error.msg}"
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<")
    ]
    # The first is the task's module; deeper than what lies beside it, in a library, the user is not at home.
    own = [f"{path.name} line {line}: " for path, line in frames if path.parent == frames[0][0].parent]
    kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
    return f"{own[-1] if own else ''}{kind}{error}"


def _import(module: str) -> Any:
    """Import a module, from the current folder if it is nowhere else: an installed command does not look there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    sys.path.append(str(Path.cwd()))
    return importlib.import_module(module)
