"""The image task from recipe to report, on scikit-learn's digits and on images with superclasses, with every kind."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from safetensors.torch import load_file
from small_image import small

from ghrq.data import inception
from ghrq.data.images import Images, load_splits, sets
from ghrq.metrics import generation, image_samples
from ghrq.metrics.image_codes import mean_squared_error
from ghrq.metrics.taxonomy import SCORES, centres, resample
from ghrq.models import ImagePrior, ImageTokenizer
from ghrq.models.image_tokenizer import ImageTokenizerConfig, as_bytes, as_floats
from ghrq.quantizer import KINDS, QuantizerConfig
from ghrq.report.study import write_report
from ghrq.system.errors import UserError
from ghrq.tasks.image import Image
from ghrq.tasks.image.evaluation import RECONSTRUCTIONS, SAMPLE_SHEET, SAMPLES
from ghrq.training.study import Outcome
from ghrq.training.train import train


def load_tokenizer(run: Path) -> ImageTokenizer:
    return ImageTokenizer.from_pretrained(run / "models" / "tokenizer")


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six classes in three superclasses, 10 × 9 pixels in colour: a superclass is a colour, a class a brightness."""

    def load(name: str, *, split: str, source: str, download: bool, size: int) -> Images:
        random = np.random.default_rng(0 if split == "train" else 1)
        labels = torch.arange(120 if split == "train" else 60) % 6
        colour = torch.eye(3)[labels // 2] * (150 + 80 * (labels % 2)).unsqueeze(1)
        noise = torch.from_numpy(random.uniform(0, 20, (len(labels), 3, 10, 9))).float()
        pixels = (colour[:, :, None, None] + noise).byte()
        return Images(pixels, labels, tuple("abcdef"), labels // 2, ("x", "y", "z"))

    monkeypatch.setattr(sets, "load", load)
    load_splits.cache_clear()
    monkeypatch.setattr(image_samples, "_trained", {})
    yield
    load_splits.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_from_recipe_to_results(kind: str, coarse: None, tmp_path: Path) -> None:
    settings = (f"quantizer.kind={kind}", "tokenizer.batch=20", "prior.conditional=true", "tokenizer.epochs=6")
    results = train(small(*settings), tmp_path / "run")
    assert results["mse"] == results["mse_by_depth"][-1] < 0.06, "the images' own variance is 0.13"
    assert all(np.isfinite(results["prior"]["test_loss_by_depth"]))
    assert results["samples"]["count"] == 60
    assert results["samples"]["classifier_distance"] > 0.0
    tree = results["taxonomy"]
    assert np.array(tree["linkage"]).shape == (5, 4)
    assert tree["superclass_of"] == [0, 0, 1, 1, 2, 2]
    assert tree["dendrogram_purity"]["random"] < 0.9
    assert tree["of_colours"]["dendrogram_purity"]["value"] == 1.0  # a superclass is a colour
    assert tree["of_colours"]["resampled"]["dendrogram_purity"]["mean"] == 1.0
    assert set(tree["resampled"]) == set(SCORES)
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    held_out = [line["validation/ari"] for line in logged if "validation/ari" in line]
    assert len(held_out) == 6
    tokenizer, images = load_tokenizer(tmp_path / "run"), load_splits("digits", validation=0.1).validation
    points = tokenizer.quantizer.points(tokenizer.quantizer.decode(tokenizer.encode(images.pixels).flatten(1, 2)))
    c = tokenizer.quantizer.curvature
    again = resample(centres(points, c), images.labels, images.coarse_of_labels(), c, clusters=3)
    assert held_out[-1] == pytest.approx(again["ari"].mean)
    if kind in ("ghrq", "euclidean", "hra-only"):
        assert results["quantizer"]["telescoping_error"] < 1e-9
    prior = ImagePrior.from_pretrained(tmp_path / "run" / "models" / "prior")
    losses = prior.losses(tokenizer.encode(images.pixels), images.labels)
    assert losses.shape == (3,)
    for file in (RECONSTRUCTIONS, SAMPLE_SHEET, SAMPLES):
        assert (tmp_path / "run" / file).stat().st_size > 0


@pytest.mark.slow
def test_results_can_be_had_again_from_the_checkpoints(run: Path) -> None:
    from ghrq.training.run import Run
    from ghrq.training.train import evaluate

    before = json.loads((run / "results.json").read_text())
    sheet = (run / SAMPLE_SHEET).read_bytes()
    assert evaluate(Run.open(run)) == before
    assert (run / SAMPLE_SHEET).read_bytes() == sheet


@pytest.mark.slow
def test_fid_and_inception_score_by_files_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and a last layer of Inception's shape, known by their checksums: the score is torchmetrics'."""
    score = pytest.importorskip("torchmetrics.image.inception").InceptionScore
    features = torch.nn.Sequential(torch.nn.AvgPool2d(23), torch.nn.Flatten(), torch.nn.Linear(3 * 13 * 13, 2048))
    network, complete = tmp_path / "network.pt", tmp_path / inception.COMPLETE
    torch.jit.trace(features.eval(), torch.zeros(1, 3, 299, 299)).save(str(network))
    torch.save({"fc.weight": torch.randn(1008, 2048)}, complete)
    for module in (inception, generation):
        monkeypatch.setattr(module, "SHA256", hashlib.sha256(network.read_bytes()).hexdigest())
        monkeypatch.setattr(module, "COMPLETE_SHA256", hashlib.sha256(complete.read_bytes()).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path))
    settings = (f"evaluation.inception={network}", "evaluation.inception_count=40")
    results = train(small(*settings), tmp_path / "runs" / "ghrq-s0")
    assert results["samples"]["fid"] > 0.0

    drawn = load_file(tmp_path / "runs" / "ghrq-s0" / SAMPLES)["codes"]
    tokenizer = load_tokenizer(tmp_path / "runs" / "ghrq-s0")
    pixels = as_bytes(tokenizer.decode(drawn[:40], (8, 8)))
    logits = generation.inception(network)(pixels) @ generation.last_layer(complete).T
    metric = score(feature=torch.nn.Identity(), splits=10)
    metric.update(logits)
    torch.manual_seed(42)  # torchmetrics shuffles by the global generator, here the same numbers
    assert results["samples"]["inception_score"] == pytest.approx(metric.compute()[0].item(), rel=1e-4)
    write_report(Image, [outcome("ghrq", results, tmp_path / "runs" / "ghrq-s0")], tmp_path)
    page = (tmp_path / "tables.md").read_text()
    assert f"| {results['samples']['inception_score']:.2f} |" in page.replace("*", "")


@pytest.mark.parametrize("setting", ["data.source=/nowhere", "data.size=30"])
def test_settings_that_digits_have_no_use_for_are_refused(setting: str) -> None:
    with pytest.raises(UserError, match=rf"{setting.split('=')[0]}.*digits.*data.name=folder"):
        small(setting)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 2])
def test_a_small_folder_of_pictures(classes: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for i in range(24):
        path = tmp_path / "mine" / f"class-{i % classes}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    source = ("data.name=folder", f"data.source={tmp_path / 'mine'}", "data.size=16")
    results = train(small(*source, "sampling.count=6"), tmp_path / "run")
    assert results["samples"]["count"] == 6
    assert ("classifier_score" in results["samples"]) == (classes > 1)


@pytest.mark.slow
def test_a_folder_that_changed_since_the_run_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ghrq.training.run import Run
    from ghrq.training.train import evaluate

    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    Path("mine").mkdir()
    for i in range(12):
        Pillow.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(f"mine/{i}.png")
    settings = ("data.name=folder", "data.source=mine", "data.size=16", "sampling.count=0", "prior.epochs=0")
    results = train(small(*settings), tmp_path / "run")
    monkeypatch.chdir("/")  # a relative source is found from everywhere
    assert evaluate(Run.open(tmp_path / "run")) == results
    (tmp_path / "mine" / "3.png").unlink()
    load_splits.cache_clear()
    with pytest.raises(UserError, match=r"mine are not those that the run in .*run was begun with"):
        evaluate(Run.open(tmp_path / "run"))
    assert Run.open(tmp_path / "run").results == results
    assert not (tmp_path / "run" / "status.json").exists()


@pytest.mark.parametrize(
    ("pictures", "settings", "message"),
    [
        (2, (), "at least three"),
        (6, ("quantizer.codebook_size=500",), "4 images give 64 vectors, too few for 500 codes"),
        (6, ("data.validation=0.99",), "data.validation=0.99 leaves none of 5 images"),
        (6, ("data.size=4", "tokenizer.batch=3", "quantizer.start=random"), "4 images in batches of 3.*single"),
        (6, ("prior.conditional=true", "quantizer.start=random"), "prior.conditional=true, but .*mine has no classes"),
    ],
)
def test_too_few_pictures(pictures: int, settings: tuple[str, ...], message: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "mine").mkdir()
    for i in range(pictures):
        Pillow.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(tmp_path / "mine" / f"{i}.png")
    source = ("data.name=folder", f"data.source={tmp_path / 'mine'}", "data.size=16")
    with pytest.raises(UserError, match=message):
        train(small(*source, *settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["sampling.temperature=inf", "tokenizer.rate=inf", "sampling.count=1"])
def test_settings_that_can_never_work(setting: str) -> None:
    with pytest.raises(UserError, match=setting.partition("=")[0]):
        small(setting)


@pytest.mark.slow
def test_errors_are_those_of_the_pixels(run: Path) -> None:
    tokenizer = load_tokenizer(run)
    pixels = load_splits("digits", validation=0.1).test.pixels[:70]
    codes = tokenizer.encode(pixels)
    back = tokenizer.decode(codes)
    plain = float(((back.double() - pixels.double() / 255.0) ** 2).mean())
    assert mean_squared_error(tokenizer, pixels, codes) == pytest.approx(plain, rel=1e-5)


def test_losses_weigh_alike_in_both_geometries() -> None:
    """Near the origin, a squared geodesic distance is 4 times the Euclidean one: so is what is added to the loss."""
    losses = {}
    for kind in ("ghrq", "euclidean"):
        torch.manual_seed(0)
        tokenizer = ImageTokenizer(
            ImageTokenizerConfig(channels=1, dim=4, quantizer=QuantizerConfig(kind=kind, codebook_size=8))
        ).eval()
        with torch.no_grad():
            tokenizer.encoder.layers[-1].weight.mul_(1e-3)
            tokenizer.encoder.layers[-1].bias.zero_()
            tokenizer.quantizer.codebooks.mul_(1e-3)
            losses[kind] = float(tokenizer(torch.randint(256, (4, 1, 8, 8), dtype=torch.uint8))["quantizer"])
    assert losses["ghrq"] == pytest.approx(losses["euclidean"], rel=1e-3)


def test_the_pixel_range_is_what_the_encoder_sees() -> None:
    torch.manual_seed(0)
    unit = ImageTokenizer(ImageTokenizerConfig(channels=1)).eval()
    symmetric = ImageTokenizer(ImageTokenizerConfig(channels=1, pixel_range="symmetric")).eval()
    symmetric.load_state_dict(unit.state_dict())
    x = as_floats(torch.randint(256, (2, 1, 8, 8), dtype=torch.uint8))
    torch.testing.assert_close(symmetric.vectors(x), unit.encoder(2 * x - 1))
    torch.testing.assert_close(unit.vectors(x), unit.encoder(x))


def test_the_study_has_the_paper_s_kinds_and_one_recipe() -> None:
    planned = Image.study.plan("cpu", 2, False, "mnist")
    assert {run.name for run in planned} == {
        f"{k}-s{s}" for k in ("ghrq", "naive", "euclidean", "calibrated") for s in (0, 1)
    }
    grid = {run.name: run.recipe for run in Image.study.plan("paper", 1, True, "cifar100")}
    assert {recipe.quantizer.kind for recipe in grid.values()} == set(KINDS)
    different = {"name": "", "quantizer": None, "axes": {}}
    assert len({recipe.model_copy(update=different).model_dump_json() for recipe in grid.values()}) == 1
    paper = grid["ghrq-s0"]
    assert (paper.tokenizer.dim, paper.quantizer.codebook_size, paper.quantizer.num_stages) == (16, 512, 4)


def outcome(kind: str, results: dict[str, Any], folder: Path, error: str = "") -> Outcome:
    return Outcome({"recipe": "digits-demo", "dataset": "cifar100", "kind": kind, "seed": 0}, folder, results, error)


@pytest.mark.slow
def test_the_report_shows_tables_sheets_and_trees(coarse: None, tmp_path: Path) -> None:
    outcomes = []
    for kind in ("ghrq", "euclidean"):
        results = train(small(f"quantizer.kind={kind}", "tokenizer.batch=20"), tmp_path / f"{kind}-s0")
        outcomes.append(outcome(kind, results, tmp_path / f"{kind}-s0"))
    outcomes.append(outcome("naive", {}, tmp_path / "naive-s0", "the loss is not finite at step 7"))
    page = write_report(Image, outcomes, tmp_path).read_text()
    tables = (tmp_path / "tables.md").read_text()
    assert f"{1000 * outcomes[0].results['mse']:.3f}" in tables
    assert "| naive hyperbolic | diverged | 1.280 |" in tables, "beside the figures of the paper"
    assert "<code>naive-s0</code>: the loss is not finite at step 7" in page
    assert page.count("data:image/png;base64") == 4
    assert 'alt="GHRQ, seed 0. From top to bottom' in page, "words only, nothing of Markdown"
    assert "| mean colours (no model) |" in tables
    assert (tmp_path / "figures" / "tree-ghrq.svg").is_file()
    assert (tmp_path / "figures" / "mse-by-depth.svg").is_file()
