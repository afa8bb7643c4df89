import pytest
import torch

from ghrq.metrics import audio
from ghrq.metrics.opus import opus
from ghrq.system.errors import UserError
from speech_like import speech_like


def test_more_bits_are_better_and_are_about_those_asked_for():
    signal = speech_like(3.0, 16_000)
    quality, rates = [], []
    for kbps in (6.0, 24.0, 64.0):
        coded = opus(signal, 16_000, kbps)
        assert coded.wave.shape == signal.shape
        quality.append(float(audio.si_sdr(signal, coded.wave)))
        rates.append(coded.bits / 3.0 / 1000.0)
    assert quality == sorted(quality)
    assert quality[-1] > 15.0  # so nothing is shifted
    assert all(0.5 < rate / kbps < 2.0 for rate, kbps in zip(rates, (6.0, 24.0, 64.0), strict=True))  # it is variable


@pytest.mark.parametrize("samples", [1, 319, 320, 3200])
@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
def test_any_length_keeps_its_length_and_its_end(samples, rate):
    signal = speech_like(1.0, rate)[-samples:]
    coded = opus(signal, rate, 128.0)
    assert coded.wave.shape == (samples,)
    if samples == 3200:
        end = torch.linalg.vector_norm(coded.wave[-200:] - signal[-200:]) / torch.linalg.vector_norm(signal[-200:])
        assert end < 0.5


def test_what_opus_cannot_do_is_refused():
    with pytest.raises(UserError, match="Opus codes at 6 to 510 kbit/s, got 5"):
        opus(torch.zeros(100), 16_000, 5.0)
    with pytest.raises(UserError, match=r"Opus encodes 8000, .* got 22050"):
        opus(torch.zeros(100), 22_050, 8.0)
