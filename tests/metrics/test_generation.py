"""Fréchet distance and Inception Score: closed forms, scipy and torchmetrics as oracles, and the real Inception."""

import hashlib
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

from ghrq.data.inception import SHA256, WHEEL, weights
from ghrq.metrics import generation
from ghrq.metrics.generation import (
    Features,
    collect,
    collect_once,
    frechet_distance,
    inception,
    inception_score,
    last_layer,
)
from ghrq.nets.classifier import SmallClassifier
from ghrq.system.errors import UserError

fid = pytest.importorskip("torchmetrics.image.fid")
scores = pytest.importorskip("torchmetrics.image.inception")


class Pixels(nn.Module):
    """Features that can be computed by hand: some pixels, scaled."""

    num_features = 12

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        return images.flatten(1)[:, : self.num_features].float() / 16


def pictures(count, low=0, high=256):
    return torch.randint(low, high, (count, 1, 4, 4), dtype=torch.uint8)


def gaussian(d, rank=None):
    factor = torch.randn(d, rank or 2 * d).double()
    return torch.randn(d).double(), factor @ factor.T / d


# --- the Fréchet distance ------------------------------------------------------------------------------------


def test_in_one_dimension_and_for_covariances_that_commute_it_has_a_closed_form():
    mean, variance = torch.tensor([1.0]), torch.tensor([[4.0]])
    assert frechet_distance(mean, variance, mean + 3.0, variance * 4.0) == pytest.approx(9.0 + (2.0 - 4.0) ** 2)
    basis = torch.linalg.qr(torch.randn(20, 20).double()).Q
    first, second = torch.rand(20).double(), torch.rand(20).double()
    covariances = [basis * values @ basis.T for values in (first, second)]
    means = torch.randn(2, 20).double()
    expected = (means[0] - means[1]).square().sum() + (first.sqrt() - second.sqrt()).square().sum()
    found = frechet_distance(means[0], covariances[0], means[1], covariances[1])
    assert found == pytest.approx(expected.item(), rel=1e-12)


def test_in_general_it_is_what_scipys_root_gives():
    (mean1, cov1), (mean2, cov2) = gaussian(24), gaussian(24)
    root = scipy.linalg.sqrtm(cov1.numpy() @ cov2.numpy()).real.trace()
    expected = (mean1 - mean2).square().sum() + cov1.trace() + cov2.trace() - 2 * root
    found = frechet_distance(mean1, cov1, mean2, cov2)
    assert found == pytest.approx(expected.item(), rel=1e-11)
    assert found == pytest.approx(frechet_distance(mean2, cov2, mean1, cov1), rel=1e-12)


@pytest.mark.parametrize(("count1", "count2"), [(40, 30), (40, 200), (500, 200)])
def test_of_fewer_pictures_than_features_it_keeps_its_digits(count1, count2):
    """Of centred features X and Y, the trace of the root is the sum of XYᵀ's singular values over √((n-1)(m-1))."""
    first, second = torch.randn(count1, 64).double(), 2 * torch.randn(count2, 64).double() + 1
    x, y = (table - table.mean(0) for table in (first, second))
    root = torch.linalg.svdvals(x @ y.T).sum() / math.sqrt((count1 - 1) * (count2 - 1))
    covariances = [table.T @ table / (len(table) - 1) for table in (x, y)]
    expected = (first.mean(0) - second.mean(0)).square().sum() + sum(c.trace() for c in covariances) - 2 * root
    found = frechet_distance(first.mean(0), covariances[0], second.mean(0), covariances[1])
    assert found == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("rank", [None, 3])
def test_a_set_has_no_distance_from_itself(rank):
    mean, covariance = gaussian(64, rank)
    assert frechet_distance(mean, covariance, mean, covariance) == pytest.approx(0.0, abs=1e-11)
    zero = torch.zeros_like(covariance)
    assert frechet_distance(mean, zero, mean, covariance) == pytest.approx(covariance.trace().item())


