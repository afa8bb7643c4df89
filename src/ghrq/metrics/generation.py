"""Quality of generated images: Fréchet distance and Inception Score, by Inception-v3 or a small classifier.

FID is the Fréchet distance of Inception's features. The Inception Score is :func:`inception_score` of the output of
Inception's last layer, which is a separate file (:mod:`ghrq.data.inception`). Any classifier can replace Inception,
such as :class:`ghrq.nets.classifier.SmallClassifier`.

Both depend on the number of images (few make the Fréchet distance larger): compare only values for equal counts.
"""

import hashlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from ghrq.data.inception import COMPLETE_SHA256, SHA256
from ghrq.data.wheels import check
from ghrq.system import files
from ghrq.system.errors import require
from ghrq.system.progress import Progress


class Inception(nn.Module):
    """Inception-v3 for FID: images ``(B, 1 or 3, height, width)`` uint8 -> features ``(B, 2048)`` float32.

    Images are resized to 299×299 as in torchmetrics (bilinear, antialiased when shrinking), grey ones repeated to three
    channels, and scaled by ``(x - 128) / 128``, as in the training of this network. torchmetrics accepts it as
    ``feature``.
    """

    num_features = 2048
    size = 299

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """See the class."""
        _check_images(images)
        if images.shape[1] not in (1, 3):
            raise ValueError(f"Inception takes images of 1 or 3 channels, got {images.shape[1]}")
        size = (self.size, self.size)
        # Grey ones are resized first: a third of the work.
        x = F.interpolate(images.float(), size, mode="bilinear", align_corners=False, antialias=True)
        x = ((x - 128.0) / 128.0).expand(-1, 3, -1, -1)
        # With channels last its convolutions are 1.5 times as fast.
        return self.network(x.contiguous(memory_format=torch.channels_last))


def inception(path: Path) -> Inception:
    """The network of the file that :func:`ghrq.data.inception.weights` finds. Any other file is an error."""
    # TorchScript can run code: only the one known file is opened. The network is published in no other form.
    check(path, SHA256)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # Freezing fuses its normalisations into its convolutions: a fifth faster.
        return Inception(torch.jit.freeze(torch.jit.load(path, map_location="cpu").eval())).eval()


def last_layer(path: Path) -> Tensor:
    """Of the file that :func:`ghrq.data.inception.complete_weights` finds, the last layer: ``(1008, 2048)``.

    Features ``(n, 2048)`` times its transpose are the logits of the Inception Score. As in torchmetrics and in the
    original program, the layer's bias is not used.
    """
    layer: Tensor = torch.load(check(path, COMPLETE_SHA256), map_location="cpu", weights_only=True)["fc.weight"]
    return layer


@dataclass(frozen=True, eq=False)
class Features:
    """Mean and covariance of the features of a set of images, for the Fréchet distance."""

    count: int
    """n, the number of images."""
    mean: Tensor = field(repr=False)
    """``(d,)`` float64."""
    covariance: Tensor = field(repr=False)
    """``(d, d)`` float64, ``Σ (f - mean)(f - mean)ᵀ / (n - 1)``."""

    def distance(self, other: "Features") -> float:
        """The Fréchet distance; of Inception's features, FID."""
        return frechet_distance(self.mean, self.covariance, other.mean, other.covariance)


@torch.no_grad()
def extract(network: nn.Module, images: Tensor, *, batch: int = 32, progress: Progress | None = None) -> Tensor:
    """The features ``(n, num_features)`` of ``images (n, channels, height, width)`` uint8, ``batch`` at a time."""
    _check_images(images)
    training = network.training
    network.eval()
    features = []
    with (progress or Progress()).bar("features", len(images), unit="images") as bar:
        for part in images.split(batch):
            features.append(network(part))
            bar.advance(len(part))
    network.train(training)
    return torch.cat(features)


def summarize(features: Tensor) -> Features:
    """Features ``(n, d)`` of at least two images, summarised by torchmetrics."""
    n, d = features.shape
    if n < 2:
        raise ValueError(f"a covariance needs at least 2 images, got {n}")
    metric = require("torchmetrics.image.fid", "image").FrechetInceptionDistance(feature=_Given(d))
    for part in features.split(256):
        metric.update(part, real=False)
    mean = metric.fake_features_sum / n
    covariance = (metric.fake_features_cov_sum - n * torch.outer(mean, mean)) / (n - 1)
    return Features(n, mean, covariance)


def collect(network: nn.Module, images: Tensor, *, batch: int = 32, progress: Progress | None = None) -> Features:
    """:func:`summarize` of :func:`extract`."""
    return summarize(extract(network, images, batch=batch, progress=progress))


