"""Similarities against NLTK's on made-up hierarchies and on the real one, and averages against plain loops."""

import os
import random
import warnings
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ghrq.metrics.hierarchy import (
    ancestry,
    colliding_groups,
    cosine_similarity,
    distinct_tuples,
    group_pairs,
    group_similarity,
    path_distance,
    path_similarity,
    uniqueness,
    wu_palmer_similarity,
)


def write_dict(folder, names, edges, instances=()):
    """A WordNet ``dict`` folder for NLTK: ``data.noun`` of one synset a line."""
    parents = defaultdict(list)
    for child, parent in edges:
        parents[child].append(parent)

    def line(node, offsets):
        pointers = [f"{'@i' if (node, p) in instances else '@'} {offsets[p]:08d} n 0000" for p in parents[node]]
        fields = [f"{offsets[node]:08d} 03 n 01 {names[node]} 0 {len(pointers):03d}", *pointers, "| a thing"]
        return " ".join(fields) + "\n"

    nothing = dict.fromkeys(range(len(names)), 0)
    lengths = [len(line(node, nothing)) for node in range(len(names))]
    offsets = np.concatenate(([0], np.cumsum(lengths))).tolist()
    (folder / "data.noun").write_text("".join(line(node, offsets) for node in range(len(names))))
    return folder / "data.noun"


def nltk_nouns(data, tmp_path, monkeypatch):
    """NLTK's synsets of a ``data.noun`` in its order, and the edges; what else NLTK wants is made up."""
    wordnet = pytest.importorskip("nltk.corpus.reader.wordnet")
    text = data.read_bytes()
    lines = [line.split() for line in text.decode().splitlines() if not line.startswith("  ")]
    senses = defaultdict(list)
    for fields in lines:
        senses[fields[4].lower()].append(fields[0])
    folder = tmp_path / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for name in wordnet.WordNetCorpusReader._FILES:
        (folder / name).write_text("")
    (folder / "data.noun").write_bytes(text)
    rows = [f"{lemma} n {len(of)} 0 {len(of)} 0 {' '.join(of)}\n" for lemma, of in sorted(senses.items())]
    (folder / "index.noun").write_text("".join(rows))
    (folder / "lexnames").write_text("".join(f"{i:02d}\tnoun.{i}\t1\n" for i in range(45)))
    # NLTK reads from its data folders only.
    monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no other languages
        reader = wordnet.WordNetCorpusReader(str(folder), None)
    node = {int(fields[0]): i for i, fields in enumerate(lines)}
    edges = []
    for i, fields in enumerate(lines):
        first = 4 + 2 * int(fields[3], 16) + 1
        pointers = [fields[first + 4 * j : first + 4 * j + 3] for j in range(int(fields[first - 1]))]
        edges += [(i, node[int(offset)]) for kind, offset, pos in pointers if kind in ("@", "@i") and pos == "n"]
    return lambda i: reader.synset_from_pos_and_offset("n", int(lines[i][0])), edges, len(lines)


