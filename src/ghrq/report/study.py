"""The report of a study: a task's tables and figures from the outcomes of its runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghrq.training.study import Outcome


def write_report(task: Any, outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write the report of ``task`` into ``folder``; returns the file to open first."""
    results = {run.folder.name: {"error": run.error} if run.error else dict(run.results) for run in outcomes}
    path: Path = task.report(results, folder)
    return path
