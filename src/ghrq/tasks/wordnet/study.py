"""The runs behind the tables of the WordNet task."""

from ghrq.training.study import Axis, Part, Study, key_axis

# Table 1's sizes: dimension of the encoder, codes of a stage. The first is the one of all other tables.
SIZES = {
    f"d{dim}/b{codes}": {"encoder.dim": dim, "quantizer.codebook_size": codes} for dim in (16, 8) for codes in (128, 64)
}
MAIN = "d16/b128"

_SIZE = Axis("size", {MAIN: SIZES[MAIN]}, grid={label: keys for label, keys in SIZES.items() if label != MAIN})


def _kinds(*kinds: str) -> Axis:
    return key_axis("kind", "quantizer.kind", kinds)


STUDY = Study(
    [
        Part("wordnet/demo", [_kinds("ghrq", "naive", "euclidean", "random"), _SIZE], budgets=["demo"]),
        Part(
            "wordnet/{budget}",
            [_kinds("ghrq", "hra-only", "dhste-only", "naive", "euclidean", "random"), _SIZE],
            budgets=["cpu", "paper"],
        ),
        Part("wordnet/best", [_kinds("ghrq", "naive", "euclidean"), _SIZE], budgets=["cpu", "paper"]),
    ]
)
