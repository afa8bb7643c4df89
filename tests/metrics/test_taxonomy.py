"""Recovery of a taxonomy: against brute force over pairs and clusters, against scikit-learn, and on known trees."""

import itertools
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import cophenet, linkage, to_tree
from scipy.spatial.distance import pdist
from sklearn.cluster import AgglomerativeClustering

from ghrq import ball
from ghrq.metrics.taxonomy import LINKAGES, SCORES, dendrogram_purity, distances, prototypes, recover, resample


def plain_dendrogram_purity(merges, labels):
    """Pair by pair, walking down scipy's own tree."""
    shares = []
    for i, j in itertools.combinations(range(len(labels)), 2):
        if labels[i] == labels[j]:
            node = to_tree(merges)
            while not node.is_leaf():
                inside = [child for child in (node.left, node.right) if {i, j} <= set(child.pre_order())]
                if not inside:
                    break
                node = inside[0]
            leaves = node.pre_order()
            shares.append(np.mean([labels[leaf] == labels[i] for leaf in leaves]))
    return np.mean(shares)


def plain_rand(a, b):
    """The adjusted Rand index from the four kinds of pairs."""
    pairs = Counter((a[i] == a[j], b[i] == b[j]) for i, j in itertools.combinations(range(len(a)), 2))
    both, first, second = pairs[True, True], pairs[True, False], pairs[False, True]
    total = sum(pairs.values())
    expected = (both + first) * (both + second) / total
    return (both - expected) / ((2 * both + first + second) / 2 - expected)


def plain_nmi(a, b):
    def entropy(values):
        p = np.array(list(Counter(values).values())) / len(values)
        return -(p * np.log(p)).sum()

    joint = entropy(list(zip(a, b, strict=True)))
    return 2 * (entropy(a) + entropy(b) - joint) / (entropy(a) + entropy(b))


@pytest.mark.parametrize("method", ["single", "average", "complete"])
def test_dendrogram_purity_is_the_mean_over_all_pairs(method):
    chance = np.random.default_rng(0)
    merges = linkage(pdist(chance.normal(size=(23, 3))), method)
    labels = np.stack([chance.integers(0, groups, 23) for groups in (2, 5, 9)])
    expected = [plain_dendrogram_purity(merges, row) for row in labels]
    np.testing.assert_allclose(dendrogram_purity(merges, labels), expected, rtol=1e-13)


def test_dendrogram_purity_by_hand():
    # ((a b) b) a: the pair of b's meets among three leaves, of which two are b's; the pair of a's at the root.
    merges = np.array([[0, 1, 1.0, 2], [4, 2, 2.0, 3], [5, 3, 3.0, 4]])
    assert dendrogram_purity(merges, [[0, 1, 1, 0]]).item() == pytest.approx((2 / 3 + 1 / 2) / 2)


