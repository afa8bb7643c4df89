"""Finished runs of any task, and of several, as one page: the tables of each task, its quantizers, its settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ghrq import __version__
from ghrq.report import latex
from ghrq.report.curves import line_names
from ghrq.report.diagnosis import diagnosis_section
from ghrq.report.figures import Figure, Gallery
from ghrq.report.grid import Block, Column, Entry, Grid, Row
from ghrq.report.kinds import label_of
from ghrq.report.page import Folded, Page, PagePiece, PageSection
from ghrq.report.results import Group, Measured, StudyResults
from ghrq.report.study import default_page
from ghrq.report.words import count, join
from ghrq.system import files
from ghrq.system.progress import Progress
from ghrq.training.gather import Gathered, TaskRuns, changed, settings
from ghrq.training.run import Run
from ghrq.training.study import Outcome

Format = Literal["html", "markdown", "latex", "json"]
ENDINGS: Mapping[str, Format] = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
    ".json": "json",
}

# Numbers of a run's results that the list of runs shows, as 'ghrq runs' does.
_HEADLINES = 3


@dataclass(frozen=True)
class RunsReport:
    """The page of gathered runs, in every format."""

    gathered: Gathered
    page: Page
    parts: Sequence[Page]
    """The page of each task."""

    @classmethod
    def of(cls, gathered: Gathered, progress: Progress | None = None) -> "RunsReport":
        """Fill in the tables and draw the figures."""
        with (progress or Progress()).patient_bar("drawing", len(gathered.tasks), "tasks") as bar:
            pages = []
            for runs in gathered.tasks:
                pages.append(_task_page(runs))
                bar.advance()
        return cls(gathered, _one_page(pages, gathered), pages)

    def write(self, how: Format) -> str:
        """The text of the file."""
        if how == "html":
            return self.page.html()
        if how == "markdown":
            return self.page.markdown()
        return self._latex() if how == "latex" else files.json_text(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Tables and runs as plain values: every number, with its values over the seeds."""
        tasks = [
            {
                "task": runs.name,
                "title": page.title,
                "text": list(page.lead),
                "tables": [grid.to_dict() for grid in page.tables()],
                "runs": [_run_dict(outcome) for outcome in runs.outcomes],
            }
            for runs, page in zip(self.gathered.tasks, self.parts, strict=True)
        ]
        return {"ghrq": __version__, "left_out": list(map(str, self.gathered.left_out)), "tasks": tasks}

    def _latex(self) -> str:
        parts = [latex.PACKAGES]
        for page in self.parts:
            parts += [f"\n% {latex.inline(page.title)}", *map(latex.table, page.tables())]
        return "\n".join(parts)


def _one_page(pages: Sequence[Page], gathered: Gathered) -> Page:
    """The page of one task as it is, or those of several as the parts of one."""
    left_out = _left_out(gathered)
    if len(pages) == 1:
        return replace(pages[0], lead=[*pages[0].lead, *left_out])
    sections: list[PageSection] = []
    titles: set[str] = set()
    for runs, page in zip(gathered.tasks, pages, strict=True):
        sections.append(PageSection(page.title, text=page.lead, part=True))
        sections += [_own_names(section, runs.name, titles) for section in page.sections]
        titles |= {grid.title for grid in page.tables()}
    number = sum(len(runs.outcomes) for runs in gathered.tasks)
    names = join([runs.name for runs in gathered.tasks])
    lead = [f"**What is here.** {count(number, 'run')} of {count(len(pages), 'task')}: {names}.", *left_out]
    return Page("Results", "Runs of several tasks, each in a part of its own", lead, sections)


def _own_names(section: PageSection, task: str, taken: set[str]) -> PageSection:
    """Figures and tables by names that no other part of a page has."""
    where = task.rpartition(":")[2]

    def table(grid: Grid) -> Grid:
        return replace(grid, title=f"{grid.title}: {where}") if grid.title in taken else grid

    def renamed(piece: PagePiece | None) -> PagePiece | None:
        if isinstance(piece, Gallery):
            figures = [replace(f, name=f"{where}-{f.name}") if isinstance(f, Figure) else f for f in piece.figures]
            return Gallery(figures)
        if isinstance(piece, Folded):
            return Folded(table(piece.grid))
        return table(piece) if isinstance(piece, Grid) else piece

    return replace(section, pieces=[renamed(piece) for piece in section.pieces])


