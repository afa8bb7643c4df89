"""Tables of measured numbers: mean ± spread over seeds, the best of each block in bold, as Markdown and as HTML."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ghrq.report.template import render

NOTHING = "–"


@dataclass(frozen=True)
class Measured:
    """A number as it came out of each of several runs."""

    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Measured":
        """Those that are numbers: results.json has ``null`` for NaN."""
        return cls(tuple(float(value) for value in values if value is not None and math.isfinite(value)))

    @property
    def mean(self) -> float:
        """NaN of nothing."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float:
        """The standard deviation of a sample; 0 of a single value, which has none to show."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __bool__(self) -> bool:
        return bool(self.values)

    def shifted(self, by: float) -> "Measured":
        """The same with ``by`` added to every value."""
        return Measured(tuple(value + by for value in self.values))

    def scaled(self, by: float) -> "Measured":
        """The same with every value multiplied."""
        return Measured(tuple(value * by for value in self.values))

    def show(self, spec: str) -> str:
        """``mean ± spread``, both by the format ``spec``; the mean alone of a single value.

        Of a spread two significant digits are enough.
        """
        if not self:
            return NOTHING
        mean = format(self.mean, spec)
        spread = ".2g" if spec.endswith("g") else spec.replace("+", "")
        return f"{mean} ± {format(self.spread, spread)}" if len(self.values) > 1 else mean


Entry = Measured | str | None
"""What is in a cell: text is shown as it is, ``None`` as a dash."""


@dataclass(frozen=True)
class Column:
    """How the numbers below a heading are shown."""

    title: str
    spec: str = ".1f"
    best: Literal["highest", "lowest"] | None = None
    """Which is shown in bold, if any."""
    aside: bool = False
    """Whether it is something to hold the column before against: the mean alone, in a paler colour."""


@dataclass(frozen=True)
class Row:
    """A label and an entry for every column."""

    label: str
    entries: Sequence[Entry]
    colour: str = ""
    """Of the dot before the label; the same as in the figures."""
    note: str = ""
    """In small letters after the label."""


@dataclass(frozen=True)
class Block:
    """Rows that compete with each other; without ``compete`` none is the best."""

    title: str
    rows: Sequence[Row]
    compete: bool = True


class Shown(NamedTuple):
    """An entry as text."""

    text: str
    bold: bool
    aside: bool


@dataclass(frozen=True)
class Table:
    """Blocks of rows. Columns in which nothing was measured are left out."""

    title: str
    caption: str
    columns: Sequence[Column]
    blocks: Sequence[Block]

    def __post_init__(self) -> None:
        for row in (row for block in self.blocks for row in block.rows):
            if len(row.entries) != len(self.columns):
                raise ValueError(
                    f"row '{row.label}' of table '{self.title}' has {len(row.entries)} entries, "
                    f"expected {len(self.columns)}, one for each column"
                )

    def shown_columns(self) -> list[int]:
        """Which columns have anything to show."""
        rows = [row for block in self.blocks for row in block.rows]
        return [i for i in range(len(self.columns)) if any(row.entries[i] for row in rows)]

    def shown(self, block: Block) -> list[list[Shown]]:
        """The entries of a block as text, row by row."""
        best = {i: self._best(block, i) for i in self.shown_columns()}
        rows = []
        for row in block.rows:
            texts = {i: _text(row.entries[i], self.columns[i]) for i in best}
            rows.append([Shown(text, text in best[i], self.columns[i].aside) for i, text in texts.items()])
        return rows

    def _best(self, block: Block, column: int) -> set[str]:
        """The texts that are the best of a block: all whose mean looks the same as the best one's."""
        how = self.columns[column]
        measured = [e for row in block.rows if isinstance(e := row.entries[column], Measured) and e]
        if not block.compete or how.best is None or len(measured) < 2:
            return set()
        top = (max if how.best == "highest" else min)(entry.mean for entry in measured)
        return {_text(e, how) for e in measured if format(e.mean, how.spec) == format(top, how.spec)}

    def markdown(self) -> str:
        """A heading, the table, and its caption."""
        columns = [self.columns[i] for i in self.shown_columns()]
        lines = [_line(["", *(column.title for column in columns)]), _line(["---", *("---:" for _ in columns)])]
        for block in self.blocks:
            if block.title:
                lines.append(_line([f"**{block.title}**", *("" for _ in columns)]))
            for row, shown in zip(block.rows, self.shown(block), strict=True):
                label = f"{row.label} ({row.note})" if row.note else row.label
                lines.append(_line([label, *(f"**{cell.text}**" if cell.bold else cell.text for cell in shown)]))
        return f"## {self.title}\n\n" + "\n".join(lines) + f"\n\n{self.caption}\n"

    def html(self) -> str:
        """A ``<figure>`` with title, table and caption."""
        columns = [self.columns[i] for i in self.shown_columns()]
        blocks = [(block.title, list(zip(block.rows, self.shown(block), strict=True))) for block in self.blocks]
        return render("table", table=self, columns=columns, blocks=blocks)


def _text(entry: Entry, column: Column) -> str:
    if isinstance(entry, Measured):
        return (Measured((entry.mean,)) if column.aside and entry else entry).show(column.spec)
    return entry or NOTHING


def count(number: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
