"""Closure, splits and negatives against plain references on random hierarchies, and on the whole of WordNet."""

import numpy as np
import pytest
import torch
from scipy import stats

from ghrq.data import wordnet
from ghrq.data.closure import Negatives, closure, split_closure, split_direct, wordnet_closure

SEEDS = range(8)


def random_dag(seed: int, size: int = 40, edges: int = 70) -> np.ndarray:
    """Edges from a node to one before it in a random order: several parents, several roots, some longer ways."""
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.integers(size, size=(edges, 2)), axis=1).T
    kept = low < high
    return rng.permutation(size)[np.stack((high[kept], low[kept]), axis=1)]


def plain_closure(edges) -> dict[int, set[int]]:
    """The ancestors of each node, by walking up."""
    parents: dict[int, set[int]] = {}
    for child, parent in np.asarray(edges).tolist():
        parents.setdefault(child, set()).add(parent)

    def above(node):
        return {a for p in parents.get(node, ()) for a in (p, *above(p))}

    return {node: above(node) for node in parents}


def as_set(pairs) -> set[tuple[int, int]]:
    return set(map(tuple, np.asarray(pairs).tolist()))


@pytest.fixture(scope="module")
def nouns():
    return wordnet.load()


@pytest.fixture(scope="module", params=[True, False], ids=["instances", "hypernyms"])
def hierarchy(request, nouns):
    return nouns.hypernyms(request.param), wordnet_closure(nouns, request.param)


@pytest.mark.slow
def test_wordnet_has_the_known_number_of_pairs(nouns):
    everything, hypernyms = wordnet_closure(nouns), wordnet_closure(nouns, instances=False)
    assert len(everything.pairs()) == 743_241
    assert len(hypernyms.pairs()) == 663_508
    assert int((np.diff(hypernyms.indptr) == 0).sum()) == 7_726
    assert everything.contains(*hypernyms.pairs().T).all()


@pytest.mark.slow
def test_the_ancestors_of_a_dog(nouns):
    above = wordnet_closure(nouns)
    dog, einstein, entity = (nouns.names.index(name) for name in ("dog.n.01", "einstein.n.01", "entity.n.01"))
    row = above.indices[above.indptr[dog] : above.indptr[dog + 1]]
    names = {nouns.names[i] for i in row}
    assert {"canine.n.02", "carnivore.n.01", "mammal.n.01", "animal.n.01", "entity.n.01"} < names
    assert len(names) == 14  # as NLTK's documentation of closure() lists them
    assert above.contains(einstein, entity)
    assert not wordnet_closure(nouns, instances=False).contains(einstein, entity)


@pytest.mark.parametrize("seed", SEEDS)
def test_closure_is_what_walking_up_finds(seed):
    edges = random_dag(seed)
    found = closure(edges, 40)
    expected = plain_closure(edges)
    assert found.size == 40
    assert found.indptr.dtype == found.indices.dtype == found.pairs().dtype == np.int64
    assert [tuple(pair) for pair in found.pairs().tolist()] == sorted((u, v) for u in expected for v in expected[u])
    grid = found.contains(np.arange(40)[:, None], np.arange(40))
    assert grid.shape == (40, 40)
    assert as_set(np.argwhere(grid)) == as_set(found.pairs())


def test_closure_takes_edges_in_any_order_more_than_once_and_narrow():
    edges = random_dag(0)
    again = np.random.default_rng(0).permutation(np.concatenate((edges, edges))).astype(np.int32)
    np.testing.assert_array_equal(closure(again, 40).pairs(), closure(edges, 40).pairs())