def _task_page(runs: TaskRuns) -> Page:
    study = StudyResults(runs.outcomes)
    page: Page = runs.task.report(study) or default_page(runs.task, study)
    has_errors = any(figure.name.startswith("residual") for figure in page.figures())
    own = [
        diagnosis_section(study, runs.task.diagnosis, with_errors=not has_errors),
        PageSection("Runs, settings and versions", [_run_table(study), *_settings(study)]),
    ]
    return replace(page, lead=[*page.lead, *_changed(runs)], sections=[*page.sections, *own])


def _changed(runs: TaskRuns) -> list[str]:
    """A paragraph for each shipped recipe whose runs have other settings."""
    told = []
    for recipe, keys in changed(runs).items():
        parts = [
            f"`{key}` is {_shown(new) or 'empty'}, not {_shown(old) or 'empty'}" for key, (old, new) in keys.items()
        ]
        told.append(f"**Not as shipped.** Runs of `{recipe}` have other settings than it: {'; '.join(parts)}.")
    return told


def _left_out(gathered: Gathered) -> list[str]:
    if not gathered.left_out:
        return []
    names = join([f"`{folder.name}`" for folder in gathered.left_out])
    return [f"**Left out:** {names}, without results so far."]


# --- runs ----------------------------------------------------------------------------------------------------------


def _run_table(study: StudyResults) -> Grid:
    """A row for each run: its labels, its first numbers, and what it was made with."""
    axes = dict.fromkeys(axis for group in study.groups for axis in group.axes)
    names = dict.fromkeys(name for outcome in study.outcomes for name in _headline(outcome))
    columns = [
        *(Column(axis) for axis in axes),
        Column("seed"),
        *(Column(name.replace("_", " "), spec=".4g") for name in names),
        Column("minutes"),
        *(Column(what) for what in ("ghrq", "torch", "python", "threads")),
    ]
    rows = []
    for group in study.groups:
        for outcome in group.outcomes:
            found, seconds = _headline(outcome), Group({}, [outcome]).seconds()
            labels: list[Entry] = [label_of(outcome.axes[axis]) if axis in outcome.axes else None for axis in axes]
            numbers: list[Entry] = [Measured.of([found.get(name)]) or None for name in names]
            if outcome.error:
                numbers[:1] = ["diverged"][: len(numbers)]
            time: Entry = Measured(tuple(value / 60 for value in seconds.values)) or None
            made_with = _environment(outcome)
            row = [*labels, str(outcome.axes.get("seed", 0)), *numbers, time, *made_with]
            rows.append(Row(outcome.folder.name, row))
    note = "Each run by the name of its folder, with the first numbers of its results. Minutes are of training alone."
    return Grid("The runs", note, columns, [Block("", rows, compete=False)])


def _headline(outcome: Outcome) -> dict[str, float]:
    numbers = {key: value for key, value in outcome.results.items() if Measured.of([value])}
    return dict(list(numbers.items())[:_HEADLINES])


def _environment(outcome: Outcome) -> list[Entry]:
    found = Run.open(outcome.folder).environment
    versions, machine = found.get("versions") or {}, found.get("machine") or {}
    given = [*(versions.get(name) for name in ("ghrq", "torch", "python")), machine.get("threads")]
    return [None if value is None else str(value) for value in given]


def _run_dict(outcome: Outcome) -> dict[str, Any]:
    run = Run.open(outcome.folder)
    seconds = Group({}, [outcome]).seconds()
    return {
        "folder": str(outcome.folder),
        "axes": dict(outcome.axes),
        "error": outcome.error,
        "seconds": seconds.mean if seconds else None,
        "settings": settings(run),
        "environment": run.environment,
        "results": dict(outcome.results),
    }


# --- settings --------------------------------------------------------------------------------------------------------


def _settings(study: StudyResults) -> Iterable[PagePiece]:
    """What the recipes of the groups have in common, and a column for each where they differ."""
    found = [settings(Run.open(group.outcomes[0].folder)) for group in study.groups]
    for each in found:
        for key in ("name", "seed", "task"):
            each.pop(key, None)
    keys = dict.fromkeys(key for each in found for key in each)
    values = {key: [_shown(each.get(key)) for each in found] for key in keys}
    differing = {key: row for key, row in values.items() if len(set(row)) > 1}
    if differing:
        columns = [Column(label_of(name)) for name in line_names(study.groups)]
        rows = [Row(f"`{key}`", row) for key, row in differing.items()]
        yield Grid("Settings that differ", "All others are equal.", columns, [Block("", rows, compete=False)])
    rows = [Row(f"`{key}`", row[:1]) for key, row in values.items() if key not in differing]
    note = "As in recipe.toml of each run, with all defaults."
    yield Folded(Grid("Settings of all runs", note, [Column("value")], [Block("", rows, compete=False)]))


def _shown(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)
