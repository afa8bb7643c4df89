"""Advice on levels and sizes: what is expected of more items, and what is chosen."""

import math

import numpy as np
import pytest

from ghrq import Tokenizer
from ghrq.system.errors import UserError
from ghrq.tokenizer.advice import (
    ENOUGH,
    Advice,
    Candidate,
    advise,
    choose,
    expected_distinct,
    first_of_equals,
    judge,
    told,
)


def clustered(rows=1500, dim=8, seed=0):
    random = np.random.default_rng(seed)
    centres = random.standard_normal((30, dim))
    return (centres[random.integers(30, size=rows)] + 0.3 * random.standard_normal((rows, dim))).astype(np.float32)


def candidate(sizes, expected, error=0.5):
    return Candidate(tuple(sizes), error, 100, expected, expected)


@pytest.mark.parametrize("evenness", [0.02, 0.5, 5.0, None])
def test_distinct_tuples_of_more_items_are_foreseen(evenness):
    random, ids, few, many = np.random.default_rng(1), 20_000, 4_000, 200_000
    chance = np.ones(ids) if evenness is None else random.gamma(evenness, size=ids)
    drawn = random.choice(ids, many, p=chance / chance.sum())
    counts = np.bincount(drawn[:few])
    expected = expected_distinct(counts[counts > 0], ids, many)
    assert expected == pytest.approx(len(np.unique(drawn)), rel=0.08)
    assert expected_distinct(counts[counts > 0], ids, few) == pytest.approx(len(np.unique(drawn[:few])), rel=0.03)


def test_rows_that_share_nothing_promise_no_more_than_they_can_know():
    alone = np.ones(100, dtype=np.int64)
    assert expected_distinct(alone, 2**60, 100) > 99.0
    assert expected_distinct(alone, 2**60, 10**9) < 10**6  # one pair in 100 rows is all that these rule out
    assert expected_distinct(alone[:1], 50, 100) == 50.0
    assert expected_distinct(np.array([7]), 1, 100) == 1.0


def test_what_was_measured_is_quoted():
    x = clustered()
    x[-1] = x[0]
    advice = advise(x, shapes=[(4, 4)])
    assert [each.expected for each in advice.candidates] == [each.collisions for each in advice.candidates]
    assert f"{advice.best.collisions:.1%} of the items have the codes of an earlier one" in advice.reasons()[0]


def test_the_first_of_equal_rows():
    rows = np.array([[1, 0], [2, 0], [1, -0.0], [2, 0], [0, 1]], dtype=np.float32)
    assert first_of_equals(rows).tolist() == [0, 1, 4]


def test_every_depth_is_judged_as_a_tokenizer_of_its_own():
    x = clustered()
    tokenizer = Tokenizer(codebook_size=[4, 8, 16], balance=True).fit(x)
    found = judge(tokenizer, x, len(x))
    assert [each.sizes for each in found] == [(4, 8), (4, 8, 16)]
    codes = tokenizer.encode(x)
    for each in found:
        depth = len(each.sizes)
        assert each.distinct == len(np.unique(codes[:, :depth], axis=0))
        assert each.collisions == pytest.approx(1.0 - each.distinct / len(x))
        assert each.expected == each.collisions
        lost = np.square(x - tokenizer.decode(codes[:, :depth])).mean() / x.var(axis=0).mean()
        assert each.error == pytest.approx(lost, rel=1e-4)
    assert (found[0].ids, found[0].bits, found[0].tokens) == (32, 5.0, 12)


def test_the_shortest_that_is_enough_is_chosen_and_then_the_fewest_tokens():
    two, three, small, four = (
        candidate([256] * 2, 0.4),
        candidate([256] * 3, 0.03),
        candidate([64, 256, 256], 0.04),
        candidate([64] * 4, 0.01),
    )
    assert choose([two, three, small, four]) is small
    assert choose([two, four]) is four
    assert choose([two, candidate([16] * 2, 0.8)]) is two


def test_reasons_are_sentences_with_the_numbers():
    two, three, four = candidate([256] * 2, 0.4), candidate([64, 256, 1024], 0.03), candidate([256] * 4, 0.01, 0.2)
    other = candidate([64] * 3, 0.5)
    said = " ".join(Advice(three, [two, three, other, four], 10**7, 5000, 0.02, True).reasons())
    for text in (
        "at 10,000,000 items about 3.0% of the items would have the codes of an earlier one",
        "With fewer levels it would be 40.0% at best (2 levels of 256 codes)",
        "Codes keep 50% of the variance",
        "No other of 3 levels is long enough",
        "--balance: codes are used about equally often",
        "With a level more it would be up to 80%",
        "2.0% of the vectors are copies",
        "judged by 5,000 rows",
    ):
        assert text in said
    poor = Advice(two, [two], 5000, 5000, 0.0, True)
    assert not poor.enough
    assert "Nothing that was tried is long enough" in poor.reasons()[0]
    larger, longer = candidate([1024] * 2, 0.01), candidate([4] * 3, 0.01, error=0.9)
    said = " ".join(
        Advice(small := candidate([64] * 2, 0.02), [small, larger, longer], 5000, 5000, 0.0, False).reasons()
    )
    assert "Of those of 2 levels that are long enough, it has the fewest tokens, 128." in said
    for text in ("--balance", "level more", "copies", "extrapolation"):  # a level more that is worse is no news
        assert text not in said
    assert told([64, 256, 1024]) == "3 levels of 64, 256 and 1,024 codes"


def test_advice_on_real_fits():
    x = clustered()
    shapes = [(4,) * 4, (16,) * 3, (8, 16, 64), (512, 512)]  # the last needs more than an eighth of the rows
    advice = advise(x, shapes=shapes)
    tried = {each.sizes for each in advice.candidates}
    assert tried == {(4, 4), (4,) * 3, (4,) * 4, (16, 16), (16,) * 3, (8, 16), (8, 16, 64)}
    assert advice.best in advice.candidates
    assert (advice.items, advice.rows, advice.equal) == (1500, 1500, 0.0)
    assert [len(each.sizes) for each in advice.candidates] == sorted(len(each.sizes) for each in advice.candidates)
    more = advise(x, 10**6, shapes=shapes)
    assert all(a.expected <= b.expected for a, b in zip(advice.candidates, more.candidates, strict=True))
    assert math.prod(more.best.sizes) >= math.prod(advice.best.sizes)
    assert advise(x, shapes=shapes) == advice  # the same seed


def test_equal_vectors_are_left_out_and_told():
    x = clustered(400)
    advice = advise(np.concatenate((x, x[:100])), shapes=[(8, 8, 8)])
    assert advice.equal == pytest.approx(0.2)
    assert any("copies" in sentence for sentence in advice.reasons())
    with pytest.raises(UserError, match="all vectors are equal"):
        advise(np.ones((50, 4), dtype=np.float32))
    with pytest.raises(ValueError, match="items must be at least 1"):
        advise(x, 0)
    assert 0.0 < ENOUGH < 1.0
