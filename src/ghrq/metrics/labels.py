"""Agreement of groups of items with labels: mutual information, Rand index, purity, each also for random labels.

Purity and mutual information grow with the number of groups, up to perfect agreement for groups of one item. So groups
are also measured against randomly permuted labels, for which the adjusted measures are 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ghrq.system.errors import require

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_LABEL = -1

MOST_COMMON = 0.995
"""A level of labels where more items share one label is not shown: all its measures are near 0."""

# Terms of an expectation computed at once.
_CHUNK = 2**21


@dataclass(frozen=True)
class Agreement:
    """How groups agree with labels; one float for each way of grouping (each depth). 1 is perfect."""

    nmi: list[float]
    """Normalised mutual information (by the mean of both entropies). Grows with the number of groups."""
    ami: list[float]
    """The same adjusted for chance: 0 for random groups, however many."""
    ari: list[float]
    """Adjusted Rand index: agreement on which pairs belong together, adjusted for chance."""
    purity: list[float]
    """Fraction of the items whose label is the most frequent one in their group. 1 for groups of one."""


@dataclass(frozen=True)
class LabelAgreement:
    """Agreement of the groups that share the first m codes with one level of labels."""

    level: str
    items: int
    """Items with a label on this level; the others are left out."""
    labels: int
    """Distinct labels."""
    most_common: float
    """Fraction of the items with the most frequent label."""
    codes: Agreement
    shuffled: Agreement
    """With randomly permuted labels: the value for unrelated groups of the same sizes."""

    @property
    def informative(self) -> bool:
        """Whether labels differ enough to agree or disagree with: not if (nearly) all items have the same."""
        return self.most_common <= MOST_COMMON


def label_agreement(level: str, groups: Sequence[Ints], labels: Ints, seed: int = 0) -> LabelAgreement:
    """Measure every one of ``groups``, each ``(n,)``, against ``labels (n,)``: numbers from 0 on, or ``NO_LABEL``."""
    known = labels != NO_LABEL
    label = np.unique(labels[known], return_inverse=True)[1]
    permuted = np.random.default_rng(seed).permutation(label)
    rows = []
    for ids in groups:
        group = np.unique(ids[known], return_inverse=True)[1]
        expected = expected_mutual_information(np.bincount(group), np.bincount(label))
        rows.append([_agreement(group, given, expected) for given in (label, permuted)])
    codes, shuffled = (
        Agreement(*(list(measure) for measure in zip(*row, strict=True))) for row in zip(*rows, strict=True)
    )
    sizes = np.bincount(label)
    return LabelAgreement(level, len(label), len(sizes), float(sizes.max() / len(label)), codes, shuffled)


def _agreement(group: Ints, label: Ints, expected: float) -> tuple[float, float, float, float]:
    """The four measures of :class:`Agreement`, by scikit-learn except the expectation, for which it is too slow."""
    cluster = require("sklearn.metrics.cluster", "tokenizer")
    table = cluster.contingency_matrix(label, group, sparse=True)
    information = cluster.mutual_info_score(None, None, contingency=table)
    middle = 0.5 * (entropy(np.bincount(group)) + entropy(np.bincount(label)))
    return (
        _ratio(information, middle),
        _ratio(information - expected, middle - expected),
        float(cluster.adjusted_rand_score(label, group)),
        float(table.max(axis=0).sum() / len(label)),
    )


def _ratio(part: float, whole: float) -> float:
    """1 if both are 0: groups and labels are both one group, or both all different."""
    return part / whole if whole > 1e-12 else 1.0


def entropy(counts: npt.NDArray[np.integer]) -> float:
    """Entropy of the distribution ``counts / sum``, in nats."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def expected_mutual_information(first: Ints, second: Ints) -> float:
    """The mean mutual information of two random groupings with groups of these sizes, ``(R,)`` and ``(C,)``.

    A cell of the contingency table is hypergeometric and depends only on its group sizes a and b, and a million items
    have at most 1,413 different group sizes. So each pair of sizes is summed once, and only over counts within 12
    deviations plus 40 of the mean (beyond, the probability is below 1e-30). scikit-learn sums over all pairs of groups
    and all counts, which takes minutes a depth for a million items.
    """
    n = int(first.sum())
    (a, a_times), (b, b_times) = (np.unique(sizes, return_counts=True) for sizes in (first, second))
    factorial = require("scipy.special", "tokenizer").gammaln(np.arange(n + 1) + 1.0)
    a, b = (values.ravel() for values in np.meshgrid(a, b))
    times = np.outer(b_times, a_times).ravel()
    mean = a * (b / n)
    reach = 12.0 * np.sqrt(mean * (1.0 - a / n) * (1.0 - b / n) * (n / max(n - 1, 1))) + 40.0
    low = np.maximum(np.maximum(1, a + b - n), np.floor(mean - reach).astype(np.int64))
    terms = np.maximum(0, np.minimum(np.minimum(a, b), np.ceil(mean + reach).astype(np.int64)) + 1 - low)
    ends = np.cumsum(terms)
    total, start = 0.0, 0
    while start < len(a):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] - terms[start] + _CHUNK)))
        owner = np.repeat(np.arange(start, stop), terms[start:stop])
        count = low[owner] + np.arange(len(owner)) - (ends[owner] - terms[owner] - (ends[start] - terms[start]))
        x, y = a[owner], b[owner]
        log_probability = factorial[x] + factorial[y] + factorial[n - x] + factorial[n - y] - factorial[n]
        log_probability -= factorial[count] + factorial[x - count] + factorial[y - count] + factorial[n - x - y + count]
        value = times[owner] * (count / n) * np.log(count * (n / x) / y) * np.exp(log_probability)
        total += float(value.sum())
        start = stop
    return total


