"""The quality of semantic IDs: every number beside a plain loop, and what random codes get."""

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import ghrq
from ghrq.metrics.quality import quality

ITEMS, DIM = 500, 12
module = sys.modules[quality.__module__]


@pytest.fixture(scope="module")
def blobs():
    """Vectors in 8 clusters of 3 smaller ones each, far from the origin; labels of both levels."""
    chance = np.random.default_rng(0)
    coarse = chance.integers(8, size=ITEMS)
    fine = coarse * 3 + chance.integers(3, size=ITEMS)
    X = 5.0 * chance.normal(size=(8, DIM))[coarse] + 1.5 * chance.normal(size=(24, DIM))[fine]
    return (X + 0.3 * chance.normal(size=(ITEMS, DIM)) + 100.0).astype(np.float32), coarse, fine


@pytest.fixture(scope="module")
def fitted(blobs):
    torch.manual_seed(0)
    rq = ghrq.ResidualQuantizer(DIM, 8, 3, kind="euclidean")
    z = torch.from_numpy(blobs[0])
    rq.initialize(z)
    return rq, rq.encode(z)


def shared_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def test_usage_uniqueness_and_collisions_by_hand():
    codes = [[0, 0], [0, 0], [0, 1], [0, 3], [2, 0], [2, 0], [2, 0], [2, 0]]
    found = quality(np.array(codes))
    assert (found.items, found.stages, found.codebook_size) == (8, 2, [3, 4])
    assert found.usage == [2 / 3, 3 / 4]
    assert found.perplexity[0] == pytest.approx(2.0)
    assert found.perplexity[1] == pytest.approx(np.exp(0.75 * np.log(4 / 3) + 0.25 * np.log(8)))
    assert found.uniqueness == [2 / 8, 4 / 8]
    assert found.largest_group == [4, 4]
    assert found.collisions == {"1": 2, "2": 1, "3": 0, "4-7": 1, "8+": 0}
    assert (found.reconstruction, found.neighbours, found.labels) == (None, None, [])


def test_collisions_agree_with_counting(fitted):
    _, codes = fitted
    sizes = Counter(Counter(map(tuple, codes.tolist())).values())
    found = quality(codes).collisions
    assert [found["1"], found["2"], found["3"]] == [sizes[1], sizes[2], sizes[3]]
    assert found["4-7"] == sum(count for size, count in sizes.items() if 4 <= size <= 7)
    assert found["8+"] == sum(count for size, count in sizes.items() if size >= 8)


def test_sizes_of_codebooks_come_from_the_tokenizer(fitted):
    rq, codes = fitted
    assert quality(codes % 5, tokenizer=rq).codebook_size == [8, 8, 8]
    assert quality(codes % 5, tokenizer=rq).usage == [5 / 8] * 3
    assert quality(codes % 5).usage == [1.0] * 3


# --- reconstruction ----------------------------------------------------------------------------------------------


def test_a_tokenizer_decodes_into_the_space_of_its_vectors(blobs):
    tokenizer = ghrq.Tokenizer(num_stages=2, codebook_size=16).fit(blobs[0])
    ids = tokenizer.encode(blobs[0])
    found = quality(ids, blobs[0], tokenizer)
    expected = [((tokenizer.decode(ids[:, :m]) - blobs[0].astype(np.float64)) ** 2).sum(1).mean() for m in (1, 2)]
    assert found.codebook_size == [16, 16]
    assert found.reconstruction.mean_squared == pytest.approx(expected, rel=1e-4)


def test_the_error_is_that_of_decoding_at_each_depth(blobs, fitted, monkeypatch):
    rq, codes = fitted
    x = torch.from_numpy(blobs[0]).double()
    found = quality(codes, blobs[0], rq).reconstruction
    expected = [float((rq.decode(codes[:, :m]).double() - x).square().sum(1).mean()) for m in (1, 2, 3)]
    assert found.mean_squared == pytest.approx(expected, rel=1e-6)
    assert found.variance == pytest.approx(float(x.var(0, correction=0).sum()), rel=1e-9)
    assert found.relative == pytest.approx([value / found.variance for value in expected], rel=1e-6)
    assert 1.0 > found.relative[0] > found.relative[1] > found.relative[2] > 0.0
    assert found.rows == ITEMS
    monkeypatch.setattr(module, "_CHUNK", 4 * 3 * DIM * 7)  # seven rows at a time
    again = quality(codes, blobs[0], rq).reconstruction
    assert again.mean_squared == pytest.approx(found.mean_squared, rel=1e-12)
    assert again.variance == pytest.approx(found.variance, rel=1e-12)


