"""Aligned columns for the console."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Rows of equally many cells as aligned lines; with ``numbers``, all but the first column are aligned right."""
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if numbers else str.ljust
    return "\n".join("  ".join([row[0].ljust(first), *map(align, row[1:], widths)]).rstrip() for row in rows)
