"""The image models by themselves: made from a config, saved, loaded, used without a task."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ghrq
from ghrq.models.image_prior import ImagePrior, ImagePriorConfig
from ghrq.models.image_tokenizer import ImageTokenizer, ImageTokenizerConfig, as_bytes, as_floats
from ghrq.quantizer import QuantizerConfig
from ghrq.system.errors import UserError

QUANTIZER = QuantizerConfig(codebook_size=8, num_stages=3)
TOKENIZER = ImageTokenizerConfig(channels=1, dim=4, pixel_range="symmetric", quantizer=QUANTIZER)
PRIOR = ImagePriorConfig(grid=(3, 2), dim=4, quantizer=QUANTIZER, width=16, heads=2, spatial_layers=1, depth_layers=1)


def pixels(count: int = 5, channels: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, channels, 10, 7), dtype=torch.uint8, generator=random)


@pytest.fixture
def tokenizer() -> ImageTokenizer:
    torch.manual_seed(0)
    model = ImageTokenizer(TOKENIZER)
    model(pixels())  # in training mode: batch norms and usage are no longer those of a new model
    return model.eval()


def test_a_tokenizer_comes_back_the_same(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path / "tok")
    assert sorted(path.name for path in (tmp_path / "tok").iterdir()) == ["config.json", "model.safetensors"]
    state = torch.get_rng_state()
    found = ghrq.models.ImageTokenizer.from_pretrained(str(tmp_path / "tok"))
    assert torch.equal(torch.get_rng_state(), state)
    assert found.config == TOKENIZER
    assert not found.training
    codes = tokenizer.encode(pixels())
    assert codes.shape == (5, 3, 2, 3)
    assert torch.equal(found.encode(pixels()), codes)
    images = found.decode(codes[..., :2], (10, 7))
    assert images.shape == (5, 1, 10, 7)
    assert torch.equal(images, tokenizer.decode(codes[..., :2], (10, 7)))
    assert found.decode(codes).shape == (5, 1, 12, 8)
    assert torch.equal(found.points(codes), tokenizer.points(codes))


def test_many_images_are_encoded_in_batches(tokenizer: ImageTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = tokenizer.encode(pixels())
    images, points = tokenizer.decode(codes), tokenizer.points(codes)
    monkeypatch.setattr("ghrq.models.image_tokenizer._BATCH", 2)
    assert torch.equal(tokenizer.encode(pixels()), codes)
    torch.testing.assert_close(tokenizer.decode(codes), images)
    assert torch.equal(tokenizer.points(codes), points)


def test_a_prior_stands_alone(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    plain = ImagePrior(PRIOR, tokenizer.quantizer)
    torch.set_rng_state(state)
    again = ImagePrior(PRIOR, tokenizer.quantizer)
    assert torch.equal(plain.transformer.places, again.transformer.places)
    codes = tokenizer.encode(pixels())
    plain.standardize(codes)
    plain.eval().save_pretrained(tmp_path / "prior")
    found = ImagePrior.from_pretrained(tmp_path / "prior")
    labels = torch.zeros(5, dtype=torch.int64)
    assert torch.equal(found.losses(codes, labels), plain.losses(codes, labels))
    sampled = found.sample(4, generator=torch.Generator().manual_seed(3), top_k=5)
    assert sampled.shape == (4, 3, 2, 3)
    expected = plain.sample(4, generator=torch.Generator().manual_seed(3), top_k=5)
    assert torch.equal(sampled, expected)
    assert tokenizer.decode(sampled, (10, 7)).shape == (4, 1, 10, 7)


def test_a_prior_that_knows_classes_samples_all_in_turn(tokenizer: ImageTokenizer) -> None:
    prior = ImagePrior(PRIOR.model_copy(update={"classes": 3}), tokenizer.quantizer).eval()
    by_default = prior.sample(5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(by_default, prior.sample(5, labels, generator=torch.Generator().manual_seed(0)))


def test_bytes_and_floats() -> None:
    assert torch.equal(as_bytes(as_floats(pixels())), pixels())


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (pixels().numpy(), "as a torch tensor, got ndarray"),
        (pixels() / 255.0, "torch.float32 of shape"),
        (pixels()[0], "shape \\(1, 10, 7\\)"),
        (pixels(channels=3), "shape \\(5, 3, 10, 7\\)"),
    ],
)
def test_what_are_not_bytes_of_images_is_refused(tokenizer: ImageTokenizer, wrong: torch.Tensor, got: str) -> None:
    for call in (tokenizer.encode, tokenizer):
        with pytest.raises(ValueError, match=rf"expected uint8 pixels of shape \(n, 1, height, width\).*{got}"):
            call(wrong)


def test_codes_of_numpy_are_refused(tokenizer: ImageTokenizer) -> None:
    for call in (tokenizer.decode, tokenizer.points):
        with pytest.raises(ValueError, match="expected codes as a torch tensor, got ndarray"):
            call(tokenizer.encode(pixels()).numpy())


def test_what_is_not_such_a_model_is_refused(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path / "tok")
    with pytest.raises(UserError, match=r"config.json does not describe image priors: .*'ghrq-image-prior'"):
        ImagePrior.from_pretrained(tmp_path / "tok")
    path = tmp_path / "tok" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model.safetensors is damaged or of another image tokenizer"):
        ImageTokenizer.from_pretrained(tmp_path / "tok")


def test_a_config_that_is_not_understood_is_one_line(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    from ghrq.system import pretrained

    for change in ({"magic": 1}, {"channels": 0}, {"dim": 5}):
        config = TOKENIZER.model_dump(mode="json") | change
        pretrained.save(tmp_path / "tok", ImageTokenizer._format, config, tokenizer.state_dict(), force=True)
        with pytest.raises(UserError, match=r"config.json and its weights do not fit together") as caught:
            ImageTokenizer.from_pretrained(tmp_path / "tok")
        assert "\n" not in str(caught.value)
        if "dim" not in change:
            assert next(iter(change)) in str(caught.value)


def test_it_is_found_in_the_cache_of_the_hub(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    """The cache as huggingface_hub lays it out, filled by hand."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "cache" / "models--someone--digits"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    tokenizer.save_pretrained(repository / "snapshots" / commit)
    found = ImageTokenizer.from_pretrained("someone/digits", cache_dir=tmp_path / "cache", local_files_only=True)
    assert torch.equal(found.encode(pixels()), tokenizer.encode(pixels()))