def test_of_a_large_table_a_sample_is_reconstructed_and_the_result_says_so(blobs, fitted, monkeypatch):
    rq, codes = fitted
    everything = quality(codes, blobs[0], rq).reconstruction
    monkeypatch.setattr(module, "RECONSTRUCTED_ROWS", 250)
    found = quality(codes, blobs[0], rq).reconstruction
    assert found.rows == 250
    assert found.mean_squared != everything.mean_squared
    assert found.relative == pytest.approx(everything.relative, rel=0.2)


def test_a_prefix_of_the_codes_and_a_tie_break_token(blobs, fitted):
    rq, codes = fitted
    whole = quality(codes, blobs[0], rq, labels=blobs[1])
    short = quality(codes[:, :2], blobs[0], rq)
    assert short.reconstruction.mean_squared == pytest.approx(whole.reconstruction.mean_squared[:2])
    rank = torch.zeros(ITEMS, 1, dtype=torch.int64)
    for row in range(ITEMS):
        rank[row] = (codes[:row] == codes[row]).all(1).sum()
    assert rank.max() >= 8, "more than a codebook has"
    longer = quality(torch.cat((codes, rank), dim=1), blobs[0], rq, labels=blobs[1])
    assert (longer.stages, longer.codebook_size) == (3, [8, 8, 8, int(rank.max()) + 1])
    assert longer.uniqueness == [*whole.uniqueness, 1.0]
    assert longer.collisions == {"1": ITEMS, "2": 0, "3": 0, "4-7": 0, "8+": 0}
    assert (longer.reconstruction, longer.neighbours) == (whole.reconstruction, whole.neighbours)
    assert longer.labels == whole.labels
    assert [len(row) for row in longer.summary()] == [10 - 1] * 5
    assert [row[0] for row in longer.summary()] == ["depth", "1", "2", "3", "tie-break"]


# --- neighbours --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_neighbours_agree_with_a_plain_loop(blobs, fitted, monkeypatch):
    X, k = blobs[0].astype(np.float64), 5
    codes = fitted[1].numpy()
    lengths, recalls = [], []
    for query in range(ITEMS):
        distance = ((X - X[query]) ** 2).sum(1)
        distance[query] = np.inf
        neighbours = np.argsort(distance)[:k]
        shares = np.array([shared_length(codes[query], codes[other]) for other in range(ITEMS)])
        shares[query] = -1
        for other in neighbours:
            above, equal = (shares > shares[other]).sum(), (shares == shares[other]).sum()
            recalls.append(min(1.0, max(0.0, (k - above) / equal)))
        lengths.append(shares[neighbours])
    monkeypatch.setattr(module, "_CHUNK", 64 * ITEMS)  # more than one piece
    found = quality(codes, blobs[0], neighbours=k).neighbours
    assert (found.k, found.queries) == (k, ITEMS)
    lengths = np.stack(lengths)
    assert found.shared == pytest.approx([(lengths >= m).mean() for m in (1, 2, 3)])
    assert found.mean_length == pytest.approx(lengths.mean())
    assert found.recall == pytest.approx(np.mean(recalls))
    pairs = [shared_length(codes[a], codes[b]) for a in range(ITEMS) for b in range(ITEMS) if a != b]
    assert found.shared_random == pytest.approx([np.mean(np.array(pairs) >= m) for m in (1, 2, 3)])
    assert found.mean_length_random == pytest.approx(np.mean(pairs))
    assert found.recall_random == pytest.approx(k / (ITEMS - 1))


def test_random_codes_share_with_neighbours_what_they_share_with_anybody(blobs):
    codes = np.random.default_rng(1).integers(4, size=(ITEMS, 3))
    found = quality(codes, blobs[0]).neighbours
    assert found.shared == pytest.approx(found.shared_random, abs=0.03)
    assert found.recall == pytest.approx(found.recall_random, abs=0.01)


def test_codes_of_the_clusters_find_the_neighbours(blobs):
    X, coarse, fine = blobs
    found = quality(np.stack((coarse, fine), axis=1), X).neighbours
    assert found.shared[0] > 0.99
    assert found.shared[1] > 0.9
    assert found.recall > 5 * found.recall_random


