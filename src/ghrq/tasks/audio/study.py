"""The runs behind figure 3 and the audio row of table 7."""

from collections.abc import Mapping
from typing import Any

from ghrq.training.study import Axis, Label, Part, Study, key_axis

# The paper's kinds collapse with the commitment and radius of calibrated: theirs are those that work best for them.
_THEIRS = {"quantizer.commitment_weight": 0.01, "quantizer.radius": 0.25, "quantizer.weight": 1.0}
_KINDS: Mapping[Label, Mapping[str, Any]] = {
    "calibrated": {"quantizer.kind": "calibrated"},
    "ghrq": {"quantizer.kind": "ghrq", **_THEIRS},
    "euclidean": {"quantizer.kind": "euclidean"},
    "naive": {"quantizer.kind": "naive", **_THEIRS},
}
_FEW = Axis("kind", {kind: _KINDS[kind] for kind in ("calibrated", "euclidean")})

STUDY = Study(
    [
        Part("audio/demo", [_FEW], budgets=["demo"]),
        Part("audio/cpu", [key_axis("dim", "codec.dim", [32], grid=[64, 128]), Axis("kind", _KINDS)], budgets=["cpu"]),
        Part("audio/paper", [key_axis("dim", "codec.dim", [8, 32, 64, 128]), Axis("kind", _KINDS)], budgets=["paper"]),
    ]
)
