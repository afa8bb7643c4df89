"""The audio codec: shapes, depths, files."""

import pytest
import torch

from ghrq.models import AudioCodec
from ghrq.models.audio_codec import AudioCodecConfig
from ghrq.models.bitstream import Header, reading
from ghrq.models.compact import compact, expand
from ghrq.nets.frame_codec import FrameCodecConfig
from ghrq.nets.seanet import SeanetConfig
from ghrq.quantizer import QuantizerConfig


def low_notes(rows, samples):
    """Noise without high frequencies, which few components can hold: ``(rows, samples)``."""
    return torch.nn.functional.avg_pool1d(0.3 * torch.randn(rows, samples), 41, 1, 20)


@pytest.fixture(scope="module")
def codec():
    torch.manual_seed(0)
    quantizer = QuantizerConfig(kind="calibrated", codebook_size=32, num_stages=3, centre=True)
    codec = AudioCodec(AudioCodecConfig(dim=8, frame=FrameCodecConfig(hidden=16), quantizer=quantizer))
    wave = low_notes(4, 16_000)
    codec.network.start(wave)
    codec.quantizer.initialize(codec.latents(wave).detach())
    return codec.eval()


def test_shapes(codec):
    wave = 0.1 * torch.randn(2, 1000)
    assert codec.hop == 320
    assert codec.frames(1000) == 4
    codes = codec.encode(wave)
    assert codes.shape == (2, 4, 3)
    assert codec.decode(codes, length=1000).shape == (2, 1000)
    assert codec.decode(codes[0]).shape == (1280,)
    assert torch.equal(codec.encode(wave[0]), codes[0])
    assert torch.equal(codec.encode(wave, stages=2, beam=1), codec.encode(wave, beam=1)[..., :2])
    assert torch.equal(codec.encode(wave.double()), codes)
    assert codec.encode(wave[:0]).shape == (0, 4, 3)


@pytest.mark.parametrize("samples", [0, 1, 319, 320, 321])
def test_any_length(codec, samples):
    codes = codec.encode(torch.zeros(samples))
    assert codes.shape == (codec.frames(samples), 3)
    wave = codec.decode(codes, length=samples)
    assert wave.shape == (samples,)
    assert wave.isfinite().all()


@pytest.mark.parametrize("samples", [0, 400])
def test_stages_and_beam_are_checked_for_any_sound(codec, samples):
    for wrong in ({"stages": 4}, {"stages": 0}, {"stages": -1}, {"stages": 1.5}, {"beam": 0}, {"beam": 2.5}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"^{name} must be "):
            codec.encode(torch.zeros(samples), **wrong)
        with pytest.raises(ValueError, match=f"^{name} must be "):
            codec.stream(**wrong)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"sample_rate": 999}, "greater than or equal to 1000"),
        ({"sample_rate": 768_001}, "less than or equal to 768000"),
        ({"frame": FrameCodecConfig(hop=32_768)}, "frame of at most 65,535 samples"),
        ({"quantizer": QuantizerConfig(num_stages=65)}, "num_stages=65: files of codes hold 64 at most"),
        ({"quantizer": QuantizerConfig(codebook_size=65_537)}, "codebook_size=65537: files of codes hold 65,536"),
    ],
)
def test_a_codec_whose_codes_no_file_can_hold_is_refused(sizes, told):
    with pytest.raises(ValueError, match=told):
        AudioCodecConfig(**sizes)


def test_the_largest_sizes_fit_into_a_file(tmp_path):
    quantizer = QuantizerConfig(codebook_size=65_536, num_stages=64)
    config = AudioCodecConfig(sample_rate=768_000, frame=FrameCodecConfig(hop=32_767), quantizer=quantizer)
    header = Header(config.quantizer.num_stages, 1, 768_000, 0, config.sample_rate, config.hop, config.codes, bytes(8))
    (tmp_path / "a.ghrq").write_bytes(header.pack())
    with reading(tmp_path / "a.ghrq") as reader:
        assert reader.header == header


def test_more_stages_are_closer(codec):
    wave = low_notes(4, 16_000)
    codes = codec.encode(wave)
    errors = [float((codec.decode(codes[..., :depth]) - wave).square().mean()) for depth in (1, 2, 3)]
    assert errors == sorted(errors, reverse=True)


