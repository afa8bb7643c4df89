"""How each kind of quantizer is named and drawn, the same in every table and figure."""

from collections.abc import Sequence
from typing import NamedTuple


class Look(NamedTuple):
    """Name, colour and marker of a row or line."""

    label: str
    colour: str
    """Of the palette by Okabe and Ito: colour-blind readers can tell them apart, on white and on black."""
    marker: str
    """Of matplotlib; tells lines apart where colour does not."""


KINDS = {
    "ghrq": Look("GHRQ", "#0072b2", "o"),
    "hra-only": Look("HRA only", "#56b4e9", "^"),
    "dhste-only": Look("d-HSTE only", "#cc79a7", "v"),
    "naive": Look("naive hyperbolic", "#d55e00", "s"),
    "euclidean": Look("Euclidean", "#009e73", "D"),
    "random": Look("random codes", "#8c939b", "X"),
}


def label_of(kind: str | float) -> str:
    """The name of a kind in a report; any other label is its own name."""
    return KINDS[str(kind)].label if str(kind) in KINDS else str(kind)


def looks(names: Sequence[str]) -> list[Look]:
    """The look of each name: that of the kind, or else the colours of the palette in turn."""
    palette = list(KINDS.values())
    others = [name for name in dict.fromkeys(names) if name not in KINDS]
    free = {name: palette[i % len(palette)] for i, name in enumerate(others)}
    return [KINDS[name] if name in KINDS else free[name]._replace(label=name) for name in names]
