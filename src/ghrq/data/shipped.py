"""Semantic IDs that come with the package: those of WordNet's nouns, and the tokenizer that made them."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # commands show their help without numpy
    import numpy as np
    import numpy.typing as npt

FOLDER = Path(str(resources.files("ghrq.data"))) / "files"
"""The folder of the tokenizers that come with ghrq, by name."""

NOUNS = "wordnet-nouns"


class NounIds(NamedTuple):
    """The n = 82,115 nouns of WordNet 3.0 as codes, in the order of :func:`ghrq.data.wordnet.load`."""

    folder: Path
    """Of the tokenizer, with ``ids.parquet`` in it."""
    names: list[str]
    """The synsets: ``dog.n.01``."""
    codes: "npt.NDArray[np.int64]"
    """``(n, 4)``, all different."""
    kinds: list[str | None]
    """What each is in broad terms: ``animal``, ``artifact``, …; None for what is above or beside these."""


def wordnet_ids() -> NounIds:
    """The IDs of WordNet's nouns: codes of the embedding that the recipe ``wordnet/best`` trains.

    Example:
        >>> from ghrq.data import wordnet_ids
        >>> nouns = wordnet_ids()
        >>> dog = nouns.codes[nouns.names.index("dog.n.01")]
        >>> relatives = (nouns.codes[:, :2] == dog[:2]).all(1).nonzero()[0]
        >>> nouns.names[relatives[0]], len(relatives)
        ('domestic_animal.n.01', 27)

    ``ghrq explore wordnet-nouns --colour kind --out nouns.html`` shows them, and
    ``ghrq.Tokenizer.from_pretrained("wordnet-nouns")`` is the tokenizer. Needs ``ghrq[tokenizer]``.

    """
    import numpy as np

    from ghrq.system.errors import require

    require("pyarrow", "tokenizer")
    from ghrq.data.tables import batch_rows, open_codes

    folder = FOLDER / NOUNS
    table = open_codes(folder / "ids.parquet", "kind")
    codes = np.concatenate([batch.vectors for batch in table.batches(batch_rows(table.dim))]).astype(np.int64)
    return NounIds(folder, table.names(np.arange(table.rows)), codes, table.labels())
