"""The codec that ships with ghrq: its size, and that it works on speech of speakers it has not heard."""

import os
from pathlib import Path

import pytest
import torch

from ghrq.data.audio.speech import load_speech, read
from ghrq.metrics.audio import mel_distance, si_sdr
from ghrq.models import AudioCodec, audio_codec

SHIPPED = Path(audio_codec.__file__).parent / "shipped" / "speech-16k"


@pytest.fixture(scope="module")
def codec():
    return AudioCodec.from_pretrained("speech-16k")


def test_it_is_small():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 3_000_000


def test_it_has_what_the_documents_say(codec):
    q = codec.config.quantizer
    assert (q.num_stages, q.codebook_size, codec.config.sample_rate, codec.frame_rate) == (12, 1024, 16_000, 50.0)
    assert codec.tables.frame_weights.any()


def test_silence_stays_silent(codec):
    assert codec.decode(codec.encode(torch.zeros(8000), beam=1)).abs().max() < 0.01


def test_a_folder_of_that_name_comes_first(codec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codec.save_pretrained("speech-16k")
    (tmp_path / "speech-16k" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="speech-16k"):
        AudioCodec.from_pretrained("speech-16k")


def test_it_codes_speech(codec):
    if not (Path(os.environ.get("GHRQ_DATA", "/nothing")) / "speech/LibriSpeech").is_dir():
        pytest.skip("needs LibriSpeech in GHRQ_DATA")
    recordings = load_speech().test
    waves = [read(recordings[i], 16_000, 4.0) for i in (3, 50)]
    for wave in waves:
        codes = codec.encode(wave)
        heard = [codec.decode(codes[:, :depth], len(wave)) for depth in (1, 4, 12)]
        mels = [mel_distance(wave, each, 16_000) for each in heard]
        assert mels == sorted(mels, reverse=True)
        # Recordings differ by several dB; on average it is 1.8 dB at 4 stages and 6.0 dB at 12.
        assert float(si_sdr(wave, heard[-1])) > float(si_sdr(wave, heard[1])) + 2.0
