import math

import numpy as np
import pytest
import torch

from ghrq.metrics import audio
from ghrq.metrics.audio import Pair
from speech_like import speech_like

RATE = 16_000


def noisy(signal, level, seed=0):
    return signal + level * torch.randn(len(signal), generator=torch.Generator().manual_seed(seed))


def test_si_sdr_is_the_angle_between_the_signals():
    # Closed form: with φ the angle of the centred signals, 10 log10 cot²φ.
    s, e = (torch.randn(3, 4000, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    estimate = 0.3 * s + e
    a, b = (x.numpy() - x.numpy().mean(1, keepdims=True) for x in (s, estimate))
    cos = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = 10 * np.log10(cos**2 / (1 - cos**2))
    np.testing.assert_allclose(audio.si_sdr(s, estimate), expected, rtol=1e-10)
    np.testing.assert_allclose(
        audio.si_sdr(s, -7.0 * estimate + 3.0), expected, rtol=1e-10
    )  # scale and offset do not matter


def test_a_tone_is_loudest_in_its_mel_band():
    time = torch.arange(RATE) / RATE
    spectrum = audio.log_mel(torch.sin(2 * math.pi * 1000.0 * time), RATE)
    place = (
        2595 * math.log10(1 + 1000 / 700) / (2595 * math.log10(1 + RATE / 2 / 700)) * 65
    )  # in bands, from the edge 0
    assert spectrum.shape == (64, RATE // 256 + 1)
    assert abs(int(spectrum.mean(1).argmax()) + 1 - place) <= 1.0


def test_mel_distance_of_half_the_level_is_ln_2():
    signal = noisy(torch.zeros(RATE), 0.1)  # loud in all bands: what 16 bits do not resolve counts as silence
    assert audio.mel_distance(signal, 0.5 * signal, RATE) == pytest.approx(math.log(2.0), rel=1e-3)
    assert audio.mel_distance(signal, signal, RATE) == 0.0


def test_scores_fall_with_noise_for_files_of_any_length():
    files = [speech_like(seconds, RATE, seed) for seed, seconds in enumerate((1.0, 1.7))]
    clean, little, much = (
        audio.scores([Pair(s, noisy(s, level)) for s in files], RATE) for level in (0.0, 0.003, 0.03)
    )
    assert all(len(values) == 2 for values in clean.values())
    assert audio.means(clean)["pesq"] == pytest.approx(4.644, abs=1e-3)
    assert audio.means(clean)["stoi"] == pytest.approx(1.0)
    for name in ("pesq", "stoi", "si_sdr"):
        assert bool((clean[name] > little[name]).all() & (little[name] > much[name]).all()), name
    assert bool((little["mel"] < much["mel"]).all())


def test_pesq_is_that_of_the_signal_at_16_khz():
    import soxr

    signal = speech_like(1.5, 24_000)
    decoded = noisy(signal, 0.01)
    at_16 = [torch.from_numpy(soxr.resample(x.double().numpy(), 24_000, RATE)) for x in (signal, decoded)]
    assert audio.pesq(signal, decoded, 24_000) == audio.pesq(*at_16, RATE)


def test_undefined_scores_are_nan_and_left_out_of_the_mean():
    signal, silence = speech_like(1.0, RATE), torch.zeros(RATE)
    values = audio.scores([Pair(silence, signal), Pair(signal, signal), Pair(signal[:100], signal[:100])], RATE)
    assert values["pesq"].isnan().tolist() == [True, False, True]
    assert values["stoi"].isnan().tolist() == [True, False, True]
    assert values["si_sdr"].isnan().tolist() == [True, False, False]
    assert audio.means(values)["stoi"] == pytest.approx(1.0)


def test_decoded_silence_gets_the_lowest_scores():
    signal = speech_like(1.0, RATE)
    values = audio.scores([Pair(signal, torch.zeros(RATE))], RATE)
    assert values["pesq"].item() == pytest.approx(1.0427, abs=1e-4)
    assert values["stoi"].item() == pytest.approx(0.0, abs=1e-6)
    assert values["si_sdr"].item() == -math.inf


@pytest.mark.parametrize("decoded", [torch.zeros(99), torch.zeros(1, 100), torch.full((100,), math.nan)])
def test_signals_must_be_finite_and_equally_long(decoded):
    with pytest.raises(ValueError, match=r"expected two signals|not finite"):
        audio.scores([Pair(torch.ones(100), decoded)], RATE)


def test_entropies_of_known_distributions():
    uniform = torch.arange(8).repeat(5)
    constant = torch.full((40,), 3)
    halves = torch.tensor([0, 0, 1, 2]).repeat(10)
    codes = torch.stack([uniform, constant, halves], dim=1)
    torch.testing.assert_close(audio.entropies(codes.view(4, 10, 3), 8), torch.tensor([3.0, 0.0, 1.5]).double())
