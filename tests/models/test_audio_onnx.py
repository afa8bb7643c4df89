"""The exported parts of an audio codec give torch's codes and sound in ONNX Runtime, for any batch and length."""

import numpy as np
import pytest
import torch

from ghrq.models.audio_codec import AudioCodec, AudioCodecConfig
from ghrq.models.audio_onnx import export_onnx
from ghrq.nets.seanet import SeanetConfig
from ghrq.system.errors import UserError
from small_codec import small_codec


@pytest.mark.slow
def test_onnx_runtime_gives_the_same_codes_and_sound(tmp_path):
    import onnxruntime

    codec = small_codec(stages=2, codes=8)
    paths = export_onnx(codec.train(), tmp_path / "onnx", depth=1)
    assert codec.training
    codec.eval()
    encoder, decoder = (onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths)
    for batch, frames in ((1, 1), (2, 5), (1, 37)):
        wave = 0.1 * torch.randn(batch, frames * codec.hop)
        expected = codec.encode(wave, beam=1)
        (codes,) = encoder.run(None, {"wave": wave.numpy()})
        np.testing.assert_array_equal(codes, expected.numpy())
        (heard,) = decoder.run(None, {"codes": codes[..., :1].copy()})
        np.testing.assert_allclose(heard, codec.decode(expected[..., :1]).numpy(), rtol=1e-4, atol=1e-5)


def test_seanet_is_refused(tmp_path):
    codec = AudioCodec(AudioCodecConfig(architecture="seanet", dim=4, seanet=SeanetConfig(strides=(2,), filters=2)))
    with pytest.raises(UserError, match="seanet cannot be exported"):
        export_onnx(codec, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
