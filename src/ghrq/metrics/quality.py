"""Quality of semantic IDs: codebook usage, collisions, reconstruction, agreement with neighbours and labels.

No recommender is trained. Measures with a trend of their own come with their value for random data: purity and mutual
information rise with the number of groups, and neighbours share codes more often the fewer codes are in use.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.data.arrays import ArrayRows, as_rows
from ghrq.ids.tuples import tuple_ids
from ghrq.metrics.labels import LabelAgreement, entropy, label_agreement, label_levels
from ghrq.system.checks import at_least

Ints = npt.NDArray[np.int64]

# Reconstruction is measured on at most this many randomly drawn rows: the mean is within about 1 %.
RECONSTRUCTED_ROWS = 2**15
# Numbers processed at once: 32 MiB of float32.
_CHUNK = 2**23
# Classes of sizes of the groups of items that share a tuple, with their smallest size.
_COLLISIONS = {"1": 1, "2": 2, "3": 3, "4-7": 4, "8+": 8}


class PrefixDecoder(Protocol):
    """Decodes codes: a fitted tokenizer, or a quantizer."""

    def prefixes(self, codes: Any, /) -> Any:
        """``codes (n, depth)`` -> ``(n, depth, dim)``, the decode at every depth."""


@dataclass(frozen=True)
class ReconstructionError:
    """Reconstruction error when only the first m codes are kept; one float a depth."""

    rows: int
    """Measured items: all, or a random sample of a large table."""
    variance: float
    """Mean ``‖x - mean‖²``: the error of predicting the mean for every item."""
    mean_squared: list[float]
    """Mean ``‖x - x̂‖²``."""
    relative: list[float]
    """The same divided by the variance: 1 is no better than the mean, 0 is perfect."""


@dataclass(frozen=True)
class NeighbourAgreement:
    """How many codes nearest neighbours share. Neighbours are exact, by Euclidean distance."""

    k: int
    """Neighbours of each query."""
    queries: int
    """Items whose neighbours were searched among all items: all, or a random sample."""
    shared: list[float]
    """For each depth m, the fraction of pairs of query and neighbour that share at least the first m codes."""
    shared_random: list[float]
    """The same for all pairs of items: the value for a random pair."""
    hit: list[float]
    """For each depth m, the fraction of queries with at least one neighbour that shares the first m codes."""
    mean_length: float
    """Mean length of the prefix that a query and a neighbour share."""
    mean_length_random: float
    """The same for all pairs of items."""
    recall: float
    """Fraction of the k neighbours among the k items with the longest shared prefix (ties in random order)."""
    recall_random: float
    """The same for k random items."""


@dataclass(frozen=True)
class Quality:
    """All measures of ``items`` tuples. Lists have an entry for each stage or depth, coarse to fine."""

    items: int
    stages: int
    """Codes of each tuple. Usage, perplexity and uniqueness have one entry more if a tie-break token follows them."""
    codebook_size: list[int]
    usage: list[float]
    """Fraction of the codes that are used at all."""
    perplexity: list[float]
    """``exp`` of the entropy of the choice of codes: ``codebook_size`` if all are used equally."""
    entropy: list[float]
    """Of the choice of codes, in bits: ``log2(codebook_size)`` if all are used equally."""
    gini: list[float]
    """Of the number of items of each code: 0 if all have equally many, near 1 if one code has nearly all."""
    uniqueness: list[float]
    """Distinct prefixes divided by items: 1 if every item has its own."""
    largest_group: list[int]
    """Largest number of items that share a prefix."""
    collisions: dict[str, int]
    """Number of whole tuples with 1, 2, 3, 4-7, 8+ items."""
    distinct_vectors: int | None
    """With vectors: how many of them differ. Items with equal vectors have equal codes."""
    reconstruction: ReconstructionError | None
    """With vectors and a tokenizer."""
    neighbours: NeighbourAgreement | None
    """With vectors."""
    labels: list[LabelAgreement]
    """With labels: one entry a level, coarse to fine."""

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, ready for JSON."""
        return asdict(self)

    def summary(self) -> list[list[str]]:
        """A short table for the terminal: the heading, then a row for each depth."""
        depths = range(len(self.usage))
        columns = {
            "depth": [str(m + 1) if m < self.stages else "tie-break" for m in depths],
            "usage": [f"{value:.1%}" for value in self.usage],
            "perplexity": [f"{self.perplexity[m]:.1f} of {self.codebook_size[m]}" for m in depths],
            "Gini": [f"{value:.2f}" for value in self.gini],
            "unique": [f"{value:.1%}" for value in self.uniqueness],
            "largest group": [f"{value:,}" for value in self.largest_group],
        }
        if self.reconstruction is not None:
            columns["error / variance"] = [f"{value:.3f}" for value in self.reconstruction.relative]
        if self.neighbours is not None:
            pairs = zip(self.neighbours.shared, self.neighbours.shared_random, strict=True)
            columns["neighbours share (random)"] = [f"{value:.1%} ({percent(random)})" for value, random in pairs]
        for level in filter(lambda level: level.informative, self.labels):
            columns[f"AMI, {level.level}"] = [f"{value:z.3f}" for value in level.codes.ami]
        rows = [[column[m] if m < len(column) else "" for column in columns.values()] for m in depths]
        return [list(columns), *rows]


