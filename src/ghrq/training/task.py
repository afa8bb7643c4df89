"""What a task offers, and how to find one by its name.

A recipe names its task: a module of :mod:`ghrq.tasks` such as ``wordnet``, or your own class as
``task = "mymodule:MyTask"``, which is imported from the Python path or from the current folder. Importing runs code:
it happens only where the user asks for this task (``ghrq train``, ``reproduce TASK``, ``eval --task``), never because a
run folder, which may be somebody else's, names it.
"""

import hashlib
import importlib
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from ghrq.system import files, processes
from ghrq.system.errors import UserError, did_you_mean, user_frame
from ghrq.system.progress import Progress

if TYPE_CHECKING:
    from torch import nn

    from ghrq.training.loop import Stage
    from ghrq.training.recipe import Recipe
    from ghrq.training.run import Run
    from ghrq.training.study import Study

PACKAGE = "ghrq.tasks"


class Task(ABC):
    """One experiment, from data to results: ``Task(recipe, run)`` loads the data, ``stages`` trains the models.

    Random numbers are seeded before ``__init__``, before each stage is built and before ``evaluate``, so that none of
    them depends on what was drawn before.
    """

    Recipe: ClassVar[type["Recipe"]]
    """The schema of its recipes."""

    study: ClassVar["Study | None"] = None
    """The runs that ``ghrq reproduce`` trains."""

    title: ClassVar[str] = ""
    """Of its report; by default the name of the class."""

    tables: ClassVar[Sequence[Any]] = ()
    """The tables of its report: declarations of :class:`ghrq.report.tables.Table`."""

    diagnosis: ClassVar[str] = "quantizer"
    """Where in its results the measurements of ``ResidualQuantizer.diagnose`` are, if it has some."""

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
        """Raise a ``UserError`` if the recipe cannot be trained: missing files, sizes that do not fit.

        It is called before the run folder is made. The message names the key.
        """

    def check_same_data(
        self, parts: Iterable[str | bytes | memoryview], called: str, noted: str = "data.sha256"
    ) -> None:
        """Raise an error if the data are not those that the run was begun with. ``__init__`` of a task calls it.

        A model would be tested with what it was trained on, or its numbers would mean other items. ``parts`` is what
        decides the run, in order. The first call writes its SHA-256 to the file ``noted`` of the run; later ones
        compare. ``called`` are the data in the message: "the pictures in FOLDER".
        """
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part.encode() if isinstance(part, str) else part)
        path = self.run.folder / noted
        if not path.exists():
            if processes.is_main():
                files.write(path, digest.hexdigest())
        elif files.read_text(path) != digest.hexdigest():
            raise UserError(
                f"{called} are not those that the run in {self.run.folder} was begun with: restore them, or begin a "
                "new run"
            )

    @abstractmethod
    def stages(self) -> "Iterator[Stage]":
        """The stages in order. A generator: after each ``yield`` the model of that stage is trained.

        For an evaluation alone the models are loaded instead of trained. So costly work that only training needs
        belongs into ``Stage.batches`` and ``Stage.begin``.
        """

    @abstractmethod
    def evaluate(self, progress: Progress) -> dict[str, Any]:
        """The content of results.json. ``ghrq runs`` shows its first three numbers."""

    def models(self) -> "Mapping[str, nn.Module]":
        """The trained models by name, each with ``save_pretrained``; the run saves them in ``models/NAME``."""
        return {}


def task_names() -> list[str]:
    """The names of the tasks that ship with ghrq: the modules of its package, except private ones."""
    names = (module.name for module in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__))
    return sorted(name for name in names if not name.startswith("_"))


def task_class(name: str, origin: str = "", import_module: bool = True) -> type[Task]:
    """The class of a task by its name or as ``module:Class``; errors begin with ``origin``.

    Without ``import_module``, ``module`` must have been imported before: the name may come from somebody else's file.
    """
    context = f"{origin}: " if origin else ""
    module_name, colon, class_name = name.partition(":")
    if not colon:
        return _shipped(name, context)
    context += f"task '{name}': "
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise UserError(f"{context}expected module:Class, such as mytask:MyTask for the class MyTask of mytask.py")
    if not import_module and module_name not in sys.modules:
        raise UserError(
            f"{context}it is not part of ghrq, so its code is run only on request: check that you trust {module_name}, "
            f"then name it ('ghrq eval RUN --task {name}'), or import {module_name} first"
        )
    try:
        module = _import(module_name)
    except Exception as error:
        if isinstance(error, UserError):
            raise
        if isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.partition(".")[0]):
            raise UserError(
                f"{context}there is no module '{module_name}': call ghrq in the folder that has it"
            ) from error
        raise UserError(context + _what_failed(error)) from error
    if not hasattr(module, class_name):
        names = [task.__name__ for task in _tasks(module)]
        tasks = f"its tasks are {', '.join(names)}" if names else "nor any other subclass of ghrq.training.task.Task"
        raise UserError(f"{context}{module_name} has no class '{class_name}'; {did_you_mean(class_name, names, tasks)}")
    found = getattr(module, class_name)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"{context}'{class_name}' of {module_name} is not a subclass of ghrq.training.task.Task")
    missing = sorted(found.__abstractmethods__) + ([] if hasattr(found, "Recipe") else ["Recipe"])
    if missing:
        raise UserError(f"{context}the class {class_name} does not define {', '.join(missing)}")
    return found


def _shipped(name: str, context: str) -> type[Task]:
    names = task_names()
    if name not in names:
        hint = did_you_mean(name, names, f"known are {', '.join(names)}, or your own as 'module:Class'")
        raise UserError(f"{context}unknown task '{name}'; {hint}")
    module = importlib.import_module(f"{PACKAGE}.{name}")
    found = [task for task in _tasks(module) if task.__module__.startswith(module.__name__)]
    if len(found) != 1:
        raise TypeError(f"{module.__name__} must define one subclass of Task, got {[task.__name__ for task in found]}")
    return found[0]


def _tasks(module: ModuleType) -> list[type[Task]]:
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Task)]
    return [value for value in classes if value is not Task]


def _what_failed(error: Exception) -> str:
    """Where in the user's own files an import failed, and how: ``toy.py line 1: No module named 'x'``."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: {error.msg}"
    kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
    return f"{user_frame(error)}{kind}{error}"


def _import(module: str) -> Any:
    """Import a module; an installed command does not look into the current folder by itself."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
    sys.path.append(str(Path.cwd()))
    return importlib.import_module(module)
