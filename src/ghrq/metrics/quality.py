"""How good semantic IDs are, without training a recommender on them.

Every number that grows by itself stands beside what it would be by chance: purity and mutual information rise with the
number of groups, and neighbours share codes more often the fewer codes are in use.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.metrics.labels import LabelAgreement, entropy, label_agreement, label_levels
from ghrq.system.checks import at_least

if TYPE_CHECKING:
    from ghrq.data.arrays import Rows

Ints = npt.NDArray[np.int64]

# Rows whose reconstruction is measured; of a larger table, as many drawn at random: the mean is within 1 % or so.
RECONSTRUCTED_ROWS = 2**15
# Numbers in one piece of work: 32 MiB of float32.
_CHUNK = 2**23
# Sizes of the groups of items that share a tuple, first of each class.
_COLLISIONS = {"1": 1, "2": 2, "3": 3, "4-7": 4, "8+": 8}


class Prefixes(Protocol):
    """A fitted tokenizer, or a quantizer: what turns codes back into vectors."""

    def prefixes(self, codes: Any, /) -> Any:
        """``codes (n, depth)`` -> ``(n, depth, dim)``, the decode at every depth."""


@dataclass(frozen=True)
class Reconstruction:
    """What is lost when only the first m codes are kept; one float a depth."""

    rows: int
    """Items it was measured on: all, or a random sample of a large table."""
    variance: float
    """Mean ``‖x - mean‖²``: the error of saying the mean for everything."""
    mean_squared: list[float]
    """Mean ``‖x - x̂‖²``."""
    relative: list[float]
    """The same divided by the variance: 1 is no better than the mean, 0 is perfect."""


@dataclass(frozen=True)
class NeighbourAgreement:
    """Do items whose vectors are close share codes? Nearest neighbours are exact, by Euclidean distance."""

    k: int
    """Neighbours of each query."""
    queries: int
    """Items whose neighbours were looked for among all: all, or a random sample."""
    shared: list[float]
    """Share of the pairs of query and neighbour that share at least the first m codes, a depth each."""
    shared_random: list[float]
    """The same of all pairs of items: what a random pair shares."""
    mean_length: float
    """Mean number of first codes that a query and a neighbour share."""
    mean_length_random: float
    """The same of all pairs of items."""
    recall: float
    """Share of the k neighbours among the k items that share the most first codes (equals in random order)."""
    recall_random: float
    """The same of k random items."""


@dataclass(frozen=True)
class Quality:
    """All that was measured of ``items`` tuples. Lists have an entry for each stage or depth, coarse to fine."""

    items: int
    stages: int
    """Codes of each tuple. Usage, perplexity and uniqueness have one entry more if a tie-break token follows them."""
    codebook_size: list[int]
    usage: list[float]
    """Share of the codes that are used at all."""
    perplexity: list[float]
    """``exp`` of the entropy of the choice of codes: ``codebook_size`` if all are used alike."""
    uniqueness: list[float]
    """Distinct prefixes over items: 1 if every item has one of its own."""
    largest_group: list[int]
    """The most items that share a prefix."""
    collisions: dict[str, int]
    """How many whole tuples have 1, 2, 3, 4-7, 8+ items."""
    reconstruction: Reconstruction | None
    """With vectors and a tokenizer."""
    neighbours: NeighbourAgreement | None
    """With vectors."""
    labels: list[LabelAgreement]
    """With labels: a level each, coarse to fine."""

    def to_dict(self) -> dict[str, Any]:
        """As plain numbers, ready for JSON."""
        return asdict(self)

    def summary(self) -> list[list[str]]:
        """A short table for the terminal: the heading, then a row for each depth."""
        depths = range(len(self.usage))
        columns = {
            "depth": [str(m + 1) for m in depths],
            "usage": [f"{value:.1%}" for value in self.usage],
            "perplexity": [f"{self.perplexity[m]:.1f} of {self.codebook_size[m]}" for m in depths],
            "unique": [f"{value:.1%}" for value in self.uniqueness],
            "largest group": [f"{value:,}" for value in self.largest_group],
        }
        if self.reconstruction is not None:
            columns["error / variance"] = [f"{value:.3f}" for value in self.reconstruction.relative]
        if self.neighbours is not None:
            pairs = zip(self.neighbours.shared, self.neighbours.shared_random, strict=True)
            columns["neighbours share (random)"] = [f"{value:.1%} ({100 * random:.2g}%)" for value, random in pairs]
        for level in self.labels:
            columns[f"AMI, {level.level}"] = [f"{value:z.3f}" for value in level.codes.ami]
        rows = [[column[m] if m < len(column) else "" for column in columns.values()] for m in depths]
        return [list(columns), *rows]


def quality(
    codes: npt.ArrayLike | Tensor,
    X: Any = None,  # noqa: N803  (as scikit-learn calls it)
    tokenizer: Prefixes | None = None,
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
            usage, uniqueness and collisions, and is left out of all else.
        X: ``(n, d)`` the vectors that were encoded, in any form that :class:`ghrq.Tokenizer` takes. Needed for
            reconstruction and neighbours; rows of length 1 make Euclidean neighbours those of the cosine.
        tokenizer: a fitted :class:`ghrq.Tokenizer` or a :class:`ghrq.ResidualQuantizer`. Needed for reconstruction;
            without one, the size of each codebook is taken to be the largest code plus 1.
        labels: a column of ``n`` labels; or several, from coarse to fine, as a list of columns or a mapping from names
            to columns. Items without a label (``None``, NaN, an empty text) are left out of that level.
        neighbours: how many nearest neighbours of each query to compare with; 0 leaves them out.
        sample: how many queries, drawn at random: looking for all neighbours of all items would be quadratic.
        seed: of all random choices.
        separator: labels are paths like ``"a > b > c"``, to be cut into levels here: the label of level 2 is then
            ``"a > b"``, and paths that end above a level have no label on it.

    """
    table = _checked_codes(codes)
    at_least("neighbours", neighbours, 0, whole=True)
    at_least("sample", sample, 1, whole=True)
    items, k = len(table), min(neighbours, len(table) - 1)
    vectors = None if X is None else _vectors(X, items)
    levels = {} if labels is None else label_levels(labels, items, separator)
    sizes, stages = _codebooks(table, tokenizer)
    counts = [np.bincount(column, minlength=size) for column, size in zip(table.T, sizes, strict=True)]
    groups = _groups(table)
    members = [np.bincount(ids) for ids in groups]
    classes = np.digitize(members[-1], list(_COLLISIONS.values())) - 1
    reconstruction = nearest = None
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
        uniqueness=[len(member) / items for member in members],
        largest_group=[int(member.max()) for member in members],
        collisions=dict(zip(_COLLISIONS, np.bincount(classes, minlength=len(_COLLISIONS)).tolist(), strict=True)),
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