# --- columns of labels -------------------------------------------------------------------------------------------


def label_levels(labels: Any, items: int, separator: str | None = None) -> dict[str, Ints]:
    """Columns of labels as numbers ``(n,)`` by the name of their level; see :func:`ghrq.metrics.quality.quality`."""
    columns = _columns(labels)
    for name, column in columns.items():
        if len(column) != items:
            raise ValueError(f"expected {items} labels, one for each tuple, got {len(column)} for '{name}'")
    if separator is not None and len(columns) > 1:
        raise ValueError(f"a separator splits one column of paths into levels, got {len(columns)} columns: give one")
    texts = {name: _arrow(name, column) for name, column in columns.items()}
    if separator is not None:
        texts = _split(*texts.popitem(), separator)
    numbered = {
        name: text.dictionary_encode().indices.fill_null(NO_LABEL).to_numpy(zero_copy_only=False).astype(np.int64)
        for name, text in texts.items()
    }
    useful = {name: label for name, label in numbered.items() if label.max() > 0}
    if not useful:
        raise ValueError(f"expected labels of at least two kinds to compare with, got one or none in {list(columns)}")
    return useful


def _columns(labels: Any) -> dict[str, Any]:
    if isinstance(labels, Mapping):
        return {str(name): column for name, column in labels.items()}
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        labels = list(labels.T)
    several = isinstance(labels, Sequence) and len(labels) > 0
    several = several and hasattr(labels[0], "__len__") and not isinstance(labels[0], str | bytes)
    return {f"level {i}": column for i, column in enumerate(labels, start=1)} if several else {"label": labels}


def _arrow(name: str, column: Any) -> Any:
    """As one pyarrow array; missing labels are null."""
    pyarrow, compute = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    try:
        array = pyarrow.array(column.numpy() if isinstance(column, Tensor) else column, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, TypeError) as error:
        raise ValueError(f"expected labels of one type, all text or all numbers, in '{name}': {error}") from error
    array = array.combine_chunks() if isinstance(array, pyarrow.ChunkedArray) else array
    array = array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array
    if pyarrow.types.is_floating(array.type):
        return compute.if_else(compute.is_nan(array), None, array)
    if pyarrow.types.is_string(array.type) or pyarrow.types.is_large_string(array.type):
        return compute.if_else(compute.equal(compute.utf8_trim_whitespace(array), ""), None, array)
    return array


def _split(name: str, paths: Any, separator: str) -> dict[str, Any]:
    """For each level, the paths down to it; null for shorter ones."""
    pyarrow, compute = require("pyarrow", "tokenizer"), require("pyarrow.compute", "tokenizer")
    if not (pyarrow.types.is_string(paths.type) or pyarrow.types.is_large_string(paths.type)):
        raise ValueError(f"a separator splits text, got labels of type {paths.type} in '{name}'")
    parts = compute.split_pattern(paths, separator)
    length = compute.list_value_length(parts)
    deepest = compute.max(length).as_py() or 0
    return {
        f"level {level}": compute.if_else(
            compute.greater_equal(length, level),
            compute.binary_join(compute.list_slice(parts, 0, level), separator),
            None,
        )
        for level in range(1, deepest + 1)
    }
