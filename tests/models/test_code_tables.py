"""Tables of frequencies: integers that sum exactly, every code codable, smaller where codes depend on each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghrq.models.code_tables import _POWERS, CodeTables, widths
from ghrq.models.range_coder import STATE_WORDS, TOTAL


def dependent_codes(frames, stages=3, size=32, seed=0):
    """Codes that depend on the stage above and on the frame before; code 31 is never used."""
    chance = np.random.default_rng(seed)
    codes = np.zeros((frames, stages), dtype=np.int64)
    for stage in range(stages):
        for t in range(frames):
            above = codes[t, stage - 1] if stage else 0
            before = codes[t - 1, stage] if t else 0
            centre = (above // 8 * 8 + before // 8 * 4) % (size - 1)
            codes[t, stage] = (centre + chance.binomial(12, 0.5)) % (size - 1)
    return codes


@pytest.fixture(scope="module")
def fitted():
    tables = CodeTables(3, 32, classes=4)
    tables.fit([dependent_codes(3000), dependent_codes(3000, seed=1)])
    return tables


def test_powers_are_those_of_two():
    assert list(_POWERS) == [round(2 ** (16 + i / 16)) for i in range(16)]


@given(st.lists(st.integers(-256, 254), min_size=1, max_size=1024))
@settings(max_examples=100, deadline=None)
def test_widths_sum_exactly_and_follow_the_weights(exponents):
    found = widths(np.array(exponents))
    assert found.sum() == TOTAL
    assert found.min() >= 1
    order = np.lexsort((found, exponents))
    assert (np.diff(found[order]) >= 0).all()
    exact = np.exp2(np.array(exponents) / 16.0)
    exact = 1 + exact / exact.sum() * (TOTAL - len(exponents))
    np.testing.assert_allclose(found, exact, rtol=0.01, atol=len(exponents) + 2)


def test_new_tables_are_uniform():
    tables = CodeTables(2, 1024)
    codes = np.random.default_rng(0).integers(0, 1024, (1000, 2))
    words, sizes = tables.encode(codes)
    assert len(words) == pytest.approx(2 * 1000 * 10 / 16, abs=STATE_WORDS)
    np.testing.assert_array_equal(tables.decode(words, sizes, 1000), codes)


@pytest.mark.parametrize("frames", [1, 2, 777])
def test_codes_come_back_also_those_never_seen(fitted, frames):
    codes = np.random.default_rng(frames).integers(0, 32, (frames, 3))
    words, sizes = fitted.encode(codes)
    np.testing.assert_array_equal(fitted.decode(words, sizes, frames), codes)
    for depth in (1, 2):
        kept = words[: STATE_WORDS + sum(sizes[:depth])]
        np.testing.assert_array_equal(fitted.decode(kept, sizes[:depth], frames), codes[:, :depth])


def test_fitted_tables_are_close_to_the_true_information(fitted):
    codes = dependent_codes(4000, seed=7)
    _, sizes = fitted.encode(codes)
    chances = np.array([math.comb(12, k) for k in range(13)]) / 4096
    entropy = -(chances * np.log2(chances)).sum()
    assert 16 * sizes[0] / 4000 == pytest.approx(entropy, rel=0.03)  # it depends on the frame before alone
    for stage, size in enumerate(sizes):
        alone = -np.log2((np.bincount(codes[:, stage], minlength=32) + 0.5) / 4016)[codes[:, stage]].mean()
        # Two conditions shift the codes here, which a product of weights can express in part.
        assert alone - 16 * size / 4000 > 0.5 * (alone - entropy) > 0.2


def test_damaged_words_are_seldom_taken_for_codes(fitted):
    codes = dependent_codes(50, seed=3)
    words, sizes = fitted.encode(codes)
    with pytest.raises(ValueError, match="words for sections"):
        fitted.decode(words[:-1], sizes, 50)
    unnoticed = 0
    for place in range(len(words)):
        wrong = words.copy()
        wrong[place] ^= 1
        try:
            fitted.decode(wrong, sizes, 50)
            unnoticed += 1
        except ValueError:
            pass
    assert unnoticed <= len(words) // 10  # the file has checksums


def test_tables_are_saved_and_a_model_without_has_uniform_ones(fitted):
    copy = CodeTables(3, 32, classes=4)
    codes = dependent_codes(100, seed=5)
    before = len(copy.encode(codes)[0])
    copy.load_state_dict(fitted.state_dict())
    np.testing.assert_array_equal(copy.encode(codes)[0], fitted.encode(codes)[0])
    copy.load_state_dict({})
    assert len(copy.encode(codes)[0]) == before
    assert sum(buffer.numel() for buffer in CodeTables(12, 1024).buffers()) < 350_000
    assert all(buffer.dtype in (torch.int8, torch.uint8) for buffer in copy.buffers())


def test_too_many_codes_are_refused():
    with pytest.raises(ValueError, match="codebook_size must be at most"):
        CodeTables(2, 2**16)
