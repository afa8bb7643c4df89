"""Aligned columns for the console."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Rows of equally many cells as aligned lines; with ``numbers``, all but the first column are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if numbers:
            others = [cell.rstrip().rjust(len(cell)) for cell in others]
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)
