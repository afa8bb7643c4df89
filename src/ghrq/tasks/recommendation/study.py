"""The runs behind the tables of the recommendation task."""

from collections.abc import Mapping
from typing import Any

from ghrq.training.study import Axis, Label, Part, Study

RANDOM, LETTER, SASREC = "random", "LETTER", "SASRec"

# Where the IDs come from: a kind of quantizer, or another source. SASRec has item embeddings only, so none is left out.
_SOURCES: Mapping[Label, Mapping[str, Any]] = {
    "ghrq": {"quantizer.kind": "ghrq"},
    "naive": {"quantizer.kind": "naive"},
    "euclidean": {"quantizer.kind": "euclidean"},
    SASREC: {
        "ids.source": "none",
        "recommender.inputs": ["item"],
        "recommender.outputs": ["items"],
        "recommender.item_dropout": 0.0,
    },
    RANDOM: {"ids.source": "random"},
    LETTER: {"ids.source": "published"},
}
_ABLATIONS: Mapping[Label, Mapping[str, Any]] = {
    kind: {"quantizer.kind": kind} for kind in ("hra-only", "dhste-only", "calibrated")
}
# Tuned on validation targets: without texts and codes it needs more of both.
_TUNED: Mapping[Label, Mapping[str, Any]] = {
    **_SOURCES,
    SASREC: {**_SOURCES[SASREC], "recommender.dropout": 0.5, "recommender.epochs": 60},
}
_WITH_CODES: Mapping[Label, Mapping[str, Any]] = {label: keys for label, keys in _SOURCES.items() if label != SASREC}
_FEW: Mapping[Label, Mapping[str, Any]] = {label: _SOURCES[label] for label in ("ghrq", "euclidean", RANDOM, SASREC)}

STUDY = Study(
    [
        Part("recommendation/demo", [Axis("kind", _FEW, grid=_ABLATIONS)], budgets=["demo"]),
        Part("recommendation/cpu", [Axis("kind", _TUNED, grid=_ABLATIONS)], budgets=["cpu"]),
        Part("recommendation/paper", [Axis("kind", _WITH_CODES, grid=_ABLATIONS)], budgets=["paper"]),
    ]
)
