"""A filled table: rows of measured numbers, shown as console text, Markdown and HTML with the best ones marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any, Literal, NamedTuple

from ghrq.report.console import columns
from ghrq.report.results import NOTHING, Measured, ResultPath
from ghrq.report.template import render

Entry = Measured | str | None
"""What is in a cell: text is shown as it is, ``None`` as a dash."""


@dataclass(frozen=True)
class Column:
    """One number of every row: where it is in the results, and how it is shown.

    Args:
        title: the heading.
        path: where in results.json the number is, see :data:`ghrq.report.results.ResultPath`. A path that ends in
            ``.*`` makes one column for each entry of a list; ``{}`` in the title is its number, from 1.
        spec: the format of mean and spread.
        best: which is shown in bold, if any.
        factor: what the number is multiplied by: 100 for a share in per cent.
        aside: whether it is there to compare the column before with: the mean alone, in a paler colour.
        paper: the heading above the published figures, if the table has some for this column.

    """

    title: str
    path: ResultPath = ""
    spec: str = ".1f"
    best: Literal["highest", "lowest"] | None = None
    factor: float = 1.0
    aside: bool = False
    paper: str = "the paper"

    def __post_init__(self) -> None:
        try:
            format(0.5, self.spec)
        except ValueError as error:
            raise ValueError(f"column '{self.title}': spec={self.spec!r} is no format of a number: {error}") from None
        if self.best not in (None, "highest", "lowest"):
            raise ValueError(f"column '{self.title}': best={self.best!r}: expected 'highest', 'lowest' or None")


@dataclass(frozen=True, eq=False)
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
    """Rows that are compared with each other; without ``compete`` none is the best."""

    title: str
    rows: Sequence[Row]
    compete: bool = True


class Cell(NamedTuple):
    """An entry as text."""

    text: str
    bold: bool
    aside: bool


@dataclass(frozen=True)
class Grid:
    """Blocks of rows. Columns without any entry are left out."""

    title: str
    note: str
    """Below the table, in Markdown."""
    columns: Sequence[Column]
    blocks: Sequence[Block]

    def __post_init__(self) -> None:
        for row in (row for block in self.blocks for row in block.rows):
            if len(row.entries) != len(self.columns):
                raise ValueError(
                    f"row '{row.label}' of table '{self.title}' has {len(row.entries)} entries, "
                    f"expected {len(self.columns)}, one for each column"
                )

    def _shown(self) -> list[int]:
        """Which columns have any entry."""
        rows = [row for block in self.blocks for row in block.rows]
        return [i for i in range(len(self.columns)) if any(row.entries[i] for row in rows)]

    def cells(self, block: Block) -> list[list[Cell]]:
        """The entries of a block as text, row by row."""
        best = {i: self._best(block, i) for i in self._shown()}
        rows = []
        for row in block.rows:
            texts = {i: _text(row.entries[i], self.columns[i]) for i in best}
            rows.append([Cell(text, text in best[i], self.columns[i].aside) for i, text in texts.items()])
        return rows

    def _best(self, block: Block, column: int) -> set[str]:
        """The texts that are the best of a block: all whose mean looks the same as the best one's."""
        how = self.columns[column]
        measured = [e for row in block.rows if isinstance(e := row.entries[column], Measured) and e]
        if not block.compete or how.best is None or len(measured) < 2:
            return set()
        top = (max if how.best == "highest" else min)(entry.mean for entry in measured)
        return {_text(e, how) for e in measured if format(e.mean, how.spec) == format(top, how.spec)}

    def lines(self, bold: str) -> list[list[str]]:
        """Headings, titles of blocks and rows as text, with ``bold`` on both sides of what is bold."""
        titles = [self.columns[i].title for i in self._shown()]
        lines = [["", *titles]]
        for block in self.blocks:
            if block.title:
                lines.append([f"{bold}{block.title}{bold}", *("" for _ in titles)])
            for row, cells in zip(block.rows, self.cells(block), strict=True):
                label = f"{row.label} ({row.note})" if row.note else row.label
                lines.append([label, *(f"{bold}{cell.text}{bold}" if cell.bold else cell.text for cell in cells)])
        return lines

    def text(self) -> str:
        """For a console: the title and aligned columns, the best entries marked with ``*``."""
        heading, *lines = [[cell.replace("`", "").replace("\u00a0", " ") for cell in line] for line in self.lines("*")]
        wrapped = [wrap(title, 10, break_long_words=False) for title in heading]
        return f"{self.title}\n\n{columns([*zip_longest(*wrapped, fillvalue=''), *lines], numbers=True)}\n"

    def markdown(self) -> str:
        """A heading, the table, and its note."""
        heading, *lines = [[cell.replace("|", "\\|") for cell in line] for line in self.lines("**")]
        table = [heading, ["---", *("---:" for _ in heading[1:])], *lines]
        return f"## {self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in table) + f"\n\n{self.note}\n"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON: every cell as it is shown, and a measured one with all its values."""
        shown = self._shown()
        rows = [
            {
                "block": block.title,
                "label": row.label,
                "note": row.note,
                "cells": [
                    {"text": cell.text, "best": cell.bold} | _numbers(row.entries[i])
                    for i, cell in zip(shown, cells, strict=True)
                ],
            }
            for block in self.blocks
            for row, cells in zip(block.rows, self.cells(block), strict=True)
        ]
        titles = [self.columns[i].title for i in shown]
        return {"title": self.title, "note": self.note, "columns": titles, "rows": rows}

    def html(self) -> str:
        """A ``<figure>`` with title, table and note."""
        columns = [self.columns[i] for i in self._shown()]
        blocks = [(block.title, list(zip(block.rows, self.cells(block), strict=True))) for block in self.blocks]
        return render("table", table=self, columns=columns, blocks=blocks)


def _text(entry: Entry, column: Column) -> str:
    if isinstance(entry, Measured):
        return (Measured((entry.mean,)) if column.aside and entry else entry).show(column.spec)
    return entry or NOTHING


def _numbers(entry: Entry) -> dict[str, Any]:
    if not isinstance(entry, Measured) or not entry:
        return {}
    return {"mean": entry.mean, "spread": entry.spread, "values": list(entry.values)}
