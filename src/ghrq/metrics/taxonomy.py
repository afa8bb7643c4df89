"""Compare points with a taxonomy of two levels, such as CIFAR-100's: 100 classes in 20 superclasses.

Each class gets one point, its prototype; the prototypes are merged into a tree by hierarchical clustering; the tree and
its cut into clusters are compared with the true superclasses. Most scores are above 0 for any tree, so each comes with
its value for randomly permuted superclasses.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ghrq.geometry import ball, midpoints
from ghrq.system.errors import require
from ghrq.system.progress import Progress

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The linkages for any distances; Ward's and the centroids' assume Euclidean ones.
LINKAGES = ("average", "complete", "single", "weighted")
# Elements of the largest temporary float64 tensors.
_CHUNK = 2**22


class Score(NamedTuple):
    """A score, and its mean for randomly permuted superclasses."""

    value: float
    random: float


class Spread(NamedTuple):
    """Mean and standard deviation of a score over bootstrap samples."""

    mean: float
    deviation: float


SCORES = ("ari", "nmi", "purity", "dendrogram_purity", "sibling_precision")
"""Names of the scores of a :class:`Taxonomy`."""


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """How well a tree over ``m`` prototypes agrees with their superclasses. All scores are at most 1."""

    ari: Score
    """Adjusted Rand index of the cut."""
    nmi: Score
    """Mutual information of the cut, normalised by the arithmetic mean of the entropies."""
    purity: Score
    """Fraction of the classes whose superclass is the most frequent one in their cluster of the cut."""
    dendrogram_purity: Score
    """Mean, over pairs of classes of one superclass, of that superclass's share of the smallest subtree with both."""
    sibling_precision: Score
    """Fraction of a prototype's nearest neighbours with its superclass, mean over prototypes."""
    cophenetic: float
    """Correlation of the heights at which pairs merge with their distances; independent of the superclasses."""
    linkage: Floats = field(repr=False)
    """``(m - 1, 4)``, the merges in scipy's format."""
    cut: Ints = field(repr=False)
    """``(m,)``, the cluster of each class."""