def test_a_long_chain_and_no_edges():
    chain = np.stack((np.arange(1, 300), np.arange(299)), axis=1)
    np.testing.assert_array_equal(np.diff(closure(chain, 300).indptr), np.arange(300))
    empty = closure(np.empty((0, 2), dtype=np.int64), 3)
    assert empty.pairs().shape == (0, 2)
    assert empty.contains([[0, 1, 2]], [1, 2, 0]).tolist() == [[False] * 3]
    assert closure(np.empty((0, 2), dtype=np.int64), 0).size == 0


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([[0, 1], [1, 2], [2, 0]], r"(0 -> 1 -> 2 -> 0|1 -> 2 -> 0 -> 1|2 -> 0 -> 1 -> 2)"),
        ([[3, 4], [5, 3], [4, 6], [6, 4], [4, 7]], "(4 -> 6 -> 4|6 -> 4 -> 6)"),
        ([[1, 0], [2, 2]], "2 -> 2"),
    ],
)
def test_a_cycle_is_an_error_that_shows_it(edges, cycle):
    with pytest.raises(ValueError, match=f"cycle, {cycle}: remove"):
        closure(np.array(edges), 8)


def test_bad_edges_and_nodes():
    with pytest.raises(ValueError, match=r"\(E, 2\)"):
        closure(np.zeros((3, 3), dtype=int), 4)
    with pytest.raises(ValueError, match="integers"):
        closure(np.zeros((3, 2)), 4)
    with pytest.raises(ValueError, match=r"nodes 0 to 3, got 0 to 4: is size=4 right"):
        closure(np.array([[4, 0]]), 4)
    with pytest.raises(ValueError, match="0 to 3, got -1"):
        closure(np.array([[1, -1]]), 4)
    # Pair (0, 4) of 4 nodes must not be taken for (1, 0).
    with pytest.raises(ValueError, match="nodes are 0 to 3"):
        closure(np.array([[1, 0]]), 4).contains(0, 4)


@pytest.mark.slow
def test_the_closure_split_of_wordnet(nouns):
    above = wordnet_closure(nouns, instances=False)
    split = split_closure(above)
    assert (split.name, len(split.train), len(split.test)) == ("closure", 563_981, 99_527)
    together = np.concatenate((split.train, split.test))
    np.testing.assert_array_equal(together[np.lexsort(together.T[::-1])], above.pairs())
    again, other = split_closure(above), split_closure(above, seed=1)
    np.testing.assert_array_equal(again.test, split.test)
    assert not np.array_equal(other.test, split.test)
    # Drawn evenly: the mean ancestor of a test pair is that of all pairs, within five standard errors.
    error = above.pairs()[:, 1].std() / len(split.test) ** 0.5
    assert abs(split.test[:, 1].mean() - above.pairs()[:, 1].mean()) < 5 * error


@pytest.mark.slow
def test_the_direct_split_of_wordnet_does_not_leak(hierarchy):
    edges, above = hierarchy
    split = split_direct(edges, above)
    assert split.name == "direct"
    assert 0.149 * len(edges) < len(split.test) <= 0.15 * len(edges)
    assert len(split.train) > 0.85 * len(above.indices)
    assert as_set(split.test) < as_set(edges)
    assert above.contains(*split.train.T).all()
    assert not closure(split.train, above.size).contains(*split.test.T).any()
    np.testing.assert_array_equal(np.unique(split.train), np.unique(edges))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.6])
def test_the_direct_split_is_what_its_docstring_says(seed, fraction):
    edges = random_dag(seed)
    ancestors = plain_closure(edges)
    split = split_direct(edges, closure(edges, 40), fraction, seed)
    train, test, true = as_set(split.train), as_set(split.test), as_set(edges)
    assert test
    assert test <= true
    assert len(split.test) == len(test) <= fraction * len(true)
    # Nothing lies between the ends of a held-out edge, and training never leads from one to the other.
    assert not any(v in ancestors.get(w, ()) for u, v in test for w in ancestors[u])
    reached = plain_closure(split.train)
    assert not any(v in reached.get(u, ()) for u, v in test)
    # Training is all pairs with a way up whose last edge is not held out, and has every node.
    last = {(x, y) for w, y in true - test for x in (w, *(u for u in ancestors if w in ancestors[u]))}
    assert train == last
    assert {node for pair in train for node in pair} == {node for pair in true for node in pair}


