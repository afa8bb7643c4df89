"""The kinds of a quantizer: each is a name for a choice on axes that can also be given one by one."""

from typing import Literal, NamedTuple

from torch import Tensor

from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.routes import Commitment, Gradient, Units
from ghrq.system.checks import at_least

Kind = Literal["calibrated", "ghrq", "naive", "euclidean", "hra-only", "dhste-only"]
Update = Literal["gradient", "ema"]


FEW_CODES = 256
"""With more codes a batch has few vectors for each, so that a fast average is noise. Codes that learn by gradient lag
behind their vectors, and a fast average of usage would revive them too soon."""


class Axes(NamedTuple):
    """What a kind stands for."""

    aggregation: Aggregation
    gradient: Gradient
    commitment: Commitment
    units: Units = "ball"
    update: Update = "gradient"
    radius: float | None = None
    """The target radius; None is no scale control."""
    decay: float = 0.99
    """Of up to FEW_CODES moving midpoints and their usage."""


KINDS: dict[Kind, Axes] = {
    "calibrated": Axes("nested", "transport", "discounted", "encoder", "ema", 0.15, 0.95),
    "ghrq": Axes("nested", "transport", "first"),
    "hra-only": Axes("nested", "identity", "every"),
    "dhste-only": Axes("chained", "transport", "first"),
    "naive": Axes("chained", "identity", "every"),
    "euclidean": Axes("nested", "identity", "first"),
}
"""Every kind of quantizer by its name: a choice on each axis, which can also be made by itself."""


def chosen_axes(
    kind: Kind,
    curvature: float | Tensor | str | None,
    update: Update | None,
    scale_control: bool | None,
    radius: float | None,
) -> tuple[Axes, float]:
    """The axes of ``kind`` with this ``curvature``, and the one that the ball begins with; refuse what contradicts it.

    A number stays as it is, so nothing follows the data then. One that is learned begins with 1 here.
    """
    axes = KINDS[kind]
    if isinstance(curvature, Tensor | str):
        _check_learnable(kind, curvature, update, scale_control, radius)
        return axes._replace(update="gradient", radius=KINDS["calibrated"].radius), 1.0
    start = 0.0 if kind == "euclidean" else 1.0
    if curvature is None:
        return axes, start
    at_least("curvature", curvature, 0)
    return axes._replace(radius=None), float(curvature) * start


def _check_learnable(
    kind: Kind, curvature: Tensor | str, update: Update | None, scale_control: bool | None, radius: float | None
) -> None:
    if isinstance(curvature, str) and curvature != "learn":
        raise ValueError(f'curvature must be a number, a tensor () or "learn", got {curvature!r}')
    if not isinstance(curvature, str) and radius is not None:
        raise ValueError(f'curvature starts at the given tensor, not at radius={radius}: give one of them, or "learn"')
    if kind == "euclidean":
        raise ValueError('kind="euclidean" is flat space: a learned curvature needs another kind')
    if update == "ema":
        raise ValueError(
            'a learned curvature needs codebook_update="gradient" (in a recipe quantizer.update): moving midpoints sum '
            "up points of a fixed ball"
        )
    if scale_control is not None:
        raise ValueError("scale_control is a curvature that follows the data: leave it out with a learned one")


# Arguments of other residual quantizers (vector-quantize-pytorch, EnCodec, DAC), and what to write instead.
ELSEWHERE = {
    "num_quantizers": "num_stages",
    "n_q": "num_stages",
    "n_codebooks": "num_stages",
    "bins": "codebook_size",
    "dimension": "dim",
    "quantize_dropout": "depth_dropout",
    "quantizer_dropout": "depth_dropout",
    "threshold_ema_dead_code": "revive_below, a share of uniform use",
    "kmeans_init": "rq.initialize(z), which starts the codebooks from k-means",
    "ema_update": 'codebook_update="ema"',
    "learnable_codebook": 'codebook_update="gradient"',
    "channel_last": "channel_dim, -1 or 1",
    "accept_image_fmap": "channel_dim=1",
    "freeze_codebook": "rq.freeze()",
    "sample_codebook_temp": "temperature",
    "quantize_dropout_cutoff_index": "depth_dropout, which takes a list of depths",
    "quantize_dropout_multiple_of": "depth_dropout, which takes a list of depths",
    "in_place_codebook_optimizer": 'codebook_update="gradient", and ghrq.optim.RiemannianAdam',
    "stochastic_sample_codes": "temperature, above 0",
    "sync_codebook": "nothing: processes that train together always have the same codebooks",
    "orthogonal_reg_weight": "nothing like it, it is not supported",
    "commitment_loss_weight": "commitment_weight",
    "rotation_trick": "nothing: the gradient is transported",
    "use_cosine_sim": "normalised vectors; distances are geodesic",
    "heads": "one quantizer for each head",
    "shared_codebook": "one codebook per stage; a shared one is not supported",
}
