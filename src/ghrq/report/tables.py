"""Tables as data: a task declares which numbers of its results stand where, and the outcomes of a study fill them.

::

    Table(
        "Reconstruction",
        columns=(Column("MSE × 1000", "mse", ".3f", best="lowest", factor=1000.0),),
        paper={"ghrq": {"MSE × 1000": 0.647}},
        note="Of the test images.",
    )
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ghrq.report.grid import Block, Column, Entry, Grid, Row
from ghrq.report.kinds import KINDS, label_of
from ghrq.report.results import Group, Measured, StudyResults, length_at, value_at, varying

if TYPE_CHECKING:
    from ghrq.training.study import Label

BASELINES = "to compare with"


@dataclass(frozen=True)
class Baseline:
    """A row of its own to compare with, such as a method without any model."""

    label: str
    results: Callable[[Any], Mapping[str, Any]]
    """From the results of a run to those of the baseline, with its numbers at the paths of the columns."""
    note: str = ""
    """In small letters after the label."""


@dataclass(frozen=True)
class Table:
    """A table of a report: a row for each label of an axis, with mean and spread over the seeds.

    Columns and tables without any measured number are left out. A row whose runs all diverged says so.

    Args:
        title: the heading.
        columns: the numbers of every row.
        rows: the axis whose labels are the rows: by default ``kind``, or else the first on which the runs differ.
        blocks: axes whose labels divide the rows into blocks with a heading; others on which runs differ are added.
        across: an axis whose labels are columns: all ``columns`` are repeated for each.
        only: the labels to show of an axis, in this order; all labels of axes that are not named.
        needs: row labels: blocks without any of them are left out.
        baselines: rows of a last block: declared ones, and row labels of the study that do not compete with the others.
        paper: published figures by row label, then by title of the column. A key may have several labels, as in
            ``("mnist", "ghrq")``: it is for the runs that have all of them.
        on_paper: whether a study is on the paper's data; if not, the published figures are left out. By default it is.
        note: below the table, in Markdown; or a function that makes it from the results.

    """

    title: str
    columns: Sequence[Column]
    rows: str = ""
    blocks: Sequence[str] = ()
    across: str = ""
    only: "Mapping[str, Sequence[Label]]" = field(default_factory=dict)
    needs: "Sequence[Label]" = ()
    baselines: Sequence[Baseline | str] = ()
    paper: Mapping[Any, Mapping[str, float]] = field(default_factory=dict)
    on_paper: Callable[[StudyResults], bool] | None = None
    note: str | Callable[[StudyResults], str] = ""

    def fill(self, study: StudyResults) -> Grid | None:
        """The table with the numbers of a study; ``None`` if it has none for it."""
        if not self.rows:
            axis = "kind" if study.labels("kind") else next(iter(varying(study.groups)), "recipe")
            return replace(self, rows=axis).fill(study)
        if self.paper and self.on_paper is not None and not self.on_paper(study):
            return replace(self, paper={}).fill(study)
        groups = study.select(**self.only)
        extra = {axis: labels for axis, labels in self.only.items() if axis != self.rows}
        references = study.select(**extra, **{self.rows: [name for name in self.baselines if isinstance(name, str)]})
        main = [group for group in groups if self.rows in group.axes and group not in references]
        axes = list(dict.fromkeys((*self.blocks, *varying(main))))
        axes = [axis for axis in axes if axis not in (self.rows, self.across)]
        slots = list(self._slots(study, main))
        if not any(slot.numbers(main) for slot in slots):
            return None
        declared = [given for given in self.baselines if isinstance(given, Baseline)]
        slots = [slot for slot in slots if any(slot.numbers(main)) or any(slot.baseline(b, main) for b in declared)]
        blocks = [
            Block(_block_title(axes, labels), list(self._rows(study, found, slots)))
            for labels, found in self._split(study, axes, main)
            if not self.needs or any(group.axes[self.rows] in self.needs for group in found)
        ]
        if not blocks:
            return None
        origin = [axis for axis in axes if axis in varying(main)]
        split = self._split(study, axes, references)
        rows = [row for _, found in split for row in self._rows(study, found, slots, origin)]
        for given in declared:
            entries = [entry for slot in slots for entry in (slot.baseline(given, main), None)[: len(slot.shown())]]
            rows.append(Row(given.label, entries, note=given.note))
        note = self.note(study) if callable(self.note) else self.note
        columns = [column for slot in slots for column in slot.shown()]
        return Grid(self.title, note, columns, [*blocks, *([Block(BASELINES, rows, compete=False)] if rows else [])])

    def _order(self, study: StudyResults, axis: str) -> "list[Label]":
        return list(self.only.get(axis) or study.labels(axis))

    def _split(
        self, study: StudyResults, axes: Sequence[str], groups: Sequence[Group]
    ) -> "list[tuple[tuple[Label, ...], list[Group]]]":
        """The groups by their labels on ``axes``, in the order of these labels."""
        found: dict[tuple[Label, ...], list[Group]] = {}
        for group in groups:
            found.setdefault(tuple(group.axes.get(axis, "") for axis in axes), []).append(group)
        order = [["", *self._order(study, axis)] for axis in axes]
        place = {labels: [o.index(label) for o, label in zip(order, labels, strict=True)] for labels in found}
        return sorted(found.items(), key=lambda item: place[item[0]])

    def _slots(self, study: StudyResults, groups: Sequence[Group]) -> "Iterator[_Slot]":
        """Every column as it is shown, with the published figures beside it."""
        for across in self._order(study, self.across) if self.across else [None]:
            for column in self.columns:
                for each in _expand(column, groups):
                    title = each.title
                    if across is not None:
                        name = across if isinstance(across, str) else label_of(across, self.across)
                        title = name if len(self.columns) == 1 else f"{name}, {each.title}"
                    published = {key: figures[title] for key, figures in self.paper.items() if title in figures}
                    fits = any(_published(published, group.axes.values()) for group in groups)
                    axis = self.across if across is not None else ""
                    yield _Slot(replace(each, title=title), published if fits else {}, axis, across)

    def _rows(
        self, study: StudyResults, groups: Sequence[Group], slots: "Sequence[_Slot]", origin: Sequence[str] = ()
    ) -> Iterator[Row]:
        """A row for each label; ``origin``: the axes to name in its note, if these divide the other rows."""
        for label in dict.fromkeys((*self._order(study, self.rows), *study.labels(self.rows))):
            row = [group for group in groups if group.axes[self.rows] == label]
            if not row:
                continue
            labels = [value for group in row for value in group.axes.values()]
            entries: list[Entry] = []
            for place, slot in enumerate(slots):
                here = slot.of(row)
                lost = here and not any(group.finished for group in here) and (place == 0 or slot.axis)
                entries.append(next(iter(slot.numbers(row)), None) or ("diverged" if lost else None))
                entries += [_published(slot.paper, labels)] if slot.paper else []
            diverged, runs = sum(group.diverged for group in row), sum(len(group.outcomes) for group in row)
            notes = [_block_title([axis], [row[0].axes[axis]]).replace("`", "") for axis in origin]
            if diverged and diverged < runs:
                notes.append(f"{diverged} of {runs} diverged")
            colour = KINDS[str(label)].colour if str(label) in KINDS else ""
            yield Row(label_of(label, self.rows), entries, colour, ", ".join(notes))


@dataclass(frozen=True)
class _Slot:
    """A column as it is shown."""

    column: Column
    paper: Mapping[Any, float]
    """Published figures; empty without any for the rows of the table."""
    axis: str
    label: "Label | None"
    """It shows the groups with this label on this axis, if one is named."""

    def of(self, groups: Sequence[Group]) -> list[Group]:
        """Those of ``groups`` that it shows."""
        return [group for group in groups if not self.axis or group.axes.get(self.axis) == self.label]

    def numbers(self, groups: Sequence[Group]) -> list[Measured]:
        """What was measured in those of ``groups`` that it shows."""
        found = [group.number(self.column.path, self.column.factor) for group in self.of(groups)]
        return [value for value in found if value]

    def baseline(self, baseline: Baseline, groups: Sequence[Group]) -> Measured:
        """The baseline of the first group that has it; as a single number where all seeds agree."""
        path, factor = self.column.path, self.column.factor
        found = (group.number(lambda run: value_at(baseline.results(run), path), factor) for group in self.of(groups))
        first = next(filter(None, found), Measured())
        return Measured(first.values[:1]) if len(set(first.values)) == 1 else first

    def shown(self) -> list[Column]:
        """Its column, and the one of the published figures."""
        beside = replace(self.column, title=self.column.paper, best=None, aside=True)
        return [self.column, *([beside] if self.paper else [])]


def default_table(study: StudyResults) -> Table:
    """All numbers on the top level of the results."""
    numbers = [name for name, value in study.first.items() if Measured.of([value])]
    return Table("Results", [Column(name.replace("_", " "), name, ".4g") for name in numbers])


def _expand(column: Column, groups: Sequence[Group]) -> list[Column]:
    """One column for each entry of a list, if the path asks for it."""
    if not isinstance(column.path, str) or not column.path.endswith(".*"):
        return [column]
    path = column.path.removesuffix(".*")
    length = max((length_at(group.first, path) for group in groups), default=0)
    return [replace(column, title=column.title.format(i + 1), path=f"{path}.{i}") for i in range(length)]


def _published(figures: Mapping[Any, float], labels: "Iterable[Label]") -> Measured | None:
    """The published figure for a row with these labels."""
    for key, value in figures.items():
        if set(key if isinstance(key, tuple) else (key,)) <= set(labels):
            return Measured((value,))
    return None


def _block_title(axes: Sequence[str], labels: "Sequence[Label]") -> str:
    """``recipe `best`, d16/b128``."""
    pairs = zip(axes, labels, strict=True)
    return ", ".join(f"recipe `{label}`" if axis == "recipe" else label_of(label, axis) for axis, label in pairs)
