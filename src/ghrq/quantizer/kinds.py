"""The kinds of a quantizer: each is a name for a choice on axes that can also be given one by one."""

from typing import Literal, NamedTuple

from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.routes import Commitment, Gradient, Units

Kind = Literal["calibrated", "ghrq", "naive", "euclidean", "hra-only", "dhste-only"]
Update = Literal["gradient", "ema"]


class Axes(NamedTuple):
    """What a kind stands for."""

    aggregation: Aggregation
    gradient: Gradient
    commitment: Commitment
    units: Units = "ball"
    update: Update = "gradient"
    radius: float | None = None
    """The target radius; None is no scale control."""


KINDS: dict[Kind, Axes] = {
    "calibrated": Axes("nested", "transport", "discounted", "encoder", "ema", 0.25),
    "ghrq": Axes("nested", "transport", "first"),
    "hra-only": Axes("nested", "identity", "every"),
    "dhste-only": Axes("chained", "transport", "first"),
    "naive": Axes("chained", "identity", "every"),
    "euclidean": Axes("nested", "identity", "first"),
}
