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


def test_a_restricted_trie_is_the_trie_of_its_items(codes):
    trie = PrefixTrie(codes, K)
    mask = torch.rand(len(codes)) < 0.4
    restricted, own = trie.restrict(mask), PrefixTrie(codes[mask], K)
    rows = mask.nonzero().squeeze(1)
    for depth in range(N):
        prefixes = torch.tensor(list(product(range(K), repeat=depth)), dtype=torch.int64).view(K**depth, depth)
        assert torch.equal(restricted.allowed_tokens(prefixes), own.allowed_tokens(prefixes))
    tuples = torch.tensor(list(product(range(K), repeat=N)))
    assert torch.equal(restricted.count(tuples), own.count(tuples))
    found, wanted = restricted.items(tuples), own.items(tuples)
    assert torch.equal(found.indptr, wanted.indptr)
    assert torch.equal(found.items, rows[wanted.items])
    # Nodes keep their numbers.
    assert torch.equal(restricted.walk(codes[mask])[0], trie.walk(codes[mask])[0])


def test_every_request_has_its_own_restriction(codes):
    trie, masks = PrefixTrie(codes, K), torch.rand(7, len(codes)) < 0.2
    together = trie.restrict(masks)
    prefixes = torch.randint(K, (7, 4, 2))
    nodes, known = together.walk(prefixes)
    for row, mask in enumerate(masks):
        alone = trie.restrict(mask)
        assert torch.equal(known[row], alone.walk(prefixes[row])[1])
        assert torch.equal(together.children(nodes, 2)[row], alone.children(nodes[row], 2))
    with pytest.raises(ValueError, match="7 requests"):
        together.children(nodes[:3], 2)
    with pytest.raises(ValueError, match="bool mask"):
        trie.restrict(torch.ones(3, dtype=torch.bool))


def test_stages_of_different_sizes_know_their_children_and_last_codes():
    sizes = (4, 3, 13)
    codes = torch.stack([torch.randint(size, (50,)) for size in sizes], dim=1)
    trie = PrefixTrie(codes, sizes)
    path = trie.path(codes)
    for depth in range(3):
        first, count = trie.span(path[:, depth], depth)
        assert torch.equal(count, trie.children(path[:, depth], depth).sum(1))
        assert bool(((path[:, depth + 1] >= first) & (path[:, depth + 1] < first + count)).all())
        assert torch.equal(trie.last_code(path[:, depth + 1], depth + 1), codes[:, depth])
    assert torch.equal(codes[trie.first_item(path[:, -1])], codes)