def percent(share: float) -> str:
    """In percent; two digits of a small share, so that little is not shown as nothing."""
    return f"{share:.1%}" if share >= 0.1 else f"{100 * share:.2g}%"


def gini(counts: npt.NDArray[np.integer]) -> float:
    """The Gini coefficient of ``counts (K,)``: mean ``|a - b|`` over all pairs, divided by twice the mean."""
    ordered, size = np.sort(counts).astype(np.float64), len(counts)
    weights = 2.0 * np.arange(1, size + 1) - size - 1.0
    return float((weights * ordered).sum() / (size * ordered.sum())) if ordered.sum() > 0.0 else 0.0


def row_errors(codes: Ints, X: Any, tokenizer: PrefixDecoder, seed: int = 0) -> npt.NDArray[np.float64]:  # noqa: N803
    """``‖x - x̂‖²`` of every row ``(n,)`` as a share of the variance; NaN outside the sample of a large table."""
    rows, errors, variance = _errors(codes, as_rows(X), tokenizer, seed)
    found = np.full(len(codes), np.nan)
    found[rows] = errors[:, -1].numpy() / variance if variance > 0.0 else 0.0
    return found


def quality(
    codes: npt.ArrayLike | Tensor,
    X: Any = None,  # noqa: N803  (as scikit-learn calls it)
    tokenizer: PrefixDecoder | None = None,
    labels: Any = None,
    neighbours: int = 10,
    sample: int = 1000,
    seed: int = 0,
    *,
    separator: str | None = None,
) -> Quality:
    """Measure the code tuples of ``n`` items; memory is bounded, a million items take a minute or two.

    Args:
        codes: ``(n, N)`` integers. With a tokenizer of N - 1 stages, the last one is a tie-break token: it counts for
            usage, uniqueness and collisions, and for nothing else.
        X: ``(n, d)`` the vectors that were encoded, in any form that :class:`ghrq.Tokenizer` accepts. Needed for
            reconstruction and neighbours; with rows of length 1, Euclidean neighbours are those by cosine.
        tokenizer: a fitted :class:`ghrq.Tokenizer` or a :class:`ghrq.ResidualQuantizer`. Needed for reconstruction;
            without one, the size of each codebook is taken to be the largest code plus 1.
        labels: a column of ``n`` labels; or several, from coarse to fine, as a list of columns or a mapping from names
            to columns. Items without a label (``None``, NaN, an empty text) are left out of that level.
        neighbours: number of nearest neighbours of each query; 0 skips this measure.
        sample: number of random queries: the search for the neighbours of all items would be quadratic.
        seed: for all random choices.
        separator: splits labels that are paths like ``"a > b > c"`` into levels: the label of level 2 is then
            ``"a > b"``, and shorter paths have no label on it.

    """
    table = _checked_codes(codes)
    at_least("neighbours", neighbours, 0, whole=True)
    at_least("sample", sample, 1, whole=True)
    items, k = len(table), min(neighbours, len(table) - 1)
    vectors = None if X is None else as_rows(X)
    if vectors is not None and vectors.count != items:
        raise ValueError(f"expected X of {items} rows, one for each tuple, got {vectors.count}")
    levels = {} if labels is None else label_levels(labels, items, separator)
    sizes, stages = _codebooks(table, tokenizer)
    counts = [np.bincount(column, minlength=size) for column, size in zip(table.T, sizes, strict=True)]
    groups = [tuple_ids(table[:, : depth + 1]) for depth in range(table.shape[1])]  # of items with equal prefixes
    members = [np.bincount(ids) for ids in groups]
    classes = np.digitize(members[-1], list(_COLLISIONS.values())) - 1
    reconstruction = nearest = distinct = None
    if vectors is not None:
        distinct = _count_distinct(vectors)
    if vectors is not None and tokenizer is not None:
        reconstruction = _reconstruction(table[:, :stages], vectors, tokenizer, seed)
    if vectors is not None and k > 0:
        nearest = _neighbours(groups[:stages], members[:stages], vectors, k, sample, seed)
    return Quality(
        items=items,
        stages=stages,
        codebook_size=sizes,
        usage=[float((count > 0).mean()) for count in counts],
        perplexity=[float(np.exp(entropy(count))) for count in counts],
        entropy=[entropy(count) / math.log(2.0) for count in counts],
        gini=[gini(count) for count in counts],
        uniqueness=[len(member) / items for member in members],
        largest_group=[int(member.max()) for member in members],
        collisions=dict(zip(_COLLISIONS, np.bincount(classes, minlength=len(_COLLISIONS)).tolist(), strict=True)),
        distinct_vectors=distinct,
        reconstruction=reconstruction,
        neighbours=nearest,
        labels=[label_agreement(name, groups[:stages], label, seed) for name, label in levels.items()],
    )