def test_it_is_torchmetrics_distance():
    real, fake = pictures(300), pictures(200, 50, 200)
    metric = fid.FrechetInceptionDistance(feature=Pixels())
    metric.update(real, real=True)
    metric.update(fake, real=False)
    found = collect(Pixels(), real).distance(collect(Pixels(), fake))
    assert found == pytest.approx(metric.compute().item(), rel=1e-5)
    assert found > 1.0


def test_wrong_shapes_and_numbers_are_named():
    mean, covariance = gaussian(3)
    with pytest.raises(ValueError, match=r"means \(d,\)"):
        frechet_distance(mean, covariance, mean[:2], covariance)
    with pytest.raises(ValueError, match="not finite"):
        frechet_distance(mean, covariance, mean / 0.0, covariance)


# --- features ------------------------------------------------------------------------------------------------


def test_features_are_the_mean_and_covariance_whatever_the_batch():
    images, network = pictures(77), Pixels()
    table = (images.flatten(1)[:, :12].double() / 16).numpy()
    for batch in (10, 77):
        found = collect(network, images, batch=batch)
        assert found.count == 77
        np.testing.assert_allclose(found.mean, table.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.covariance, np.cov(table, rowvar=False), rtol=1e-10, atol=1e-10)


def test_a_network_in_training_is_evaluated_and_goes_on_training():
    classifier = SmallClassifier(1, 10)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    images = pictures(40)
    first, again = (collect(classifier.features, images, batch=batch) for batch in (7, 40))
    torch.testing.assert_close(first.mean, again.mean, rtol=1e-4, atol=1e-6)
    assert classifier.features.training
    torch.testing.assert_close(classifier.state_dict(), before, rtol=0.0, atol=0.0)


def test_features_are_computed_once_and_kept(tmp_path):
    images, network = pictures(30), Pixels()
    folder = tmp_path / "cache"
    first = collect_once(folder, "mnist-train", "abc", network, images)
    calls = network.calls
    again = collect_once(folder, "mnist-train", "abc", network, images)
    assert network.calls == calls
    assert again.count == first.count == 30
    assert torch.equal(again.mean, first.mean)
    assert torch.equal(again.covariance, first.covariance)
    (kept,) = folder.glob("*.safetensors")
    assert kept.name.startswith("mnist-train-30-")


def test_who_wants_the_same_features_at_the_same_time_waits_for_them(tmp_path):
    class Slow(Pixels):
        def forward(self, images):
            time.sleep(0.3)
            return super().forward(images)

    networks, images = [Slow() for _ in range(3)], pictures(30)
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda network: collect_once(tmp_path, "x", "abc", network, images), networks))
    assert sorted(network.calls for network in networks) == [0, 0, 1]
    assert all(torch.equal(features.mean, found[0].mean) for features in found)


def test_other_pictures_other_counts_and_other_weights_are_other_features(tmp_path):
    images, network = pictures(30), Pixels()
    other = images.clone()
    other[3, 0, 0, 0] ^= 1
    for given, key in ((images, "abc"), (other, "abc"), (images[:20], "abc"), (images, "def")):
        found = collect_once(tmp_path, "x", key, network, given)
        assert torch.equal(found.mean, collect(network, given).mean)
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_a_damaged_cache_is_made_anew(tmp_path):
    images, network = pictures(30), Pixels()
    first = collect_once(tmp_path, "x", "abc", network, images)
    (kept,) = tmp_path.glob("*.safetensors")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:100])
    assert torch.equal(collect_once(tmp_path, "x", "abc", network, images).mean, first.mean)
    assert kept.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_told_in_a_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*x-30-.*folder that can be written"):
        collect_once(tmp_path / "file", "x", "abc", Pixels(), pictures(30))


def test_what_is_no_picture_is_refused():
    with pytest.raises(ValueError, match=r"uint8.*torch\.float32.*round\(\)\.byte"):
        collect(Pixels(), torch.rand(3, 1, 4, 4))
    with pytest.raises(ValueError, match="at least 2 images, got 1"):
        collect(Pixels(), pictures(1))


def test_without_torchmetrics_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchmetrics"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"torchmetrics.*ghrq\[image\]"):
        collect(Pixels(), pictures(3))


