"""How each kind of quantizer is named and drawn, the same in every table and figure."""

from typing import NamedTuple


class Kind(NamedTuple):
    """The look of a kind."""

    label: str
    colour: str
    """Of the palette by Okabe and Ito, that colour-blind readers can tell apart, on white and on black."""
    marker: str
    """Of matplotlib; tells lines apart where colour does not."""


KINDS = {
    "ghrq": Kind("GHRQ", "#0072b2", "o"),
    "hra-only": Kind("HRA only", "#56b4e9", "^"),
    "dhste-only": Kind("d-HSTE only", "#cc79a7", "v"),
    "naive": Kind("naive hyperbolic", "#d55e00", "s"),
    "euclidean": Kind("Euclidean", "#009e73", "D"),
    "random": Kind("random codes", "#8c939b", "X"),
}
