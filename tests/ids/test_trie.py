"""The prefix trie against sets and dictionaries of tuples."""

from collections import defaultdict
from itertools import product

import pytest
import torch

from ghrq.ids import PrefixTrie

K, N = 5, 3


@pytest.fixture
def codes():
    # 60 items of 125 tuples: some shared, some absent.
    return torch.randint(K, (60, N))


def test_every_prefix_allows_exactly_the_codes_that_follow_it(codes):
    trie = PrefixTrie(codes, K)
    following = defaultdict(set)
    for row in codes.tolist():
        for m in range(N):
            following[tuple(row[:m])].add(row[m])
    for m in range(N):
        prefixes = list(product(range(K), repeat=m))
        allowed = trie.allowed_tokens(torch.tensor(prefixes, dtype=torch.int64).view(len(prefixes), m))
        assert allowed.shape == (len(prefixes), K)
        assert allowed.dtype == torch.bool
        for prefix, row in zip(prefixes, allowed, strict=True):
            assert set(row.nonzero().flatten().tolist()) == following.get(prefix, set())


def test_every_tuple_gives_its_items(codes):
    trie = PrefixTrie(codes, K)
    owners = defaultdict(list)
    for item, row in enumerate(codes.tolist()):
        owners[tuple(row)].append(item)
    assert trie.num_tuples == len(owners) < trie.num_items == 60
    tuples = list(product(range(K), repeat=N))
    found = trie.items(torch.tensor(tuples))
    counts = trie.count(torch.tensor(tuples))
    for i, row in enumerate(tuples):
        items = found.items[found.indptr[i] : found.indptr[i + 1]].tolist()
        assert items == owners.get(row, [])
        assert counts[i] == len(items)


def test_nodes_step_by_step_are_the_nodes_of_a_walk(codes):
    trie = PrefixTrie(codes, K)
    prefixes = torch.randint(K, (200, N))
    node, known = torch.zeros(200, dtype=torch.int64), torch.ones(200, dtype=torch.bool)
    for depth in range(N):
        walked, walk_known = trie.walk(prefixes[:, :depth])
        assert torch.equal(known, walk_known)
        assert torch.equal(node[known], walked[known])
        assert torch.equal(trie.children(node, depth)[known], trie.allowed_tokens(prefixes[:, :depth])[known])
        node, found = trie.child(node, prefixes[:, depth], depth)
        known &= found
    assert known.any()
    assert not known.all()
    # A leaf is the place of its tuple among all distinct tuples in order.
    distinct = codes.unique(dim=0)
    assert torch.equal(trie.walk(distinct)[0], torch.arange(len(distinct)))


def test_codes_out_of_range_are_unknown_not_another_nodes_children():
    trie = PrefixTrie(torch.tensor([[0, 1], [1, 0], [1, 1]]), 2)
    assert trie.walk(torch.tensor([[0, 1], [0, 2], [0, 3], [1, -1], [2, -2]]))[1].tolist() == [True, *[False] * 4]
    assert not trie.allowed_tokens(torch.tensor([[2], [-1]])).any()
    assert trie.count(torch.tensor([[0, 2], [1, 1]])).tolist() == [0, 1]


def test_leading_dimensions_and_a_device(codes):
    trie = PrefixTrie(codes, K).to("cpu")
    tuples = codes.view(6, 10, N)
    assert torch.equal(trie.count(tuples).flatten(), trie.count(codes))
    nodes, known = trie.walk(tuples[..., :2])
    assert known.all()
    assert trie.children(nodes, 2).shape == (6, 10, K)


def test_long_tuples_do_not_overflow():
    codes = torch.randint(1024, (500, 12))
    trie = PrefixTrie(codes, 1024)
    assert torch.equal(trie.items(codes).items, torch.arange(500))
    codes[:, -1] = (codes[:, -1] + 1) % 1024
    assert trie.walk(codes[:, :-1])[1].all()
    assert not trie.walk(codes)[1].any()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), "shape"),
        (torch.zeros(0, 3, dtype=torch.int64), "shape"),
        (torch.zeros(3, 2), "integer"),
        (torch.tensor([[0, 5]]), "stage 2 of 2: codes must be from 0 to 4 .* give a codebook_size for each stage"),
    ],
)
def test_wrong_codes_are_refused(codes, message):
    with pytest.raises(ValueError, match=message):
        PrefixTrie(codes, K)


def test_wrong_prefixes_are_refused(codes):
    trie = PrefixTrie(codes, K)
    with pytest.raises(ValueError, match="less than 3"):
        trie.allowed_tokens(codes)
    with pytest.raises(ValueError, match="up to 3"):
        trie.walk(torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"\.\.\., 3"):
        trie.items(codes[:, :2])


def test_stages_of_different_sizes():
    sizes = (4, 2, 7)
    codes = torch.stack([torch.randint(size, (40,)) for size in sizes], dim=1)
    trie, wide = PrefixTrie(codes, sizes), PrefixTrie(codes, 7)
    assert (trie.sizes, trie.codebook_size) == (sizes, 7)
    tuples = torch.cartesian_prod(*map(torch.arange, sizes))
    assert torch.equal(trie.count(tuples), wide.count(tuples))
    for m, size in enumerate(sizes):
        allowed = trie.to("cpu").allowed_tokens(tuples[:, :m])
        assert allowed.shape == (len(tuples), size)
        assert torch.equal(allowed, wide.allowed_tokens(tuples[:, :m])[:, :size])
    assert not trie.walk(torch.tensor([[3, 2, 0]]))[1]
    with pytest.raises(ValueError, match="from 0 to 1"):
        PrefixTrie(torch.tensor([[3, 2, 0]]), sizes)
    with pytest.raises(ValueError, match="each of 3 stages"):
        PrefixTrie(codes, (4, 2))


def test_arrays_are_taken_as_they_are():
    codes = torch.tensor([[0, 1], [0, 2], [3, 1]])
    of_array = PrefixTrie(codes.numpy().astype("int32"), 4)
    prefixes = torch.tensor([[0], [3], [2]])
    assert torch.equal(of_array.allowed_tokens(prefixes), PrefixTrie(codes, 4).allowed_tokens(prefixes))