# --- the Inception Score -------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [1, 4])
def test_predictions_all_alike_score_one(splits):
    assert inception_score(torch.full((80, 10), 0.1), splits) == pytest.approx((1.0, 0.0))
    certain = nn.functional.one_hot(torch.zeros(80, dtype=torch.int64), 10)
    assert inception_score(certain, splits) == pytest.approx((1.0, 0.0))


def test_certain_predictions_of_all_classes_score_their_number():
    certain = nn.functional.one_hot(torch.arange(1000) // 100, 10)
    assert inception_score(certain, splits=1) == pytest.approx((10.0, 0.0))
    mean, deviation = inception_score(certain)
    # Sorted by class as they are, parts of one class each would score 1.
    assert 9.0 < mean < 10.0
    assert 0.0 < deviation < 0.5


def test_it_is_the_mean_divergence_and_torchmetrics_score():
    logits = 2 * torch.randn(500, 8)
    p = logits.double().softmax(1)
    divergence = (p * (p / p.mean(0)).log()).sum(1).mean()
    assert inception_score(p, splits=1)[0] == pytest.approx(math.exp(divergence), rel=1e-12)

    metric = scores.InceptionScore(feature=nn.Identity(), splits=5)
    metric.update(logits)
    torch.manual_seed(42)  # torchmetrics shuffles by the global generator, here the same numbers
    mean, deviation = metric.compute()
    assert inception_score(p, splits=5) == pytest.approx((mean.item(), deviation.item()), rel=1e-4)


def test_logits_are_not_taken_for_probabilities():
    with pytest.raises(ValueError, match="softmax"):
        inception_score(torch.randn(20, 5))
    with pytest.raises(ValueError, match="from 1 to n splits"):
        inception_score(torch.full((5, 2), 0.5))


# --- the real Inception --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = os.environ.get("GHRQ_DATA", "")
    if not folder or not os.path.isfile(os.path.join(folder, WHEEL.file)):
        pytest.skip(f"needs {WHEEL.file} in the folder GHRQ_DATA")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return inception(weights())


def test_inception_gives_features_that_torchmetrics_takes(network):
    images = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        features = network(images)
        again = network(images[2:3])
    assert features.shape == (3, 2048)
    assert features.dtype == torch.float32
    # Means of 64 outputs of rectified units.
    assert features.min() >= 0.0
    torch.testing.assert_close(again, features[2:3], rtol=1e-3, atol=1e-3)
    metric = fid.FrechetInceptionDistance(feature=network)
    metric.update(images, real=True)
    found = collect(network, images, batch=3)
    torch.testing.assert_close(found.mean * 3, metric.real_features_sum)
    assert found.count == 3


def test_grey_pictures_are_repeated_and_large_ones_not_resized(network):
    grey = torch.randint(256, (1, 1, 299, 299), dtype=torch.uint8)
    with torch.no_grad():
        features = network(grey)
        torch.testing.assert_close(network(grey.expand(-1, 3, -1, -1)), features, rtol=1e-4, atol=1e-4)
        plain = network.network(((grey.float() - 128) / 128).expand(-1, 3, -1, -1).contiguous())
    torch.testing.assert_close(features, plain, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        network(torch.zeros(1, 2, 8, 8, dtype=torch.uint8))


def test_another_program_is_never_loaded(tmp_path):
    other = tmp_path / "other.pt"
    other.write_bytes(b"print('hello')")
    with pytest.raises(UserError, match=rf"other\.pt.*SHA-256.*{SHA256}"):
        inception(other)


def test_the_last_layer_is_read_from_the_one_known_file(tmp_path, monkeypatch):
    path, layer = tmp_path / "weights.pth", torch.randn(1008, 2048)
    torch.save({"fc.weight": layer, "fc.bias": torch.randn(1008)}, path)
    with pytest.raises(UserError, match=r"weights\.pth.*SHA-256"):
        last_layer(path)
    monkeypatch.setattr(generation, "COMPLETE_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    torch.testing.assert_close(last_layer(path), layer)


def test_distances_of_features_are_symmetric():
    first, second = Features(9, *gaussian(5)), Features(9, *gaussian(5))
    assert first.distance(second) == pytest.approx(second.distance(first))
