"""A run is a folder.

::

    recipe.toml        the recipe with all defaults filled in
    environment.json   versions, machine, command
    metrics.jsonl      losses and other metrics, a line every few steps
    checkpoints/       a folder for each stage, see :mod:`ghrq.training.checkpoint`
    models/            the trained models, for ``from_pretrained``
    status.json        the error, if the run failed or was interrupted
    results.json       the results; a run that has it is finished

Only the first process writes files. Except for metrics.jsonl, writes are atomic.
"""

import importlib.metadata
import json
import os
import platform
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import filelock

from ghrq import __version__
from ghrq.system import files, processes
from ghrq.system.errors import StoppedError, UserError, shell
from ghrq.system.signals import exit_code, termination_raises
from ghrq.training.recipe import Recipe, load_recipe
from ghrq.training.task import task_class

State = Literal["running", "finished", "failed", "interrupted", "damaged"]

# Keys of a recipe that do not change what comes out.
WITHOUT_EFFECT = {
    "name",
    *(f"training.{key}" for key in ("log_every", "checkpoint_every", "checkpoint_seconds", "trackers")),
}

_PACKAGES = ("torch", "numpy", "geoopt", "safetensors", "accelerate")


class Run:
    """The folder of one run. :meth:`create` makes a new one, :meth:`open` finds one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.go_on = _resume(folder)
        """How to go on with the run, for messages."""

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe it was begun with. If its task is not part of ghrq, :meth:`import_task` has to come before."""
        try:
            return load_recipe(self.folder / "recipe.toml", import_task=False)
        except UserError as error:
            version = (self.environment.get("versions") or {}).get("ghrq", "an unknown version")
            if version == __version__:
                raise
            raise UserError(
                f"{error}\nThe run was made by ghrq {version}, this is {__version__}: correct its recipe.toml, "
                "use that version, or train again into another folder"
            ) from None

    @property
    def task(self) -> str:
        """The name of its task, read without importing the task: the run may be somebody else's."""
        path = self.folder / "recipe.toml"
        try:
            task = files.parse_toml(files.read_text(path)).get("task")
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', error)}): restore it") from error
        if not isinstance(task, str):
            raise UserError(f"{path} cannot be read (the key 'task' is missing or no text): restore it")
        return task

    def import_task(self) -> None:
        """Run the code of its task, if that is not part of ghrq; for commands by which the user asks for that."""
        if ":" in self.task:
            task_class(self.task, str(self.folder / "recipe.toml"))

    @classmethod
    def create(cls, folder: str | Path, recipe: Recipe) -> "Run":
        """Make a folder for a new run; an existing folder must be empty."""
        folder = Path(folder)
        if processes.is_main():
            check_free(folder)
            # Atomic: a kill on the way leaves no folder that looks like a run.
            try:
                with files.draft(folder, replace=False) as draft:  # another process may make its run here
                    draft.mkdir(parents=True)
                    files.write(draft / "recipe.toml", recipe.toml())
                    files.write_json(draft / "environment.json", environment(recipe))
            except OSError as error:
                raise UserError(
                    f"cannot make the run folder {folder}: {error.strerror}; choose another with --out"
                ) from error
        run = cls(folder)
        run.recipe = recipe
        return run

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """Find a run by its folder."""
        folder = Path(folder)
        if not (folder / "recipe.toml").is_file():
            raise UserError(f"{folder} is not a run: it has no recipe.toml. 'ghrq runs' lists the runs there are")
        return cls(folder)

    @classmethod
    def open_or_create(cls, folder: str | Path, recipe: Recipe) -> "Run":
        """The run in ``folder``, which must have the same recipe, or a new one if there is none.

        ``axes`` may differ, as they do not change the training: runs of version 0.1 have none. They are updated.
        """
        if not (Path(folder) / "recipe.toml").is_file():
            return cls.create(folder, recipe)
        run = cls.open(folder)
        old, new = (each.model_copy(update={"axes": {}}).flat() for each in (run.recipe, recipe))
        different = sorted(key for key in {**old, **new} if old.get(key) != new.get(key))
        if different:
            raise UserError(
                f"{folder} is a run of another recipe: {', '.join(different)} differ. "
                f"Choose another folder, or go on with the recipe it has: {run.go_on}"
            )
        if run.recipe.axes != recipe.axes:
            files.write(run.folder / "recipe.toml", recipe.toml())
            run.recipe = recipe
        return run

    def check_unedited(self) -> None:
        """Raise an error if its recipe.toml has other values than the run was begun with.

        Its first steps would have had those, and the rest others. Runs of earlier versions did not note them.
        """
        begun, now = self.environment.get("recipe"), deciding(self.recipe)
        if not isinstance(begun, dict):
            return
        different = [key for key in sorted({**begun, **now}) if begun.get(key) != now.get(key)]
        if different:
            before = ", ".join(f"{key} was {begun.get(key)}" for key in different)
            raise UserError(
                f"{self.folder / 'recipe.toml'} was changed since the run was begun: {before}. Restore it, or train "
                "the new recipe into another folder"
            )

    @property
    def train_again(self) -> str:
        """How to train a model that is missing, for messages."""
        results = self.folder / "results.json"
        first = f"remove {results}, which says that all is done, then " if results.exists() else ""
        return f"{first}{_resume(self.folder)}"

    # --- metrics -------------------------------------------------------------------------------------------

    @property
    def _metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        if processes.is_main():
            with self._metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(files.plain(line), ensure_ascii=False) + "\n")

    def sync_metrics(self) -> None:
        """Flush the lines to the disk, before a checkpoint relies on them."""
        if processes.is_main() and self._metrics.exists():
            with self._metrics.open("a") as file:
                os.fsync(file.fileno())

    def metrics(self, stage: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, of one stage or of all. An incomplete line, left by a kill, is skipped."""
        if not self._metrics.is_file():
            return []
        lines = []
        for text in self._metrics.read_text("utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                lines.append(files.parse_json(text))
        return [line for line in lines if _is_metrics(line) and stage in (None, line.get("stage"))]

    def cut_metrics(self, stage: str, step: int) -> None:
        """Remove what ``stage`` logged after ``step``: these steps are about to be repeated."""
        if self._metrics.exists() and not self._metrics.is_file():  # a pipe would block, once something is logged
            raise UserError(f"{self._metrics} is not a regular file: remove it")
        if not processes.is_main() or not self._metrics.is_file():
            return
        kept = [line for line in self.metrics() if line.get("stage") != stage or line.get("step", 0) <= step]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
        if text != self._metrics.read_text("utf-8", errors="replace"):
            files.write(self._metrics, text)

    # --- the rest ------------------------------------------------------------------------------------------

    def checkpoints(self, stage: str) -> Path:
        """The folder of a stage's checkpoints."""
        return self.folder / "checkpoints" / stage

    @property
    def results(self) -> dict[str, Any] | None:
        """The content of results.json, or ``None`` if the run is not finished."""
        path = self.folder / "results.json"
        return files.read_json(path, f"to replace it: {shell('ghrq', 'eval', self.folder)}") if path.exists() else None

    @property
    def environment(self) -> dict[str, Any]:
        """The content of environment.json, empty if there is none."""
        path, remedy = self.folder / "environment.json", "remove it, it is not needed to go on"
        found = files.read_json(path, remedy) if path.exists() else {}
        if not isinstance(found.get("versions", {}), dict):
            raise UserError(f"{path} is damaged, its versions are no table: {remedy}")
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The error of a run that failed or was interrupted; otherwise empty."""
        path, remedy = self.folder / "status.json", f"to go on removes it: {self.go_on}"
        found = files.read_json(path, remedy) if path.exists() else {}
        if found and found.get("state") not in ("failed", "interrupted"):
            raise UserError(f"{path} is damaged, its state is not 'failed' or 'interrupted': {remedy}")
        return found

    def write_results(self, results: dict[str, Any]) -> None:
        """Write results.json: the run is finished."""
        if processes.is_main():
            files.write_json(self.folder / "results.json", results)
            (self.folder / "status.json").unlink(missing_ok=True)

    @contextmanager
    def working(self, *, training: bool = True) -> Iterator[None]:
        """Lock the run against other processes; an error while ``training`` is recorded in status.json."""
        if not processes.is_main():
            yield
            return
        status = self.folder / "status.json"
        try:
            lock = lock_of(self.folder)
            lock.acquire(timeout=1)
        except filelock.Timeout:
            raise UserError(f"another process is working on {self.folder}: wait for it, or end it first") from None
        except OSError as error:
            raise UserError(f"cannot write to the run folder {self.folder}: {error.strerror}") from error
        try:
            if training:
                status.unlink(missing_ok=True)
            with termination_raises():
                yield
        except KeyboardInterrupt as error:
            if training:
                self._record(status, "interrupted", error)
            raise StoppedError(f"stopped. To go on: {self.go_on}", exit_code=exit_code(error)) from None
        except Exception as error:
            if training:
                self._record(status, "interrupted" if getattr(error, "exit_code", 0) > 128 else "failed", error)
            if isinstance(error, OSError):
                again = shell("ghrq", "eval", self.folder)
                what, remedy = ("go on", self.go_on) if training else ("be evaluated", again)
                raise StoppedError(
                    f"the run in {self.folder} cannot {what}: {error}. What was saved is intact; "
                    f"once the cause is gone: {remedy}"
                ) from error
            raise
        finally:
            lock.release()

    @staticmethod
    def _record(status: Path, state: State, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        with suppress(OSError):  # the disk may be full
            files.write_json(status, {"state": state, "message": str(error), "traceback": text})


def run_folders(root: str | Path) -> Iterator[Path]:
    """The folder of every run in ``root`` and the folders in it."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if "recipe.toml" in names and ("environment.json" in names or "checkpoints" in inner):
            inner.clear()
            yield Path(folder)


def free_folder(root: Path, name: str) -> Path:
    """The first of ``root/name``, ``root/name-2``, … that does not exist."""
    folder, count = root / name, 1
    while folder.exists():
        count += 1
        folder = root / f"{name}-{count}"
    return folder


def step_folders(folder: Path) -> list[Path]:
    """The folders ``step-<number>`` of a stage's checkpoints, the newest first."""
    found = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=step_number, reverse=True)


