"""What prefixes mean, head and tail, Gini and hits: against plain versions, counted by hand."""

import math

import numpy as np
import pytest

from ghrq import Tokenizer
from ghrq.metrics.popularity import popularity_slices
from ghrq.metrics.prefix_words import prefix_words
from ghrq.metrics.quality import gini, quality, row_errors


def test_the_words_that_set_a_prefix_apart_come_first():
    titles = [
        "red nail polish",
        "blue nail polish",
        "nail file new",
        "hair shampoo new",
        "dry hair shampoo",
        "the 12 of",
    ]
    codes = np.array([[0, 0], [0, 0], [0, 1], [1, 0], [1, 0], [1, 1]])
    found = {tuple(each.codes): each for each in prefix_words(codes, titles)}
    assert (found[0,].items, found[0,].words[:2]) == (3, ["nail", "polish"])
    assert set(found[1,].words[:2]) == {"hair", "shampoo"}
    assert "the" not in str(found)
    assert found[1, 1].words == []
    assert [tuple(each.codes) for each in prefix_words(codes, titles)][:3] == [(0,), (0, 0), (0, 1)]


def test_weights_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    vocabulary = [f"{a}{b}zx" for a in "kmnprst" for b in "aeiou"]
    titles = [" ".join(rng.choice(vocabulary, 6)) for _ in range(200)]
    codes = rng.integers(5, size=(200, 1))
    groups = {c: [w for t, row in zip(titles, codes, strict=True) if row[0] == c for w in t.split()] for c in range(5)}
    every = [w for words in groups.values() for w in words]
    mean = len(every) / 5
    for each in prefix_words(codes, titles):
        words = groups[each.codes[0]]
        weight = {w: words.count(w) / len(words) * math.log(1 + mean / every.count(w)) for w in set(words)}
        best = sorted(weight.values(), reverse=True)[: len(each.words)]
        assert [weight[w] for w in each.words] == pytest.approx(best)


def test_without_words_there_is_nothing_to_say():
    assert prefix_words(np.zeros((3, 2), dtype=np.int64), ["1", "", "the"]) == []


@pytest.mark.parametrize("counts", [[1, 1, 1, 1], [0, 0, 0, 8], [5, 0, 2, 2], [3]])
def test_gini_is_the_mean_difference_of_all_pairs(counts):
    plain = sum(abs(a - b) for a in counts for b in counts) / (2 * len(counts) * sum(counts))
    assert gini(np.array(counts)) == pytest.approx(plain)


def test_levels_and_hits():
    x = np.random.default_rng(1).normal(size=(60, 4))
    codes = np.random.default_rng(2).integers(3, size=(60, 2))
    found = quality(codes, x, neighbours=3, sample=60)
    for level in range(2):
        shares = np.bincount(codes[:, level]) / 60
        assert found.entropy[level] == pytest.approx(-(shares * np.log2(shares)).sum())
        assert 2 ** found.entropy[level] == pytest.approx(found.perplexity[level])
    distances = ((x[:, None] - x) ** 2).sum(-1) + 1e9 * np.eye(60)
    nearest = distances.argsort(1)[:, :3]
    for depth in (1, 2):
        same = (codes[nearest, :depth] == codes[:, None, :depth]).all(-1)
        assert found.neighbours.hit[depth - 1] == pytest.approx(same.any(1).mean())


def test_head_and_tail():
    codes = np.array([[0], [1], [1], [2], [2], [2], [3], [4], [5], [6]])
    counts = np.array([50.0, 20, 10, 5, 5, 4, 3, 2, 1, np.nan])
    head, middle, tail = popularity_slices(codes, counts, np.arange(10.0))
    assert [part.items for part in (head, middle, tail)] == [2, 3, 5]
    assert (head.counted, head.alone, head.sharing, head.error) == (0.7, 0.5, 1.5, 0.5)
    assert (middle.alone, middle.error) == (0.0, 3.0)
    assert (tail.alone, tail.sharing) == (0.8, 1.4)
    with pytest.raises(ValueError, match=r"at least 0, got -1 in row 1"):
        popularity_slices(codes[:2], np.array([1.0, -1.0]))


def test_errors_of_rows_have_the_mean_of_the_report():
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    tokenizer = Tokenizer(num_stages=2, codebook_size=8).fit(x)
    codes = tokenizer.encode(x)
    found = quality(codes, x, tokenizer).reconstruction
    errors = row_errors(codes, x, tokenizer)
    assert errors.mean() == pytest.approx(found.relative[-1])
    plain = ((tokenizer.decode(codes) - x) ** 2).sum(1) / ((x - x.mean(0)) ** 2).sum(1).mean()
    assert errors == pytest.approx(plain, rel=1e-4)
