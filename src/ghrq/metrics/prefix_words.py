"""What a prefix of codes stands for: the words of the titles under it that set it apart, by a class-based tf-idf."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ghrq.ids.tuples import tuple_ids
from ghrq.system.errors import require

Ints = npt.NDArray[np.int64]

# Words of a prefix, prefixes of the first level, and prefixes below each of the largest.
WORDS, FIRST, PARENTS, CHILDREN = 6, 12, 4, 4
# Words that fewer titles have say nothing of a group.
_LEAST_TITLES = 2


@dataclass(frozen=True)
class PrefixWords:
    """A prefix, how many items have it, and its words, the most telling first."""

    codes: list[int]
    items: int
    words: list[str]


def prefix_words(codes: Ints, titles: Sequence[str]) -> list[PrefixWords]:
    """The largest first codes, and the largest prefixes of two codes below some of them.

    Args:
        codes: ``(n, N)`` tuples, without a tie-break token.
        titles: one for each.

    A group of items is one text of ``class-based tf-idf``: the weight of word x in group g is
    ``tf(x, g) · log(1 + A / f(x))``, with the share tf of x among the words of g, the number f of x in all groups, and
    the mean number A of words of a group. So words are compared between groups of the same depth.

    """
    text: Any = require("sklearn.feature_extraction.text", "tokenizer")
    vectorizer = text.CountVectorizer(stop_words="english", token_pattern=r"(?u)\b[^\W\d_]{2,}\b", min_df=_LEAST_TITLES)
    try:
        counts = vectorizer.fit_transform(titles)  # (n, words), sparse
    except ValueError:  # no word is left
        return []
    names, found = vectorizer.get_feature_names_out(), list[PrefixWords]()
    first = _Level(codes[:, :1], counts, names)
    second = _Level(codes[:, :2], counts, names) if codes.shape[1] > 1 else None
    for place, group in enumerate(first.largest(FIRST)):
        found.append(first.described(group))
        if second is not None and place < PARENTS:
            below = np.unique(second.groups[first.groups == group])
            found += [second.described(child) for child in second.largest(CHILDREN, below)]
    return found


class _Level:
    """All prefixes of one depth."""

    def __init__(self, codes: Ints, counts: Any, names: Any) -> None:
        self.codes, self._names, self.groups = codes, names, tuple_ids(codes)
        self.sizes = np.bincount(self.groups)
        rows = np.arange(len(codes))
        sparse: Any = require("scipy.sparse", "tokenizer")
        members = sparse.csr_matrix((np.ones(len(codes)), (self.groups, rows)), shape=(len(self.sizes), len(codes)))
        self._words = (members @ counts).tocsr()  # (groups, words)
        total = np.asarray(self._words.sum(0)).ravel()
        self._idf = np.log1p(self._words.sum() / len(self.sizes) / np.maximum(total, 1.0))

    def largest(self, count: int, among: Ints | None = None) -> list[int]:
        """Up to ``count`` groups with the most items."""
        among = np.arange(len(self.sizes)) if among is None else among
        order = np.argsort(-self.sizes[among], kind="stable")[:count]
        return [int(group) for group in among[order]]

    def described(self, group: int) -> PrefixWords:
        row = self._words[group]
        weights = row.data / max(row.sum(), 1.0) * self._idf[row.indices]
        best = row.indices[np.argsort(-weights, kind="stable")[:WORDS]]
        member = int(np.argmax(self.groups == group))
        return PrefixWords(self.codes[member].tolist(), int(self.sizes[group]), [str(self._names[i]) for i in best])