def collect_once(
    folder: Path, name: str, weights: str, network: nn.Module, images: Tensor, *, progress: Progress | None = None
) -> Features:
    """:func:`collect`, cached in ``folder``, with a lock for parallel runs.

    The file is named by ``name``, of data set and split such as ``mnist-train``, and by a hash of the content of the
    images and of ``weights``, the SHA-256 of the network's weights such as :data:`ghrq.data.inception.SHA256`.
    """
    _check_images(images)
    key = hashlib.sha256(f"{weights} {tuple(images.shape)} ".encode())
    key.update(images.numpy().tobytes())
    path = folder / f"{name}-{len(images)}-{key.hexdigest()[:16]}.safetensors"
    if (kept := _read(path, len(images))) is not None:
        return kept
    with files.telling(path, "choose a cache folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        # Parallel runs need the same features: one computes them, the others wait.
        with filelock.FileLock(path.with_suffix(".lock")):
            if (kept := _read(path, len(images))) is not None:
                return kept
            features = collect(network, images, progress=progress)
            files.write(path, safetensors.torch.save({"mean": features.mean, "covariance": features.covariance}))
            return features


def _read(path: Path, count: int) -> Features | None:
    try:
        kept = safetensors.torch.load_file(path)
        return Features(count, kept["mean"], kept["covariance"])
    except (FileNotFoundError, SafetensorError, KeyError):  # missing or damaged: compute it again
        return None


def frechet_distance(mean1: Tensor, covariance1: Tensor, mean2: Tensor, covariance2: Tensor) -> float:
    """The squared Fréchet (2-Wasserstein) distance of two Gaussians, in float64.

    ``‖m₁ - m₂‖² + tr(C₁ + C₂ - 2 (C₁C₂)^½)`` for means ``(d,)`` and covariances ``(d, d)``. With any factors
    ``C = RRᵀ``, the trace of the root is the sum of the singular values of ``R₁ᵀR₂``: no root of a non-symmetric
    matrix, and small eigenvalues keep their precision.
    """
    mean1, covariance1, mean2, covariance2 = (t.double() for t in (mean1, covariance1, mean2, covariance2))
    d = len(mean1)
    if mean2.shape != (d,) or covariance1.shape != (d, d) or covariance2.shape != (d, d):
        shapes = ", ".join(str(tuple(t.shape)) for t in (mean1, covariance1, mean2, covariance2))
        raise ValueError(f"expected means (d,) and covariances (d, d), got {shapes}")
    for tensor in (mean1, covariance1, mean2, covariance2):
        if not tensor.isfinite().all():
            raise ValueError("some features are not finite: the Fréchet distance would not be either")
    root = torch.linalg.svdvals(_factor(covariance1).T @ _factor(covariance2)).sum()
    distance = (mean1 - mean2).square().sum() + covariance1.trace() + covariance2.trace() - 2.0 * root
    # Negative only by rounding.
    return max(0.0, float(distance))


def inception_score(probabilities: Tensor, splits: int = 10, seed: int = 42) -> tuple[float, float]:
    """The Inception Score of class probabilities ``(n, classes)``: mean and standard deviation over ``splits`` parts.

    For one part, ``exp(mean KL(p ‖ mean p)) = exp(H(mean p) - mean H(p))``: from 1, equal predictions, to the number of
    classes, all certain and all classes equally frequent. The rows are first shuffled by ``seed``, as images may be
    sorted by class. The deviation is of a sample (n - 1), and 0 for one part.
    """
    p = probabilities.detach().double()
    if p.dim() != 2 or not 1 <= splits <= len(p):
        raise ValueError(f"expected probabilities (n, classes) and from 1 to n splits, got {tuple(p.shape)}, {splits}")
    if not bool((p >= 0.0).all()) or not torch.allclose(p.sum(1), p.new_ones(()), atol=1e-4):
        raise ValueError("these are not probabilities: apply softmax(-1) to logits first")
    order = torch.randperm(len(p), generator=torch.Generator().manual_seed(seed))
    entropy = torch.special.entr
    parts = p[order].tensor_split(splits)
    scores = torch.stack([(entropy(part.mean(0)).sum() - entropy(part).sum(1).mean()).exp() for part in parts])
    return float(scores.mean()), float(scores.std()) if splits > 1 else 0.0


class _Given(nn.Identity):
    """Replaces torchmetrics' network: the features are computed already."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features


def _factor(covariance: Tensor) -> Tensor:
    """``R (d, r)`` with ``RRᵀ`` the covariance, r its numerical rank: far below d for few images."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > values[-1].clamp(min=0.0) * len(values) * torch.finfo(torch.float64).eps
    return vectors[:, kept] * values[kept].sqrt()


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise ValueError(
            f"expected images (n, channels, height, width) of uint8, got {tuple(images.shape)} of {images.dtype}: "
            "convert numbers from 0 to 1 with (255 * x).round().byte()"
        )
