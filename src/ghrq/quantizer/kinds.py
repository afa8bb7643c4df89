"""The kinds of a quantizer: each is a name for a choice on axes that can also be given one by one."""

from typing import Literal, NamedTuple

from ghrq.quantizer.cascade import Aggregation
from ghrq.quantizer.routes import Commitment, Gradient, Units

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


def check_learnable(
    kind: Kind, curvature: object, update: Update | None, scale_control: bool | None, radius: float | None
) -> Axes:
    """The axes of ``kind`` with a learned curvature: codes learn by gradient. Refuse what does not go with it."""
    if isinstance(curvature, str) and curvature != "learn":
        raise ValueError(f'curvature must be a number, a tensor () or "learn", got {curvature!r}')
    if not isinstance(curvature, str) and radius is not None:
        raise ValueError(f'curvature starts at the given tensor, not at radius={radius}: give one of them, or "learn"')
    if kind == "euclidean":
        raise ValueError('kind="euclidean" is flat space: a learned curvature needs another kind')
    if update == "ema":
        raise ValueError(
            'a learned curvature needs codebook_update="gradient": moving midpoints sum up points of a fixed ball'
        )
    if scale_control is not None:
        raise ValueError("scale_control is a curvature that follows the data: leave it out with a learned one")
    return KINDS[kind]._replace(update="gradient", radius=KINDS["calibrated"].radius)


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
    "rotation_trick": "nothing: the gradient is transported",
    "use_cosine_sim": "normalised vectors; distances are geodesic",
    "heads": "one quantizer for each head",
    "shared_codebook": "one codebook per stage; a shared one is not supported",
}