def _vectors(given: Any, items: int) -> "Rows":
    from ghrq.data.arrays import as_rows  # scikit-learn takes its time

    rows = as_rows(given)
    if rows.count != items:
        raise ValueError(f"expected X of {items} rows, one for each tuple, got {rows.count}")
    return rows


def _codebooks(codes: Ints, tokenizer: Prefixes | None) -> tuple[list[int], int]:
    """The size of each column's codebook, and how many columns are stages: all, or all but a tie-break token."""
    sizes = [int(code) + 1 for code in codes.max(0)]
    if tokenizer is None:
        return sizes, len(sizes)
    quantizer: Any = getattr(tokenizer, "quantizer_", tokenizer)
    stages, size = min(quantizer.num_stages, len(sizes)), quantizer.codebook_size
    if len(sizes) > stages + 1 or max(sizes[:stages]) > size:
        raise ValueError(
            f"expected codes as the tokenizer gives them, of up to {quantizer.num_stages} stages below {size} and "
            f"perhaps a tie-break token, got {len(sizes)} columns with codes up to {max(sizes[:stages]) - 1}: use the "
            "tokenizer that made them"
        )
    return [*[size] * stages, *sizes[stages:]], stages


def _groups(codes: Ints) -> list[Ints]:
    """For each depth ``(n,)``: the same number, from 0 on, for items that share so many first codes."""
    ids, found = np.zeros(len(codes), dtype=np.int64), []
    for column in codes.T:
        _, ids = np.unique(ids * (column.max() + 1) + column, return_inverse=True)
        found.append(ids)
    return found


def _drawn(items: int, count: int, seed: int) -> Ints:
    """Row numbers in rising order: all, or ``count`` of them at random."""
    return np.sort(np.random.default_rng(seed).permutation(items)[:count])


def _pieces(rows: int, numbers: int) -> Iterator[slice]:
    """Cut ``rows`` rows, each worth ``numbers`` numbers of memory."""
    step = max(1, _CHUNK // numbers)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _reconstruction(codes: Ints, vectors: "Rows", tokenizer: Prefixes, seed: int) -> Reconstruction:
    rows, depth, dim = _drawn(len(codes), RECONSTRUCTED_ROWS, seed), codes.shape[1], vectors.dim
    quantizer: Any = getattr(tokenizer, "quantizer_", tokenizer)
    error, total = torch.zeros(depth, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    square = 0.0
    for piece in _pieces(len(rows), 4 * depth * dim):  # float64, twice
        x = vectors.take(rows[piece]).double()
        given = torch.from_numpy(codes[rows[piece]]).to(quantizer.codebooks.device)
        decoded = torch.as_tensor(tokenizer.prefixes(given)).cpu().double()
        if decoded.shape[-1] != dim:
            raise ValueError(f"the tokenizer is for vectors of size {decoded.shape[-1]}, got X of size {dim}")
        error += (decoded - x.unsqueeze(1)).square_().sum((0, 2))
        total += x.sum(0)
        square += float(x.square().sum())
    variance = square / len(rows) - float((total / len(rows)).square().sum())
    mean = error / len(rows)
    relative = mean / variance if variance > 0.0 else torch.zeros_like(mean)
    return Reconstruction(len(rows), variance, mean.tolist(), relative.tolist())


# --- neighbours --------------------------------------------------------------------------------------------------


def _neighbours(
    groups: list[Ints], members: list[Ints], vectors: "Rows", k: int, sample: int, seed: int
) -> NeighbourAgreement:
    items = vectors.count
    queries = _drawn(items, sample, seed)
    nearest = _nearest(vectors, queries, k)
    same = np.stack([ids[queries, None] == ids[nearest] for ids in groups])
    length = same.sum(0)  # (Q, k): codes that query and neighbour share
    # (Q, N + 2): how many others share at least 0, 1, … codes with the query; nobody shares more than all.
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
        mean_length=float(shared.sum()),
        mean_length_random=sum(random),
        # The chance to be among the first k, of those with as many codes in common.
        recall=float(np.clip((k - before) / equal, 0.0, 1.0).mean()),
        recall_random=k / (items - 1),
    )


def _nearest(vectors: "Rows", queries: Ints, k: int) -> Ints:
    """The rows ``(Q, k)`` nearest to those of ``queries (Q,)``, themselves left out: a product for each piece of X."""
    q = vectors.take(queries)
    centre = q.mean(0)  # float32 cannot tell close points apart that lie far from the origin
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