def centres(points: Tensor, c: float) -> Tensor:
    """One point for each item, ``(n, d)`` float64: the midpoint of its ``points (n, positions, d)``."""
    rows = max(1, _CHUNK // points[0].numel())
    parts = [part.double() for part in points.split(rows)]
    return torch.cat([ball.midpoint(part, c=c) if c > 0.0 else part.mean(1) for part in parts])


def prototypes(points: Tensor, labels: Tensor, classes: int, c: float) -> Tensor:
    """One point for each class, ``(classes, d)`` float64: the ball's midpoint of its points, their mean for ``c = 0``.

    ``points (n, d)`` are on the ball of curvature ``-c`` if ``c > 0``; of ``(n, positions, d)``, several for each item,
    the :func:`centres` are used. ``labels (n,)`` int64 are from 0 to ``classes - 1``; each class has at least one.
    """
    _check_points(points, labels, classes, c)
    points = centres(points, c) if points.dim() == 3 else points.double()
    if c > 0.0:
        return midpoints.from_sums(*midpoints.sums(points, labels, classes, c), c)
    sums = points.new_zeros(classes, points.shape[1]).index_add_(0, labels, points)
    return sums / torch.bincount(labels, minlength=classes).unsqueeze(1)


def distances(points: Tensor, c: float) -> Tensor:
    """All distances ``(m, m)`` float64 between ``points (m, d)``: geodesic for ``c > 0``, Euclidean for ``c = 0``."""
    points = points.double()
    if c > 0.0:
        return ball.pairwise_distance(points, points, c)
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def recover(
    points: Tensor,
    coarse_of: Tensor,
    c: float,
    *,
    clusters: int = 20,
    linkage: str = "average",
    neighbours: int = 4,
    shuffles: int = 100,
    seed: int = 42,
) -> Taxonomy:
    """Cluster the prototypes ``points (m, d)`` into a tree, cut it, and compare both with the superclasses.

    ``coarse_of (m,)`` integers are the superclasses, ``c`` is minus the curvature (0 is flat). The tree is made by a
    ``linkage`` of :data:`LINKAGES` and cut into ``clusters``; the sibling precision is that of the nearest
    ``neighbours``. Scores for random superclasses are means over ``shuffles`` permutations.
    """
    groups = np.unique(coarse_of.numpy(), return_inverse=True)[1].astype(np.int64)
    _check_tree(points, groups, clusters, linkage, neighbours, shuffles)
    hierarchy = require("scipy.cluster.hierarchy", "image")
    between = distances(points, c).numpy()
    condensed = between[np.triu_indices(len(groups), 1)]
    merges = hierarchy.linkage(condensed, method=linkage)
    # Not fcluster: with equal heights it makes fewer clusters than requested.
    cut = hierarchy.cut_tree(merges, n_clusters=clusters)[:, 0].astype(np.int64)

    chance = np.random.default_rng(seed)
    labels = np.stack([groups, *(chance.permutation(groups) for _ in range(shuffles))])
    score = require("sklearn.metrics.cluster", "image")
    return Taxonomy(
        ari=_score([score.adjusted_rand_score(row, cut) for row in labels]),
        nmi=_score([score.normalized_mutual_info_score(row, cut) for row in labels]),
        purity=_score([score.contingency_matrix(row, cut).max(axis=0).sum() / len(cut) for row in labels]),
        dendrogram_purity=_score(dendrogram_purity(merges, labels)),
        sibling_precision=_score(_sibling_precision(between, labels, neighbours)),
        cophenetic=_correlation(hierarchy.cophenet(merges), condensed),
        linkage=merges,
        cut=cut,
    )


def resample(
    points: Tensor,
    labels: Tensor,
    coarse_of: Tensor,
    c: float,
    *,
    clusters: int = 20,
    times: int = 50,
    seed: int = 42,
    progress: Progress | None = None,
) -> dict[str, Spread]:
    """Bootstrap: how much the scores vary with the sample of items in each class.

    ``times`` times, each class is resampled with replacement and :func:`recover` scores the new prototypes. Arguments
    as for :func:`prototypes` and :func:`recover`; the same ``seed`` gives the same samples.
    """
    chance = np.random.default_rng(seed)
    order = torch.argsort(labels, stable=True)
    size = torch.bincount(labels, minlength=len(coarse_of))
    first, many = (size.cumsum(0) - size)[labels[order]], size[labels[order]]
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    with (progress or Progress()).patient_bar("trees", times) as bar:
        for _ in range(times):
            place = first + (torch.from_numpy(chance.random(len(labels))) * many).long()
            drawn = prototypes(points[order[place]], labels[order], len(coarse_of), c)
            scored = recover(drawn, coarse_of, c, clusters=clusters, shuffles=1)
            for name, values in found.items():
                values.append(getattr(scored, name).value)
            bar.advance()
    return {name: Spread(float(np.mean(values)), float(np.std(values))) for name, values in found.items()}


def dendrogram_purity(linkage: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """The exact dendrogram purity of a tree for each row of ``labels (S, m)``: ``(S,)``.

    Let a merge join subtrees with ``a_g`` and ``b_g`` leaves of group g. It is the lowest common ancestor of
    ``a_g b_g`` pairs of that group, and g's fraction of its leaves is ``(a_g + b_g) / Σ_h (a_h + b_h)``. So
    the mean over all pairs is ``Σ_merges Σ_g a_g b_g (a_g + b_g) / Σ_h (a_h + b_h)`` over ``Σ_g n_g (n_g - 1) / 2``.

    ``linkage (m - 1, 4)`` are the merges in scipy's format, labels from 0; in each row at least two leaves share one.
    """
    merges, groups = np.asarray(linkage), np.asarray(labels)
    m = len(merges) + 1
    # (2m - 1, m): 1 where a leaf is below a node or equal to it; first the leaves, then the merges in order.
    below = np.concatenate((np.eye(m), np.zeros((m - 1, m))))
    for node, (a, b) in enumerate(merges[:, :2].astype(np.int64), start=m):
        below[node] = below[a] + below[b]
    # (nodes, S, groups): the leaves of each group below each node.
    members = (groups[..., None] == np.arange(groups.max() + 1)).astype(np.float64)
    count = np.einsum("km,smg->ksg", below, members, optimize=True)
    left, right = (count[merges[:, side].astype(np.int64)] for side in (0, 1))
    share = (left + right) / below[m:].sum(1)[:, None, None]
    size = members.sum(1)
    return (left * right * share).sum((0, 2)) / (size * (size - 1.0) / 2.0).sum(1)


def _sibling_precision(between: Floats, labels: Ints, neighbours: int) -> Floats:
    """``(S,)`` for ``labels (S, m)``; of equally near prototypes, the lower number comes first."""
    others = between.copy()
    np.fill_diagonal(others, np.inf)
    nearest = np.argsort(others, axis=1, kind="stable")[:, :neighbours]
    return (labels[:, nearest] == labels[:, :, None]).mean((1, 2))


def _correlation(a: Floats, b: Floats) -> float:
    """NaN if one of them is constant: all distances are equal."""
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0.0 and np.ptp(b) > 0.0 else float("nan")


def _score(values: npt.ArrayLike) -> Score:
    """The first value is for the true labels, the others for random ones."""
    table = np.asarray(values, dtype=np.float64)
    return Score(float(table[0]), float(table[1:].mean()))


def _check_points(points: Tensor, labels: Tensor, classes: int, c: float) -> None:
    if points.dim() not in (2, 3) or labels.shape != points.shape[:1]:
        raise ValueError(
            f"expected points (n, d) or (n, positions, d) and labels (n,), got {tuple(points.shape)} and "
            f"{tuple(labels.shape)}"
        )
    if not c >= 0.0:
        raise ValueError(f"c must be at least 0, got {c}")
    if not len(points) or not points.isfinite().all():
        raise ValueError("there are no points, or some are not finite")
    if c > 0.0 and c * float(torch.linalg.vector_norm(points, dim=-1, dtype=torch.float64).max()) ** 2 >= 1.0:
        raise ValueError(f"some points are outside the ball of c={c}: map them with ghrq.geometry.ball.expmap0 first")
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")
    missing = (torch.bincount(labels, minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"{len(missing)} of {classes} classes have no point, the first of them class {missing[0]}")


def _check_tree(points: Tensor, groups: Ints, clusters: int, linkage: str, neighbours: int, shuffles: int) -> None:
    if points.dim() != 2 or groups.shape != (len(points),):
        raise ValueError(f"expected points (m, d) and coarse_of (m,), got {tuple(points.shape)} and {groups.shape}")
    if linkage not in LINKAGES:
        raise ValueError(f"linkage must be one of {', '.join(LINKAGES)}, got {linkage!r}")
    for name, value, most in (("clusters", clusters, len(points)), ("neighbours", neighbours, len(points) - 1)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} must be from 1 to {most} for {len(points)} prototypes, got {value}")
    if shuffles < 1:
        raise ValueError(f"shuffles must be at least 1, got {shuffles}")
    if len(np.unique(groups)) == len(groups):
        raise ValueError("every class is alone in its superclass: there is nothing to recover")
