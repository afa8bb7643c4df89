"""The runs there are, a line each: state, newest checkpoint, first results."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import filelock

from ghrq.training.run import Run, State, lock_of, run_folders, step_folders, step_number


class RunSummary(NamedTuple):
    """A line of ``ghrq runs``."""

    folder: Path
    task: str
    state: State
    stage: str
    """The stage of the newest checkpoint, from which it goes on, or ``""``."""
    step: int
    """The step of that checkpoint."""
    headline: dict[str, float]
    """The first three numbers on the top level of results.json."""
    damaged: Mapping[str, str] = MappingProxyType({})
    """Its files that cannot be read, by name, with the reason and the remedy."""


def runs(root: str | Path) -> list[RunSummary]:
    """Every run in ``root`` and the folders in it."""
    return [_summary(folder) for folder in run_folders(root)]


def _summary(folder: Path) -> RunSummary:
    run, damaged = Run(folder), dict[str, str]()
    found: dict[str, dict[str, Any] | None] = {}
    for name, read in (
        ("recipe.toml", lambda: {"task": run.task}),
        ("environment.json", lambda: run.environment),
        ("status.json", lambda: run.status),
        ("results.json", lambda: run.results),
    ):
        try:
            found[name] = read()
        except (ValueError, OSError) as error:
            damaged[name] = str(error).removeprefix(f"{folder}{os.sep}")
    results, status = found.get("results.json"), found.get("status.json") or {}
    state: State = "finished" if results is not None else status.get("state", "interrupted")
    if results is None and _is_locked(folder):
        state = "running"
    elif damaged:
        state = "damaged"
    stage, step = _newest_checkpoint(folder)
    task = (found.get("recipe.toml") or {}).get("task", "")
    numbers = {key: value for key, value in (results or {}).items() if isinstance(value, int | float)}
    return RunSummary(folder, task, state, stage, step, dict(list(numbers.items())[:3]), damaged)


def _newest_checkpoint(folder: Path) -> tuple[str, int]:
    """Stage and step of the checkpoint written last, by time: only the task knows the order of its stages."""
    found = []
    for stage in folder.glob("checkpoints/*"):
        for path in step_folders(stage)[:1]:
            with suppress(OSError):  # it has just been removed
                found.append((path.stat().st_mtime_ns, stage.name, step_number(path)))
    return max(found)[1:] if found else ("", 0)


def _is_locked(folder: Path) -> bool:
    try:
        with lock_of(folder).acquire(timeout=0):
            return False
    except filelock.Timeout:
        return True
    except OSError:
        return False
