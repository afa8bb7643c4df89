"""The verdict on IDs: the first check that fails decides, and says what to change."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ghrq import Tokenizer
from ghrq.metrics.quality import quality
from ghrq.report.ids_verdict import judge


@pytest.fixture(scope="module")
def clusters():
    random = np.random.default_rng(0)
    centres = random.standard_normal((8, 1, 6)) * 4 + random.standard_normal((1, 25, 6))
    return (centres + 0.1 * random.standard_normal((8, 25, 6))).reshape(-1, 6).astype(np.float32)


def measured(X, codes, size, stages=2, **changes):
    tokenizer = Tokenizer(num_stages=stages, codebook_size=size).fit(X)
    return replace(quality(tokenizer.encode(X) if codes is None else codes, X, tokenizer, sample=100), **changes)


def test_ids_that_pass_every_check_are_fine(clusters):
    found = judge(measured(clusters, None, 64))
    assert all(check.passed for check in found.checks)
    assert (found.verdict, found.advice) == ("fine", "Use these IDs as they are.")
    assert json.loads(json.dumps(found.to_dict()))["checks"][0]["passed"] is True


def test_without_vectors_the_verdict_says_what_was_not_checked():
    codes = np.arange(64)[:, None] // [8, 1] % 8
    found = judge(quality(codes))
    assert found.verdict == "fine"
    assert "--items" in found.advice
    assert [check.name for check in found.checks] == ["distinct tuples per item", "codes used, stage 1 (the fewest)"]


def test_collisions_ask_for_one_stage_more(clusters):
    found = judge(measured(clusters, None, 8))
    assert found.verdict == "too many collisions"
    assert "--stages 3" in found.advice


def test_the_tie_break_token_does_not_hide_collisions(clusters):
    tokenizer = Tokenizer(num_stages=1, codebook_size=8).fit(clusters)
    codes = np.concatenate((tokenizer.encode(clusters), np.arange(len(clusters))[:, None]), axis=1)
    assert judge(quality(codes, tokenizer=tokenizer)).verdict == "too many collisions"


def test_equal_vectors_are_named_as_the_cause():
    found = judge(measured(np.ones((40, 4), np.float32), None, 8))
    assert found.verdict == "all vectors are equal"
    assert "--column" in found.advice


def test_neighbours_are_judged_fairly_if_random_pairs_share_much(clusters):
    near = measured(clusters, None, 64).neighbours
    found = measured(clusters, None, 64, neighbours=replace(near, mean_length=1.9, mean_length_random=1.0))
    assert judge(found).checks[1].passed
    found = measured(clusters, None, 64, neighbours=replace(near, mean_length=1.1, mean_length_random=1.0))
    assert judge(found).verdict == "the codes do not follow the vectors"


def test_a_small_share_of_used_codes_is_not_shown_as_none(clusters):
    found = measured(clusters, None, 64)
    advice = judge(replace(found, usage=[1.0, 0.004])).advice
    assert "uses only 0.4% of its codes" in advice


def test_copies_of_vectors_are_no_fault_of_the_codes(clusters):
    X = np.repeat(clusters, 3, axis=0)
    X[0, X[0] == 0.0] = -0.0
    found = measured(X, None, 64)
    assert found.distinct_vectors == len(clusters)
    assert found.uniqueness[-1] < 0.5
    assert judge(found).checks[0].passed


def test_items_that_all_share_a_tuple(clusters):
    found = judge(measured(clusters, np.zeros((len(clusters), 2), dtype=int), 64))
    assert found.verdict == "too many collisions"
    assert "Look for outliers" in found.advice


def test_codes_of_another_table_are_suspected(clusters):
    right = Tokenizer(num_stages=2, codebook_size=64).fit(clusters).encode(clusters)
    found = judge(measured(clusters, right[np.random.default_rng(1).permutation(len(right))], 64))
    assert found.verdict == "the codes do not follow the vectors"
    assert "--items" in found.advice


def test_a_large_error_asks_for_bigger_codebooks(clusters):
    found = measured(clusters, None, 64)
    found = judge(replace(found, reconstruction=replace(found.reconstruction, relative=[0.9, 0.7])))
    assert (found.verdict, "--codes 128" in found.advice) == ("the codes are coarse", True)


@pytest.mark.parametrize(
    ("codes", "size", "change"),
    [
        (np.arange(64)[:, None] // [8, 1] % 8, 64, "--codes 8"),
        (np.stack((np.arange(64), np.arange(64) % 2), axis=1), 64, "--stages 1"),
        (np.stack((np.arange(64) % 2, np.arange(64)), axis=1), 64, "--codes 32"),
    ],
)
def test_unused_codes_ask_for_less(codes, size, change):
    found = quality(codes)
    found = replace(
        found, usage=[used * own / size for used, own in zip(found.usage, found.codebook_size, strict=True)]
    )
    found = judge(replace(found, codebook_size=[size, size]))
    assert found.verdict == "good, but with more codes than needed"
    assert change in found.advice


def test_few_items_cannot_use_all_codes():
    assert judge(quality(np.array([[3, 200]]))).verdict == "fine"


def test_a_last_stage_of_no_use(clusters):
    found = measured(clusters, None, 64, uniqueness=[1.0, 1.0])
    found = replace(found, reconstruction=replace(found.reconstruction, relative=[0.101, 0.1]))
    assert "--stages 1" in judge(found).advice
