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
    "calibrated": Look("calibrated", "#e69f00", "P"),
    "random": Look("random codes", "#8c939b", "X"),
}


def label_of(label: str | float, axis: str = "") -> str:
    """The name of a label in a report: kinds have one, a number has that of its ``axis`` before it, as in ``dim 8``."""
    name = label if isinstance(label, str) else f"{axis} {label}".strip()
    return KINDS[name].label if name in KINDS else name


def looks(names: Sequence[str]) -> list[Look]:
    """The look of each name: that of the kind, or else the colours that no kind among them has, in turn."""
    palette = [look for kind, look in KINDS.items() if kind not in names] or list(KINDS.values())
    others = [name for name in dict.fromkeys(names) if name not in KINDS]
    free = {name: palette[i % len(palette)] for i, name in enumerate(others)}
    return [KINDS[name] if name in KINDS else free[name]._replace(label=name) for name in names]