@pytest.mark.parametrize("c", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("method", LINKAGES)
def test_every_score_is_what_counting_gives(c, method):
    points, groups = torch.randn(30, 4).double() * 0.2, torch.randint(6, (30,))
    found = recover(points, groups, c, clusters=6, linkage=method, shuffles=3)
    labels, cut = groups.tolist(), found.cut.tolist()
    assert len(set(cut)) == 6
    assert found.ari.value == pytest.approx(plain_rand(labels, cut), abs=1e-12)
    assert found.nmi.value == pytest.approx(plain_nmi(labels, cut), abs=1e-12)
    most = [max(Counter(g for g, k in zip(labels, cut, strict=True) if k == cluster).values()) for cluster in set(cut)]
    assert found.purity.value == pytest.approx(sum(most) / 30)
    assert found.dendrogram_purity.value == pytest.approx(plain_dendrogram_purity(found.linkage, labels))
    table = ball.pairwise_distance(points, points, c).numpy() if c else torch.cdist(points, points).numpy()
    hits = [
        labels[j] == labels[i]
        for i in range(30)
        for j in sorted(set(range(30)) - {i}, key=lambda j, row=table[i]: row[j])[:4]
    ]
    assert found.sibling_precision.value == pytest.approx(np.mean(hits))
    correlation, _ = cophenet(found.linkage, table[np.triu_indices(30, 1)])
    assert found.cophenetic == pytest.approx(correlation, abs=1e-12)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_the_cut_is_scikit_learns(c):
    points, groups = torch.randn(100, 8).double() * 0.2, torch.arange(100) % 20
    found = recover(points, groups, c, shuffles=1)
    peer = AgglomerativeClustering(20, metric="precomputed", linkage="average").fit(distances(points, c).numpy())
    assert plain_rand(found.cut.tolist(), peer.labels_.tolist()) == 1.0


def test_equal_heights_are_cut_into_as_many_clusters_as_asked_for():
    corners = torch.eye(8)
    found = recover(corners, torch.arange(8) % 4, 0.0, clusters=5, shuffles=1)
    assert len(set(found.cut.tolist())) == 5
    assert np.isnan(found.cophenetic)


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_a_perfect_taxonomy_scores_one_and_random_labels_do_not(c):
    centres = torch.nn.functional.normalize(torch.randn(20, 16).double(), dim=1) * 0.6
    groups = torch.arange(100) % 20
    points = centres[groups] + 0.01 * torch.randn(100, 16).double()
    found = recover(points, groups * 7 + 3, c)
    for score in (found.ari, found.nmi, found.purity, found.dendrogram_purity, found.sibling_precision):
        assert score.value == pytest.approx(1.0, abs=1e-12)
    assert abs(found.ari.random) < 0.02
    # The chance that a nearest neighbour is one of the 4 siblings among 99 others.
    assert found.sibling_precision.random == pytest.approx(4 / 99, abs=0.01)
    assert 0.05 < found.dendrogram_purity.random < 0.25


def test_shuffles_are_those_of_the_seed():
    points, groups = torch.randn(40, 3), torch.arange(40) % 8
    first, again, other = (recover(points, groups, 0.0, clusters=8, shuffles=5, seed=seed) for seed in (1, 1, 2))
    assert first.ari == again.ari
    assert first.ari.random != other.ari.random
    assert first.ari.value == other.ari.value


@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
def test_prototypes_are_midpoints_class_by_class(c, monkeypatch):
    points, labels = torch.randn(50, 7, 3) * 0.3, torch.randint(5, (50,))
    if c:
        points = ball.expmap0(points, c)
    monkeypatch.setattr("ghrq.metrics.taxonomy._CHUNK", 7 * 3 * 8)
    found = prototypes(points, labels, 5, c)
    assert found.dtype == torch.float64
    middle = (lambda x: ball.midpoint(x.double(), c=c)) if c else (lambda x: x.double().mean(-2))
    expected = torch.stack([middle(middle(points)[labels == k]) for k in range(5)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    flat = prototypes(middle(points), labels, 5, c)
    torch.testing.assert_close(flat, expected, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(prototypes(points[:, 0], labels, 5, c), expected, atol=1e-3)


@pytest.mark.slow
def test_resampling_draws_within_classes():
    """Where all things of a class are in one place it makes no difference which are drawn."""
    centres, coarse_of = ball.expmap0(torch.randn(12, 3)), torch.arange(12) % 4
    labels = torch.cat([torch.arange(12), torch.randint(12, (80,))])
    spread = resample(centres[labels], labels, coarse_of, 1.0, clusters=4, times=5)
    found = recover(centres, coarse_of, 1.0, clusters=4)
    assert tuple(spread) == SCORES
    for name in SCORES:
        assert spread[name].mean == pytest.approx(getattr(found, name).value, abs=1e-12)
        assert spread[name].deviation == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_resampled_scores_vary_as_those_of_new_things_do():
    centres, coarse_of = torch.randn(40, 2).double(), torch.arange(40) % 8
    labels = torch.arange(40).repeat(50)

    def things():
        return centres[labels] + 4.0 * torch.randn(len(labels), 2).double()

    new = [recover(prototypes(things(), labels, 40, 0.0), coarse_of, 0.0, clusters=8, shuffles=1) for _ in range(200)]
    spread, again, other = (
        resample(points, labels, coarse_of, 0.0, clusters=8, seed=seed) for points in [things()] for seed in (1, 1, 2)
    )
    assert spread == again != other
    # The deviation over new things is known to 5 %; one set of things tells it to some 20 %.
    deviation = np.std([found.sibling_precision.value for found in new])
    assert spread["sibling_precision"].deviation == pytest.approx(deviation, rel=0.5)


def test_distances_are_geodesic_or_euclidean():
    points = ball.expmap0(torch.randn(9, 4) * 0.5)
    hyperbolic, flat = distances(points, 1.0), distances(points, 0.0)
    assert hyperbolic[2, 5].item() == pytest.approx(ball.distance(points[2].double(), points[5].double()).item())
    assert flat[2, 5].item() == pytest.approx((points[2].double() - points[5].double()).norm().item())


def test_mistakes_are_named():
    points, labels = torch.zeros(4, 2), torch.tensor([0, 0, 1, 3])
    with pytest.raises(ValueError, match=r"1 of 4 classes have no point.*class 2"):
        prototypes(points, labels, 4, 1.0)
    with pytest.raises(ValueError, match="from 0 to 2, got 0 to 3"):
        prototypes(points, labels, 3, 1.0)
    with pytest.raises(ValueError, match=r"outside the ball of c=1\.0"):
        prototypes(points + 1.0, torch.arange(4), 4, 1.0)
    with pytest.raises(ValueError, match="not finite"):
        prototypes(points / 0.0, torch.arange(4), 4, 0.0)
    with pytest.raises(ValueError, match=r"labels \(n,\)"):
        prototypes(points, labels[:3], 4, 1.0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        prototypes(points, labels, 4, -1.0)
    with pytest.raises(ValueError, match=r"average, complete.*'ward'"):
        recover(points, labels, 0.0, linkage="ward")
    with pytest.raises(ValueError, match="clusters must be from 1 to 4"):
        recover(points, labels, 0.0)
    with pytest.raises(ValueError, match="neighbours must be from 1 to 3"):
        recover(points, labels, 0.0, clusters=2)
    with pytest.raises(ValueError, match="nothing to recover"):
        recover(points, torch.arange(4), 0.0, clusters=2, neighbours=1)


def test_the_colours_of_cifar_100_know_a_little_of_its_superclasses():
    """A coarse picture's colours, with nothing learnt: what codes have to beat."""
    path = Path(os.environ.get("GHRQ_DATA", "")) / "cifar-100-binary" / "test.bin"
    if not os.environ.get("GHRQ_DATA") or not path.is_file():
        pytest.skip("needs cifar-100-binary/test.bin in the folder GHRQ_DATA")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, 3074)
    coarse, fine = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    coarse_of = torch.zeros(100, dtype=torch.int64)
    coarse_of[fine] = torch.as_tensor(coarse)
    pixels = records[:, 2:].reshape(-1, 3, 8, 4, 8, 4).mean((3, 5)).transpose(0, 2, 3, 1).reshape(-1, 64, 3)
    points = prototypes(torch.as_tensor(pixels / 255), torch.as_tensor(fine), 100, 0.0)
    found = recover(points, coarse_of, 0.0)
    assert found.ari.value > 0.03 > found.ari.random
    assert found.sibling_precision.value > 2 * found.sibling_precision.random
