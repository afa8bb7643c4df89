"""The exported parts of an audio codec give torch's codes and sound in ONNX Runtime, for any batch and length."""

import numpy as np
import pytest
import torch

from ghrq.models.audio_codec import AudioCodec, AudioCodecConfig
from ghrq.models.audio_onnx import export_onnx
from ghrq.nets.seanet import SeanetConfig
from ghrq.quantizer import QuantizerConfig
from small_codec import small_codec


def seanet_codec():
    sizes = SeanetConfig(strides=(4, 10), filters=4, memory=5)
    quantizer = QuantizerConfig(kind="calibrated", codebook_size=8, num_stages=2)
    return AudioCodec(AudioCodecConfig(architecture="seanet", dim=8, seanet=sizes, quantizer=quantizer))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "frames"), [(lambda: small_codec(stages=2, codes=8), (1, 5, 37)), (seanet_codec, (5, 10, 35))]
)
def test_onnx_runtime_gives_the_same_codes_and_sound(make, frames, tmp_path):
    import onnxruntime

    codec = make()
    paths = export_onnx(codec.train(), tmp_path / "onnx", depth=1)
    assert codec.training
    codec.eval()
    encoder, decoder = (onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths)
    for batch, count in zip((1, 2, 1), frames, strict=True):
        wave = 0.1 * torch.randn(batch, count * codec.hop)
        expected = codec.encode(wave, beam=1)
        (codes,) = encoder.run(None, {"wave": wave.numpy()})
        np.testing.assert_array_equal(codes, expected.numpy())
        (heard,) = decoder.run(None, {"codes": codes[..., :1].copy()})
        np.testing.assert_allclose(heard, codec.decode(expected[..., :1]).numpy(), rtol=1e-4, atol=1e-5)