@pytest.mark.slow
def test_models_are_imported_when_used_and_need_no_hub() -> None:
    program = (
        "import sys, tempfile\n"
        "import ghrq, ghrq.models\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'ImagePrior' in dir(ghrq.models)\n"
        "sys.modules['huggingface_hub'] = None\n"
        "from ghrq.models.image_tokenizer import ImageTokenizerConfig\n"
        "folder = tempfile.mkdtemp()\n"
        "ghrq.models.ImageTokenizer(ImageTokenizerConfig(channels=3)).save_pretrained(folder)\n"
        "assert ghrq.models.ImageTokenizer.from_pretrained(folder).config.channels == 3\n"
        "ghrq.ResidualQuantizer(4).save_pretrained(folder + '/rq')\n"
        "assert ghrq.ResidualQuantizer.from_pretrained(folder + '/rq').dim == 4\n"
        "try:\n    ghrq.models.ImageTokenizer.from_pretrained('someone/tok')\n"
        "except ValueError as error:\n    assert 'ghrq[hub]' in str(error)\n"
        "else:\n    raise SystemExit('no error')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_config_is_plain_json(tokenizer: ImageTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path / "tok")
    config = json.loads((tmp_path / "tok" / "config.json").read_text())
    assert (config["format"], config["version"]) == ("ghrq-image-tokenizer", 1)
    assert config["quantizer"]["codebook_size"] == 8
    assert np.isfinite(config["quantizer"]["commitment_weight"])
