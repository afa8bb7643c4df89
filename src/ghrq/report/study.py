"""The report of a study: the tables and figures of a task from the outcomes of its runs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ghrq.report.curves import stage_losses, training_figures
from ghrq.report.figures import Gallery
from ghrq.report.grid import Block, Column, Grid, Row
from ghrq.report.page import Page, PageSection
from ghrq.report.results import Measured, StudyResults, value_at
from ghrq.report.tables import default_table
from ghrq.report.words import diverged, what_came_out, what_was_run
from ghrq.training.study import Outcome


def write_report(task: Any, outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write report.html, tables.md and figures/ of a task class into ``folder``; returns the file to open first."""
    study = StudyResults(outcomes)
    page: Page = task.report(study) or default_page(task, study)
    return page.write(folder)


def console_tables(task: Any, outcomes: Iterable[Outcome]) -> str:
    """The tables of a task class as text for a console."""
    return "\n".join(grid.text() for grid in _filled(task, StudyResults(outcomes)))


def default_page(task: Any, study: StudyResults) -> Page:
    """The page of a task that declares nothing but its tables: these, and the losses of its stages."""
    grids = _filled(task, study)
    curves = training_figures(study.groups, stage_losses(study.groups))
    lead = [what_was_run(study), *_missing(task, study)]
    if grids or not study.first:
        lead += what_came_out(grids[0] if grids else None)
    sections = [PageSection("Results", grids), PageSection("Training", [Gallery(curves)], diverged(study))]
    return Page(task.title or task.__name__, f"Results of the task {task.__name__}", lead, sections)


def recipe_grid(study: StudyResults, describe: Callable[[Any], dict[str, str]]) -> Grid | None:
    """A table with a column for each recipe of a study: what ``describe`` tells of it, and the minutes of a run.

    Recipes are read from the folders of the runs; ``None`` if there are none.
    """
    told: dict[str, dict[str, str]] = {}
    for label in study.labels("recipe"):
        groups = study.select(recipe=label)
        recipe = next((found for group in groups if (found := group.recipe()) is not None), None)
        seconds = Measured.of((value for group in groups for value in group.seconds().values), 1 / 60)
        if recipe is not None:
            told[f"`{label}`"] = describe(recipe) | {"minutes a run": seconds.show(".1f")}
    if not told:
        return None
    keys = dict.fromkeys(key for texts in told.values() for key in texts)
    rows = [Row(key, [texts.get(key) for texts in told.values()]) for key in keys]
    note = "The same for every kind of quantizer. Times are of training alone. recipe.toml of each run has the rest."
    columns = [Column(name) for name in told]
    return Grid("The recipes", note, columns, [Block("", rows, compete=False)])


def _missing(task: Any, study: StudyResults) -> list[str]:
    """A paragraph on paths of declared columns that no run has, most likely misspelt."""
    paths = [c.path.removesuffix(".*") for table in task.tables for c in table.columns if isinstance(c.path, str)]
    lost = [path for path in paths if all(value_at(group.first, path) is None for group in study.groups)]
    if not lost or not study.first:
        return []
    return [f"**Not in the results:** `{'`, `'.join(lost)}`. They have `{'`, `'.join(study.first)}`."]


def _filled(task: Any, study: StudyResults) -> list[Grid]:
    """The tables that a task declares, or one of all numbers on the top level of its results."""
    declared = task.tables or [default_table(study)]
    return [grid for table in declared if (grid := table.fill(study)) is not None]