# --- codes and vectors -------------------------------------------------------------------------------------------


def _checked_codes(codes: npt.ArrayLike | Tensor) -> Ints:
    table = codes.cpu().numpy() if isinstance(codes, Tensor) else np.asarray(codes)
    if table.ndim != 2 or 0 in table.shape or not np.issubdtype(table.dtype, np.integer):
        raise ValueError(
            f"expected codes as integers of shape (n, N), neither of them 0, got {table.dtype} of shape {table.shape}"
        )
    if table.min() < 0:
        raise ValueError(f"codes count from 0, got {table.min()} in row {int(table.min(1).argmin())}")
    return table.astype(np.int64)


def _codebooks(codes: Ints, tokenizer: PrefixDecoder | None) -> tuple[list[int], int]:
    """The size of each column's codebook, and how many columns are stages: all, or all but a tie-break token."""
    sizes = [int(code) + 1 for code in codes.max(0)]
    if tokenizer is None:
        return sizes, len(sizes)
    quantizer: Any = getattr(tokenizer, "quantizer_", tokenizer)
    stages = min(quantizer.num_stages, len(sizes))
    own = list(quantizer.sizes[:stages])
    if len(sizes) > stages + 1 or any(found > size for found, size in zip(sizes, own, strict=False)):
        below = quantizer.codebook_size
        raise ValueError(
            f"expected codes as the tokenizer gives them, of up to {quantizer.num_stages} stages below {below} and "
            f"perhaps a tie-break token, got {len(sizes)} columns with codes up to {max(sizes[:stages]) - 1}: use the "
            "tokenizer that made them"
        )
    # Of a tie-break token, all codes that the tokenizer has for it: how near is the limit?
    return [*own, *(max(size, getattr(tokenizer, "tie_break_size_", 0)) for size in sizes[stages:])], stages


def _drawn(items: int, count: int, seed: int) -> Ints:
    """Row numbers, ascending: all, or ``count`` of them at random."""
    return np.sort(np.random.default_rng(seed).permutation(items)[:count])