def test_the_direct_split_follows_its_seed():
    edges = random_dag(0)
    above = closure(edges, 40)
    split, again, other = (split_direct(edges, above, 0.3, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(again.train, split.train)
    np.testing.assert_array_equal(again.test, split.test)
    assert as_set(other.test) != as_set(split.test)


def test_no_held_out_edge_leaves_a_node_alone():
    # Of a star each edge is the only one of its leaf: nothing can be held out.
    star = np.stack((np.arange(1, 30), np.zeros(29, dtype=int)), axis=1)
    split = split_direct(star, closure(star, 30), 0.5)
    assert len(split.test) == 0
    assert as_set(split.train) == as_set(star)


def test_bad_splits():
    edges = random_dag(0)
    above = closure(edges, 40)
    for fraction in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_closure(above, fraction)
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_direct(edges, above, fraction)
    with pytest.raises(ValueError, match="give the closure of these edges"):
        split_direct(edges, closure(edges[1:], 40))


@pytest.mark.slow
def test_negatives_of_wordnet_are_never_ancestors(hierarchy):
    _, above = hierarchy
    sources = torch.from_numpy(above.pairs()[::300, 0].copy())
    drawn = Negatives(above, above.size)(sources, 50, torch.Generator().manual_seed(0))
    assert drawn.shape == (len(sources), 50)
    assert drawn.dtype == torch.int64
    assert not above.contains(sources[:, None].numpy(), drawn.numpy()).any()
    assert not (drawn == sources[:, None]).any()


@pytest.mark.parametrize("seed", SEEDS)
def test_negatives_are_uniform_over_the_allowed(seed):
    above = closure(random_dag(seed, 12, 20), 12)
    sources = torch.arange(12)
    drawn = Negatives(above, 12)(sources, 20_000, torch.Generator().manual_seed(seed))
    counts = np.stack([np.bincount(row, minlength=12) for row in drawn.numpy()])
    banned = above.contains(np.arange(12)[:, None], np.arange(12)) | np.eye(12, dtype=bool)
    assert (counts[banned] == 0).all()
    pvalues = [stats.chisquare(row[~no]).pvalue for row, no in zip(counts, banned, strict=True) if (~no).sum() > 1]
    assert min(pvalues) > 1e-4
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3


def test_negatives_follow_their_generator_and_leave_no_state():
    above = closure(random_dag(0), 40)
    negatives, sources = Negatives(above, 40), torch.randint(40, (64,))
    first = negatives(sources, 5, torch.Generator().manual_seed(3))
    assert torch.equal(first, negatives(sources, 5, torch.Generator().manual_seed(3)))
    assert not torch.equal(first, negatives(sources, 5, torch.Generator().manual_seed(4)))
    torch.manual_seed(7)
    default = negatives(sources, 5)
    torch.manual_seed(7)
    assert torch.equal(default, negatives(sources, 5))
    assert negatives(sources[:0], 5).shape == (0, 5)
    assert not negatives.state_dict()


def test_negatives_that_cannot_be():
    above = closure(np.array([[1, 0], [2, 1]]), 3)
    assert Negatives(above, 3)(torch.tensor([0, 1]), 4)[1].tolist() == [2] * 4
    with pytest.raises(ValueError, match="node 2 has no negative"):
        Negatives(above, 3)(torch.tensor([0, 2]), 4)
    with pytest.raises(ValueError, match="over 3 nodes, not size=4"):
        Negatives(above, 4)


@pytest.mark.parametrize("seed", range(3))
def test_which_negatives_are_allowed(seed):
    above = closure(random_dag(seed), 40)
    nodes = torch.arange(40)
    everyone = nodes.expand(40, 40)
    expected = ~(torch.from_numpy(above.contains(nodes[:, None], everyone)) | torch.eye(40, dtype=torch.bool))
    assert torch.equal(Negatives(above, 40).allows(nodes, everyone), expected)