def step_number(path: Path) -> int:
    """The step of a folder ``step-<number>``."""
    return int(path.name.removeprefix("step-"))


def deciding(recipe: Recipe) -> dict[str, str]:
    """The values of a recipe that decide the results, as texts."""
    flat = recipe.model_copy(update={"axes": {}}).flat()
    return {key: str(value) for key, value in flat.items() if key not in WITHOUT_EFFECT}


def environment(recipe: Recipe) -> dict[str, Any]:
    """What the results depend on: versions, machine, and the recipe as it was when the run was begun."""
    import torch

    program = Path(sys.argv[0]).name
    return {
        "versions": {"python": platform.python_version(), "ghrq": __version__}
        | {name: _version(name) for name in _PACKAGES},
        "seed": recipe.seed,
        "recipe": deciding(recipe),
        "command": shlex.join([program if program != "__main__.py" else "ghrq", *sys.argv[1:]]),
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "processes": processes.world_size(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def check_free(folder: Path) -> None:
    """Raise an error unless ``folder`` is missing or empty."""
    if (folder / "recipe.toml").is_file():
        raise UserError(f"{folder} is a run already: choose another folder, or go on: {_resume(folder)}")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, a run needs a folder: choose another with --out")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"the folder {folder} is not empty: choose another with --out")


def _resume(folder: Path) -> str:
    return shell("ghrq", "train", "--resume", folder)


def _is_metrics(line: Any) -> bool:
    """Whether a line of metrics.jsonl is a table whose stage and step, if it has them, are of the right types."""
    return isinstance(line, dict) and isinstance(line.get("stage", ""), str) and isinstance(line.get("step", 0), int)


def lock_of(folder: Path) -> filelock.BaseFileLock:
    """The lock of a run, which the process that works on it holds."""
    return filelock.FileLock(folder / ".lock")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