def _pieces(rows: int, numbers: int) -> Iterator[slice]:
    """Split ``rows`` rows, each of which needs ``numbers`` numbers of memory."""
    step = max(1, _CHUNK // numbers)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _count_distinct(vectors: ArrayRows) -> int:
    """Number of different rows, by 64-bit hashes of them."""
    factors = np.random.default_rng(0).integers(2**63, size=vectors.dim, dtype=np.uint64) * 2 + 1
    hashes = np.empty(vectors.count, dtype=np.uint64)
    for piece in _pieces(vectors.count, 6 * vectors.dim):
        bits = (vectors.take(piece).double() + 0.0).numpy().view(np.uint64)  # -0.0 + 0.0 is 0.0
        hashes[piece] = ((bits ^ (bits >> np.uint64(32))) * factors).sum(axis=1)
    return len(np.unique(hashes))


def _errors(codes: Ints, vectors: ArrayRows, tokenizer: PrefixDecoder, seed: int) -> tuple[Ints, Tensor, float]:
    """The rows that are measured, their squared errors ``(rows, N)`` by depth, and the variance of their vectors."""
    rows, depth, dim = _drawn(len(codes), RECONSTRUCTED_ROWS, seed), codes.shape[1], vectors.dim
    quantizer: Any = getattr(tokenizer, "quantizer_", tokenizer)
    errors, total = torch.zeros(len(rows), depth, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    square = 0.0
    for piece in _pieces(len(rows), 4 * depth * dim):  # float64, twice
        x = vectors.take(rows[piece]).double()
        given = torch.from_numpy(codes[rows[piece]]).to(quantizer.codebooks.device)
        decoded = torch.as_tensor(tokenizer.prefixes(given)).cpu().double()
        if decoded.shape[-1] != dim:
            raise ValueError(f"the tokenizer is for vectors of size {decoded.shape[-1]}, got X of size {dim}")
        errors[piece] = (decoded - x.unsqueeze(1)).square_().sum(2)
        total += x.sum(0)
        square += float(x.square().sum())
    return rows, errors, square / len(rows) - float((total / len(rows)).square().sum())


def _reconstruction(codes: Ints, vectors: ArrayRows, tokenizer: PrefixDecoder, seed: int) -> ReconstructionError:
    rows, errors, variance = _errors(codes, vectors, tokenizer, seed)
    mean = errors.mean(0)
    relative = mean / variance if variance > 0.0 else torch.zeros_like(mean)
    return ReconstructionError(len(rows), variance, mean.tolist(), relative.tolist())


# --- neighbours --------------------------------------------------------------------------------------------------


def _neighbours(
    groups: list[Ints], members: list[Ints], vectors: ArrayRows, k: int, sample: int, seed: int
) -> NeighbourAgreement:
    items = vectors.count
    queries = _drawn(items, sample, seed)
    nearest = _nearest(vectors, queries, k)
    same = np.stack([ids[queries, None] == ids[nearest] for ids in groups])
    length = same.sum(0)  # (Q, k): length of the shared prefix
    # (Q, N + 2): number of others that share at least 0, 1, … codes with the query; 0 for more than N.
    sharing = np.zeros((len(queries), len(groups) + 2), dtype=np.int64)
    sharing[:, 0] = items - 1
    sharing[:, 1:-1] = np.stack([count[ids[queries]] - 1 for ids, count in zip(groups, members, strict=True)], axis=1)
    before = np.take_along_axis(sharing, length + 1, axis=1)
    equal = np.take_along_axis(sharing, length, axis=1) - before
    shared = same.mean((1, 2))
    random = [float((count * (count - 1.0)).sum() / (items * (items - 1.0))) for count in members]
    return NeighbourAgreement(
        k=k,
        queries=len(queries),
        shared=shared.tolist(),
        shared_random=random,
        hit=same.any(2).mean(1).tolist(),
        mean_length=float(shared.sum()),
        mean_length_random=sum(random),
        # The probability to be among the first k, with ties in random order.
        recall=float(np.clip((k - before) / equal, 0.0, 1.0).mean()),
        recall_random=k / (items - 1),
    )


def _nearest(vectors: ArrayRows, queries: Ints, k: int) -> Ints:
    """The rows ``(Q, k)`` nearest to the rows ``queries (Q,)``, without themselves: one product for each piece of X."""
    q = vectors.take(queries)
    centre = q.mean(0)  # float32 cannot distinguish close points far from the origin
    q = (q - centre).float()
    place = torch.from_numpy(queries)
    best = torch.full((len(queries), k), torch.inf)
    rows = torch.zeros(len(queries), k, dtype=torch.int64)
    for piece in _pieces(vectors.count, max(q.shape)):
        x = (vectors.take(piece) - centre).float()
        values = torch.addmm(x.square().sum(1), q, x.mT, alpha=-2.0)
        own = ((place >= piece.start) & (place < piece.stop)).nonzero().squeeze(1)
        values[own, place[own] - piece.start] = torch.inf
        found = values.topk(min(k, len(x)), dim=1, largest=False)
        best, order = torch.cat((best, found.values), dim=1).topk(k, dim=1, largest=False)
        rows = torch.cat((rows, found.indices + piece.start), dim=1).gather(1, order)
    return rows.numpy()
