"""The runs behind figure 3 and the audio row of table 7."""

from collections.abc import Mapping
from typing import Any

from ghrq.training.study import Axis, Label, Part, Study, key_axis

# The paper's kinds need a small weight of the commitment and a small radius: with those of calibrated they collapse.
_OURS = {"quantizer.commitment_weight": 0.01, "quantizer.radius": 0.25}
_KINDS: Mapping[Label, Mapping[str, Any]] = {
    "calibrated": {"quantizer.kind": "calibrated"},
    "ghrq": {"quantizer.kind": "ghrq", **_OURS},
    "euclidean": {"quantizer.kind": "euclidean"},
    "naive": {"quantizer.kind": "naive", **_OURS},
}
_ABLATIONS: Mapping[Label, Mapping[str, Any]] = {
    kind: {"quantizer.kind": kind, **_OURS} for kind in ("hra-only", "dhste-only")
}
_KIND = Axis("kind", _KINDS, grid=_ABLATIONS)
_FEW = Axis("kind", {kind: _KINDS[kind] for kind in ("calibrated", "euclidean")}, grid={})

STUDY = Study(
    [
        Part("audio/demo", [_FEW], budgets=["demo"]),
        Part("audio/cpu", [key_axis("dim", "codec.dim", [32], grid=[64, 128]), _KIND], budgets=["cpu"]),
    ]
)
