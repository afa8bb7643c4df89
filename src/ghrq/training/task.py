"""What a task offers, and how to find one by its name.

A recipe names its task: a module of :mod:`ghrq.tasks` such as ``wordnet``, or your own class as
``task = "mymodule:MyTask"``, which is imported from the Python path or from the current folder.
"""

import difflib
import importlib
import pkgutil
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

if TYPE_CHECKING:
    from torch import nn

    from ghrq.training.loop import Stage
    from ghrq.training.recipe import Recipe
    from ghrq.training.run import Run
    from ghrq.training.study import Study

PACKAGE = "ghrq.tasks"


class Task(ABC):
    """One experiment, from data to numbers: ``Task(recipe, run)`` loads the data, then come the stages.

    Random numbers are seeded before ``__init__``, before each stage is built and before ``evaluate``, each with a seed
    of its own, so that none of them depends on what was loaded and computed before.
    """

    Recipe: ClassVar[type["Recipe"]]
    """The schema of its recipes."""

    study: ClassVar["Study | None"] = None
    """The runs that ``ghrq reproduce`` trains."""

    title: ClassVar[str] = ""
    """Of its report; by default the name of the class."""

    tables: ClassVar[Sequence[Any]] = ()
    """The tables of its report: declarations of :class:`ghrq.report.tables.Table`."""

    recipe: Any
    run: "Run"

    @classmethod
    def report(cls, study: Any) -> Any:
        """A :class:`ghrq.report.page.Page` on a ``ghrq.report.results.StudyResults``; ``None``: one of ``tables``."""
        return None

    def __init__(self, recipe: Any, run: "Run") -> None:
        self.recipe, self.run = recipe, run

    @classmethod  # noqa: B027, most recipes are checked well enough by their types
    def check(cls, recipe: Any) -> None:
        """Refuse a recipe that cannot be trained, before its run folder is made: missing files, sizes that do not fit.

        Raises a ``UserError`` that names the key.
        """

    @abstractmethod
    def stages(self) -> "Iterator[Stage]":
        """The stages in order. A generator: when it continues after a ``yield``, the model of that stage is trained.

        It is called for evaluation too, where every model is loaded and none is trained. So costly work that only
        training needs belongs into ``Stage.batches`` and ``Stage.begin``.
        """

    @abstractmethod
    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """The content of results.json. ``ghrq runs`` shows the first three numbers on its top level."""

    def models(self) -> "Mapping[str, nn.Module]":
        """The trained models that the run leaves behind in ``models/NAME``, by name; each has ``save_pretrained``."""
        return {}


def task_names() -> list[str]:
    """The names of the tasks that ship with ghrq."""
    return sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__))


def task_class(name: str, origin: str = "") -> type[Task]:
    """The class of a task by its name or as ``module:Class``. ``origin``: what to name in errors."""
    context = f"{origin}: " if origin else ""
    module_name, colon, class_name = name.partition(":")
    if not colon:
        return _shipped(name, context)
    context += f"task '{name}': "
    try:
        module = _import(module_name)
    except Exception as error:
        if isinstance(error, UserError):
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


def _shipped(name: str, context: str) -> type[Task]:
    names = task_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(names)}, or your own as 'module:Class'"
        raise UserError(f"{context}unknown task '{name}'; {hint}")
    module = importlib.import_module(f"{PACKAGE}.{name}")
    (found,) = (task for task in _tasks(module) if task.__module__.startswith(module.__name__))
    return found


def _tasks(module: ModuleType) -> list[type[Task]]:
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Task)]
    return [value for value in classes if value is not Task]


def _nearest(module: ModuleType, class_name: str) -> str:
    names = [task.__name__ for task in _tasks(module)]
    near = difflib.get_close_matches(class_name, names, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"its tasks are {', '.join(names)}" if names else "nor any other subclass of ghrq.training.task.Task"


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