def test_a_wrong_length_or_a_nan_is_an_error(codec):
    with pytest.raises(ValueError, match="do not give length=2000"):
        codec.decode(torch.zeros(2, 3, dtype=torch.int64), length=2000)
    for wrong in (torch.nan, torch.inf, 20_000.0):  # the last: 16 bits that were not scaled
        with pytest.raises(ValueError, match=f"samples from -1 to 1, the largest is {wrong:g}: scale or repair"):
            codec.encode(torch.full((400,), wrong))
    with pytest.raises(ValueError, match="expected samples"):
        codec.encode(torch.zeros(400, dtype=torch.int16))


def test_saved_and_loaded_it_is_the_same_codec(codec, tmp_path):
    codec.save_pretrained(tmp_path / "codec")
    again = AudioCodec.from_pretrained(tmp_path / "codec")
    wave = 0.1 * torch.randn(5000)
    assert again.fingerprint == codec.fingerprint
    assert torch.equal(again.encode(wave), codec.encode(wave))
    again.network.decoder.split.bias.data[0] += 1e-3
    assert again.fingerprint != codec.fingerprint


def test_learning_statistics_do_not_change_the_fingerprint(codec):
    before = codec.fingerprint
    codec.quantizer.usage.share += 0.5
    assert codec.fingerprint == before


def test_the_other_architecture(tmp_path):
    torch.manual_seed(0)
    quantizer = QuantizerConfig(kind="ghrq", codebook_size=8, num_stages=2)
    sizes = SeanetConfig(strides=(2, 3), filters=2, memory=5)
    codec = AudioCodec(AudioCodecConfig(architecture="seanet", dim=4, seanet=sizes, quantizer=quantizer)).eval()
    wave = 0.1 * torch.randn(100)
    assert (codec.hop, codec.alignment, codec.frames(100)) == (6, 5, 17)
    codes = codec.encode(wave)
    assert codes.shape == (17, 2)
    heard = codec.decode(codes, length=100)
    assert heard.shape == (100,)
    codec.save_pretrained(tmp_path / "codec")
    again = AudioCodec.from_pretrained(tmp_path / "codec")
    assert torch.equal(again.decode(codes, length=100), heard)
    assert again.fingerprint == codec.fingerprint


def test_a_compact_model_is_small_and_nearly_the_same(codec, tmp_path):
    codec.save_pretrained(tmp_path / "large")
    codec.save_compact(tmp_path / "small")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("large", "small")]
    assert sizes[1] < 0.35 * sizes[0]
    again = AudioCodec.from_pretrained(tmp_path / "small")
    wave = low_notes(2, 16_000)
    z, other = codec.latents(wave), again.latents(wave)
    assert (z - other).norm() < 0.02 * z.norm()
    third = AudioCodec.from_pretrained(tmp_path / "small")
    assert third.fingerprint == again.fingerprint != codec.fingerprint
    assert torch.equal(third.encode(wave), again.encode(wave))
    again.train()
    again.quantizer(again.latents(wave))  # it can go on learning
    assert torch.allclose(again.quantizer.codebooks, third.quantizer.codebooks, atol=0.1)


def test_the_tables_of_the_coder_are_part_of_the_codec(codec, tmp_path):
    before = codec.fingerprint
    codec.tables.frame_weights[0, 0, 0] = 3
    assert codec.fingerprint != before
    codec.save_compact(tmp_path / "codec")
    assert AudioCodec.from_pretrained(tmp_path / "codec").tables.frame_weights[0, 0, 0] == 3


def test_compact_weights_are_within_half_a_step():
    weights = {
        "a": torch.randn(40, 50),
        "b": torch.randn(5),
        "c": torch.arange(2000).view(40, 50),
        "d": torch.zeros(40, 50),
    }
    packed = compact(weights)
    assert {name: tensor.dtype for name, tensor in packed.items() if "int8" in name} == {
        "a.int8": torch.int8,
        "d.int8": torch.int8,
    }
    found = expand(packed)
    assert found.keys() == weights.keys()
    assert ((found["a"] - weights["a"]).abs() <= 0.501 * weights["a"].abs().amax(-1, keepdim=True) / 127).all()
    assert torch.equal(found["b"], weights["b"])
    assert torch.equal(found["c"], weights["c"])
    assert torch.equal(found["d"], weights["d"])
    with pytest.raises(ValueError, match=r"'a\.scale' is missing"):
        expand({"a.int8": packed["a.int8"]})