def test_a_sample_of_queries_is_close_to_all_of_them_and_depends_on_the_seed(blobs, fitted):
    codes = fitted[1]
    everything = quality(codes, blobs[0]).neighbours
    first, again, other = (quality(codes, blobs[0], sample=200, seed=seed).neighbours for seed in (0, 0, 1))
    assert first.queries == 200
    assert first == again
    assert first != other
    assert first.recall == pytest.approx(everything.recall, abs=0.05)
    assert first.shared_random == everything.shared_random


def test_there_are_no_more_neighbours_than_other_items(blobs):
    found = quality(np.array([[0], [0], [1]]), blobs[0][:3], neighbours=10).neighbours
    assert (found.k, found.recall, found.recall_random) == (2, 1.0, 1.0)
    assert quality(np.array([[3]]), blobs[0][:1]).neighbours is None
    assert quality(np.array([[0], [1]]), blobs[0][:2], neighbours=0).neighbours is None


# --- labels, input, output ---------------------------------------------------------------------------------------


def test_codes_of_the_clusters_agree_with_their_labels(blobs):
    _, coarse, fine = blobs
    codes = np.stack((coarse, fine), axis=1)
    found = quality(codes, labels={"coarse": coarse, "fine": fine}).labels
    assert [level.level for level in found] == ["coarse", "fine"]
    assert [level.labels for level in found] == [8, 24]
    assert found[0].codes.ami[0] == pytest.approx(1.0)
    assert found[1].codes.ami[1] == pytest.approx(1.0)
    assert found[0].codes.ami[1] < 1.0
    paths = [f"{a} > {b}" for a, b in zip(coarse, fine, strict=True)]
    cut = quality(codes, labels=paths, separator=" > ").labels
    assert [replace(level, level="") for level in cut] == [replace(level, level="") for level in found]


def test_vectors_may_be_of_any_library_and_on_the_disk(blobs, fitted, tmp_path):
    pandas = pytest.importorskip("pandas")
    rq, codes = fitted
    np.save(tmp_path / "x.npy", blobs[0])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = quality(codes, blobs[0], rq)
    for X in (mapped, torch.from_numpy(blobs[0]), pandas.DataFrame(blobs[0]), blobs[0].astype(np.float64)):
        assert quality(codes, X, rq) == expected
    assert quality(codes.tolist(), blobs[0], rq) == expected


def test_the_result_is_ready_for_json_and_for_the_terminal(blobs, fitted):
    rq, codes = fitted
    found = quality(codes, blobs[0], rq, labels=[blobs[1], blobs[2]])
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["neighbours"]["recall"] == found.neighbours.recall
    assert read["labels"][1]["shuffled"]["purity"] == found.labels[1].shuffled.purity
    heading, *rows = found.summary()
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert all(len(row) == len(heading) for row in rows)
    cells = dict(zip(heading, rows[1], strict=True))
    assert cells["error / variance"] == f"{found.reconstruction.relative[1]:.3f}"
    assert cells["AMI, level 2"] == f"{found.labels[1].codes.ami[1]:.3f}"
    assert cells["unique"] == f"{100 * found.uniqueness[1]:.1f}%"


def test_equal_vectors_share_every_code_in_plain_percent():
    found = quality(np.zeros((20, 2), np.int64), np.ones((20, 3), np.float32))
    assert found.summary()[1][-1] == "100.0% (100.0%)"


def test_bad_input_is_said_plainly(blobs, fitted):
    rq, codes = fitted
    X = blobs[0].copy()
    X[321, 4] = np.nan
    for arguments, message in (
        ((codes.float(),), r"codes as integers of shape \(n, N\).*float32"),
        ((codes[0],), r"got int64 of shape \(3,\)"),
        ((codes[:0],), "neither of them 0"),
        ((codes - 1,), r"codes count from 0, got -1 in row \d+"),
        ((codes, blobs[0][:-1]), f"expected X of {ITEMS} rows, one for each tuple, got 499"),
        ((codes, X), "row 321 of X has a NaN"),
        ((codes, X, rq), "row 321 of X has a NaN"),
        ((codes, blobs[0][:, :5], rq), "vectors of size 12, got X of size 5"),
        ((codes * 2, None, rq), "3 stages below 8 .* got 3 columns with codes up to 14: use the tokenizer"),
        ((torch.cat((codes, codes), 1), None, rq), "got 6 columns"),
        ((codes, None, None, ["a"]), "expected 500 labels"),
        ((codes, None, None, None, -1), "neighbours must be 0 or above"),
        ((codes, None, None, None, 10, 0), "sample must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            quality(*arguments)
