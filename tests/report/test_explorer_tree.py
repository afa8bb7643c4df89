"""The tree of prefixes: the trie of the codes, in an order in which neighbours are alike."""

import numpy as np
import pytest
import torch
from explored import small_codes

from ghrq import ball
from ghrq.ids import PrefixTrie
from ghrq.report.explorer_tree import code_tree

KINDS = ["ghrq", "naive", "euclidean"]


def walk(tree):
    """The tuple of every node, the root first."""
    tuples, nodes = [()], iter(range(1, len(tree.children)))
    for node, count in enumerate(tree.children):
        tuples += [(*tuples[node], int(tree.code[next(nodes)])) for _ in range(count)]
    return tuples


def items_below(tree, tuples):
    """For every node, its items as rows."""
    leaves = tuples[-len(tree.leaf_items) :]
    of_leaf = np.split(tree.order, np.cumsum(tree.leaf_items)[:-1])
    below = dict.fromkeys(tuples, ())
    for leaf, rows in zip(leaves, of_leaf, strict=True):
        for depth in range(len(leaf) + 1):
            below[leaf[:depth]] += tuple(rows)
    return below


@pytest.mark.parametrize("kind", KINDS)
def test_every_prefix_is_a_node_with_its_items(kind):
    explored = small_codes(kind)
    codes = explored.codes
    tree = code_tree(codes, np.arange(len(codes)), explored.quantizer)
    tuples, trie = walk(tree), PrefixTrie(codes, 8)
    assert len(tuples) == len(set(tuples)) == 1 + sum(trie.num_nodes(depth) for depth in (1, 2, 3))
    below = items_below(tree, tuples)
    for node, prefix in enumerate(tuples):
        rows = np.flatnonzero((codes[:, : len(prefix)] == np.array(prefix, dtype=np.int64)).all(1))
        assert sorted(below[prefix]) == rows.tolist()
        assert tree.count[node] == len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_distances_and_the_items_that_speak_for_a_prefix(kind):
    explored = small_codes(kind)
    codes, rq = explored.codes, explored.quantizer
    tree = code_tree(codes, np.arange(len(codes)), rq)
    tuples = walk(tree)
    below = items_below(tree, tuples)
    whole, origin = rq.points(rq.decode(torch.from_numpy(codes))), torch.zeros(1, 5)
    away = []
    for node, prefix in enumerate(tuples):
        point = rq.points(rq.decode(torch.tensor([prefix]))) if prefix else origin
        away.append(ball.distance(point, origin, rq.curvature).item())
        rows = list(below[prefix])
        detour = ball.distance(whole[rows], point, rq.curvature) + ball.distance(whole[rows], origin, rq.curvature)
        assert tree.order[tree.like[node]] in rows
        chosen = rows.index(tree.order[tree.like[node]])
        assert detour[chosen] <= detour.min() * (1 + 1e-5)
    if kind == "euclidean":  # scaled to fit onto the disk
        away = np.array(away) * 2 * np.arctanh(0.5) / np.median(away[-len(tree.leaf_items) :])
    np.testing.assert_allclose(tree.distance, away, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_distances_of_codes_are_those_of_decoded_siblings(kind):
    """Whatever the prefix is: adding on the left is an isometry."""
    explored = small_codes(kind)
    rq = explored.quantizer
    tree = code_tree(explored.codes, np.arange(len(explored.codes)), rq)
    near = tree.near[2]
    for prefix in ([0, 0], [3, 5]):
        siblings = torch.tensor([[*prefix, code] for code in near.used])
        points = rq.points(rq.decode(siblings)).double()
        found = ball.pairwise_distance(points, points, rq.curvature).numpy()
        order = np.searchsorted(near.used, near.codes)
        np.testing.assert_allclose(np.take_along_axis(found, order, 1), near.distances, rtol=2e-3)
        assert (np.diff(near.distances, axis=1) >= 0).all()


def test_neighbours_on_the_disk_are_alike():
    explored = small_codes(items=2000, codes=16, stages=2)
    rq = explored.quantizer
    tree = code_tree(explored.codes, np.arange(2000), rq)
    tuples = walk(tree)

    def mean_distance(order):
        points = rq.points(rq.decode(torch.tensor(order)))
        return ball.distance(points[:-1], points[1:], rq.curvature).mean()

    first = [prefix for prefix in tuples if len(prefix) == 1]
    assert mean_distance(first) < mean_distance(sorted(first))
    second = [prefix for prefix in tuples if len(prefix) == 2 and prefix[0] == first[0][0]]
    assert mean_distance(second) < mean_distance(sorted(second))


def test_a_sample_shows_some_items_and_counts_all():
    explored = small_codes()
    shown = np.arange(0, 400, 10)
    tree = code_tree(explored.codes, shown, explored.quantizer)
    tuples = walk(tree)
    assert sorted(tree.order) == list(range(40))  # places in `shown`
    assert set(tuples[-len(tree.leaf_items) :]) == {tuple(row) for row in explored.codes[shown].tolist()}
    assert tree.count[0] == 400
    for node, prefix in enumerate(tuples[1:], start=1):
        assert tree.count[node] == (explored.codes[:, : len(prefix)] == np.array(prefix)).all(1).sum()


def test_one_item_and_equal_items():
    explored = small_codes()
    tree = code_tree(explored.codes[:1], np.arange(1), explored.quantizer)
    assert tree.children.tolist() == [1, 1, 1, 0]
    same = np.repeat(explored.codes[:1], 5, axis=0)
    tree = code_tree(same, np.arange(5), explored.quantizer)
    assert (tree.children.tolist(), tree.leaf_items.tolist()) == ([1, 1, 1, 0], [5])
    assert np.isfinite(tree.distance).all()
