"""Resampling in blocks: exact lengths, no delay, the same for any size of block."""

import numpy as np
import pytest

from ghrq.data.audio.resample import Resampler, resampled_length

RATES = [(44_100, 16_000), (8_000, 16_000), (96_000, 16_000), (16_000, 11_025), (44_101, 16_000), (16_000, 16_000)]


@pytest.mark.parametrize(("rate", "to"), RATES)
@pytest.mark.parametrize("length", [0, 1, 2, 7, 1000, 44_103])
def test_blocks_give_what_the_whole_gives(rate, to, length):
    x = np.random.default_rng(0).standard_normal((length, 2)).astype(np.float32)
    whole = Resampler(rate, to, 2).push(x, last=True)
    assert whole.shape == (resampled_length(length, rate, to), 2)
    stream = Resampler(rate, to, 2)
    parts = [stream.push(x[start : start + 701]) for start in range(0, length, 701)]
    np.testing.assert_array_equal(np.concatenate([*parts, stream.push(x[:0], last=True)]), whole)


@pytest.mark.parametrize(("rate", "to"), RATES)
def test_there_and_back_keeps_the_length_and_the_sound(rate, to):
    time = np.arange(3 * rate + 17) / rate
    x = np.sin(2 * np.pi * 440 * time).astype(np.float32)[:, None]
    back = Resampler(to, rate, 1).push(Resampler(rate, to, 1).push(x, last=True), last=True)
    assert len(back) >= len(x)
    inner = slice(rate // 4, -rate // 4)
    np.testing.assert_allclose(back[: len(x)][inner], x[inner], atol=1e-5)


def test_a_tone_keeps_its_phase():
    rate, to = 44_100, 16_000
    x = np.sin(2 * np.pi * 1000 * np.arange(rate) / rate).astype(np.float32)[:, None]
    expected = np.sin(2 * np.pi * 1000 * np.arange(to) / to)
    found = Resampler(rate, to, 1).push(x, last=True)[:, 0]
    np.testing.assert_allclose(found[4000:-4000], expected[4000:-4000], atol=1e-5)