def compare_with_nltk(synset, edges, size, pairs):
    nodes = sorted({node for pair in pairs for node in pair})
    tree = ancestry(edges, size)
    # Names as NLTK has them, of all that can be a common ancestor.
    above = sorted({a for node in nodes for a in tree.ancestors[tree.indptr[node] : tree.indptr[node + 1]].tolist()})
    names = [""] * size
    for node in above:
        names[node] = synset(node).name()
    tree = ancestry(edges, size, names)
    for mine, theirs in (
        (path_similarity(tree, pairs), [synset(a).path_similarity(synset(b)) for a, b in pairs]),
        (wu_palmer_similarity(tree, pairs), [synset(a).wup_similarity(synset(b)) for a, b in pairs]),
    ):
        theirs = np.array([np.nan if value is None else value for value in theirs])
        np.testing.assert_array_equal(mine, theirs)
    for node in nodes:
        assert (tree.min_depth[node], tree.max_depth[node]) == (synset(node).min_depth(), synset(node).max_depth())
    return path_similarity(tree, pairs), wu_palmer_similarity(tree, pairs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_all_pairs_of_a_random_hierarchy_are_as_nltk_says(tmp_path, seed, monkeypatch):
    chance = random.Random(seed)
    size = 45
    # Two roots; parents of lower number, one to three of them; many names that tell nothing of the order.
    edges = [(i, p) for i in range(2, size) for p in chance.sample(range(i), min(i, chance.choice([1, 1, 2, 3])))]
    edges = [(i, p) for i, p in edges if not (i == 2 and p == 0)]
    names = [f"{chance.choice('abc')}{i}" for i in chance.sample(range(size), size)]
    data = write_dict(tmp_path, names, edges, instances=set(chance.sample(edges, 10)))
    pairs = [(a, b) for a in range(size) for b in range(size)]
    path, wup = compare_with_nltk(*nltk_nouns(data, tmp_path, monkeypatch), pairs)
    assert np.isnan(path).any()
    # NLTK's rules are not symmetric, and ours are the same.
    assert not np.array_equal(np.nan_to_num(wup.reshape(size, size)), np.nan_to_num(wup.reshape(size, size).T))


def real_data():
    folders = [Path(os.environ["GHRQ_DATA"]) / "wordnet-3.0"] if os.environ.get("GHRQ_DATA") else []
    found = [f / "data.noun" for f in (*folders, Path("/usr/share/wordnet")) if (f / "data.noun").is_file()]
    if not found:
        pytest.skip("no WordNet dict: set GHRQ_DATA to a folder with wordnet-3.0/data.noun, or install wordnet-base")
    return found[0]


def test_pairs_of_the_real_nouns_are_as_nltk_says(tmp_path, monkeypatch):
    synset, edges, size = nltk_nouns(real_data(), tmp_path, monkeypatch)
    chance = np.random.default_rng(0)
    pairs = chance.integers(size, size=(1500, 2))
    # And nodes that are close in the file, which are often siblings.
    close = chance.integers(size - 20, size=1500)
    pairs = np.concatenate((pairs, np.stack((close, close + chance.integers(20, size=1500)), axis=1)))
    path, _ = compare_with_nltk(synset, edges, size, pairs.tolist())
    assert len(np.unique(path)) > 10


@pytest.fixture
def diamond():
    """0 above 1 and 2, both above 3; 4 below 3 and below 0 as well; 5 apart."""
    return ancestry([(1, 0), (2, 0), (3, 1), (3, 2), (4, 3), (4, 0)], 6)


def test_ancestors_distances_and_depths_by_hand(diamond):
    rows = [diamond.ancestors[a:b].tolist() for a, b in zip(diamond.indptr[:-1], diamond.indptr[1:], strict=True)]
    assert rows == [[0], [0, 1], [0, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [5]]
    assert diamond.distance[diamond.indptr[4] : diamond.indptr[5]].tolist() == [1, 2, 2, 1, 0]
    assert diamond.min_depth.tolist() == [0, 1, 1, 2, 1, 0]
    assert diamond.max_depth.tolist() == [0, 1, 1, 2, 3, 0]


def test_similarities_by_hand(diamond):
    pairs = [(1, 2), (3, 3), (4, 1), (1, 5), (4, 3)]
    assert path_distance(diamond, pairs).tolist() == [2, 0, 2, np.inf, 1]
    np.testing.assert_array_equal(path_similarity(diamond, pairs), [1 / 3, 1, 1 / 3, np.nan, 1 / 2])
    # (1, 2): subsumer 0 of depth 1. (4, 1): 1, depth 2, two edges by 0 or by 3. (4, 3): 3, depth 3, one edge.
    np.testing.assert_allclose(wu_palmer_similarity(diamond, pairs), [2 / 4, 1, 4 / 6, np.nan, 6 / 7])


def test_chunks_of_pairs_do_not_show(diamond, monkeypatch):
    pairs = [(a, b) for a in range(6) for b in range(6)]
    whole = path_similarity(diamond, pairs), wu_palmer_similarity(diamond, pairs)
    monkeypatch.setattr("ghrq.metrics.hierarchy._CHUNK", 5)
    np.testing.assert_array_equal((path_similarity(diamond, pairs), wu_palmer_similarity(diamond, pairs)), whole)
    assert path_similarity(diamond, np.empty((0, 2))).shape == (0,)


def test_wrong_hierarchies_are_refused():
    with pytest.raises(ValueError, match="cycle"):
        ancestry([(0, 1), (1, 2), (2, 0), (3, 0)], 4)
    with pytest.raises(ValueError, match="from 0 to 2"):
        ancestry([(0, 3)], 3)
    with pytest.raises(ValueError, match="3 names"):
        ancestry([(0, 1)], 3, ["a", "b"])


# --- groups --------------------------------------------------------------------------------------------------


def test_shared_tuples():
    codes = np.array([[1, 2], [2, 1], [1, 2], [0, 0], [2, 1], [1, 2]])
    groups = colliding_groups(codes)
    assert groups.indptr.tolist() == [0, 3, 5]
    assert groups.members.tolist() == [0, 2, 5, 1, 4]
    assert distinct_tuples(codes) == 3
    assert uniqueness(codes) == 0.5
    assert distinct_tuples(codes, [0, 1, 2]) == 2
    assert len(colliding_groups(codes[[0, 1, 3]]).members) == 0
    with pytest.raises(ValueError, match="integers"):
        uniqueness(codes * 0.5)


def test_tuples_of_large_codes_stay_distinct():
    codes = np.random.default_rng(0).integers(2**40, size=(500, 6))
    codes[100:200] = codes[:100]
    assert distinct_tuples(codes) == 400
    assert colliding_groups(codes).indptr.tolist() == list(range(0, 201, 2))


def test_all_pairs_within_groups_of_few_and_a_draw_of_many():
    codes = np.repeat([[0], [1], [2]], [4, 1, 60], axis=0)
    groups = colliding_groups(codes)
    pairs, group = group_pairs(groups, 50, np.random.default_rng(0))
    assert {frozenset(p) for p in pairs[group == 0].tolist()} == {frozenset(p) for p in combinations(range(4), 2)}
    many = pairs[group == 1]
    assert len({frozenset(p) for p in many.tolist()}) == len(many) == 50 * 49 // 2
    assert len(np.unique(many)) == 50
    assert many.min() >= 5
    other, _ = group_pairs(groups, 50, np.random.default_rng(1))
    assert set(np.unique(other)) != set(np.unique(pairs))
    with pytest.raises(ValueError, match="limit"):
        group_pairs(groups, 1, np.random.default_rng(0))


def test_averages_by_hand_and_the_random_reference():
    chance = np.random.default_rng(0)
    place = chance.permutation(600)  # things on a line; those of one tuple are neighbours
    sizes = [2] * 100 + [5] * 60 + [100]
    codes = np.empty((600, 1), dtype=np.int64)
    codes[np.argsort(place)[:100]] = np.arange(1000, 1100)[:, None]  # alone
    rest = np.argsort(place)[100:]
    codes[rest] = np.repeat(np.arange(len(sizes)), sizes)[:500, None]
    sizes = np.bincount(codes[rest, 0])

    def near(pairs):
        values = -np.abs(place[pairs[:, 0]] - place[pairs[:, 1]]).astype(float)
        return np.where(values == -2, np.nan, values)  # some pairs cannot be measured

    result = group_similarity(codes, near, limit=1000)
    every = [near(np.array(list(combinations(np.flatnonzero(codes[:, 0] == g), 2)))) for g in range(len(sizes))]
    flat = np.concatenate(every)
    assert result.shared.pooled == pytest.approx(np.nanmean(flat))
    assert result.shared.by_group == pytest.approx(np.mean([np.nanmean(values) for values in every]))
    assert (result.shared.groups, result.shared.pairs) == (len(sizes), int((~np.isnan(flat)).sum()))
    assert result.shared.skipped == np.isnan(flat).sum() > 0
    # The same number of groups and pairs, at the mean distance of two random places on the line, a third of it.
    assert result.random.pairs + result.random.skipped == len(flat)
    assert result.random.groups == len(sizes)
    assert result.random.by_group == pytest.approx(-200, rel=0.1)
    assert result == group_similarity(codes, near, limit=1000)
    assert result.random != group_similarity(codes, near, limit=1000, seed=1).random


def test_no_groups_or_nothing_to_measure_is_nan_not_an_error():
    alone = group_similarity(np.arange(5)[:, None], lambda pairs: np.ones(len(pairs)))
    assert np.isnan(alone.shared.pooled)
    assert alone.shared[2:] == (0, 0, 0)
    unknown = group_similarity(np.zeros((3, 1), dtype=int), lambda pairs: np.full(len(pairs), np.nan))
    assert unknown.shared[2:] == (0, 0, 3)


def test_cosines():
    vectors = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, -2.0], [0.0, 0.0], [np.nan, 1.0]])
    cosines = cosine_similarity(vectors, [(0, 1), (1, 2), (0, 2), (0, 3), (4, 1), (1, 1)])
    np.testing.assert_allclose(cosines, [0.5**0.5, -(0.5**0.5), 0.0, np.nan, np.nan, 1.0], atol=1e-12)
