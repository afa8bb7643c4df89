"""Aligned columns for the console."""

import re
from collections.abc import Sequence

# Names of files may not be UTF-8, and a text from somebody else's file may hold commands for the terminal.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def columns(rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Rows of equally many cells as aligned lines; with ``numbers``, all but the first column are aligned right."""
    rows = [[_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", cell) for cell in row] for row in rows]
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if numbers else str.ljust
    return "\n".join("  ".join([row[0].ljust(first), *map(align, row[1:], widths)]).rstrip() for row in rows)
