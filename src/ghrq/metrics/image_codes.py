"""Codes of images: the error of their reconstructions, their likelihood, and whether they recover superclasses."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.images import Images
from ghrq.metrics import taxonomy
from ghrq.models.image_prior import ImagePrior
from ghrq.models.image_tokenizer import ImageTokenizer, as_floats
from ghrq.system.progress import Progress

# Images at a time.
_BATCH = 500

# Vectors on which the quantizer is diagnosed: enough for three digits.
_DIAGNOSED = 100_000


def mean_squared_error(
    tokenizer: ImageTokenizer, pixels: Tensor, codes: Tensor, progress: Progress | None = None
) -> float:
    """The error of pixels from 0 to 1 between bytes ``(n, C, H, W)`` and the images of ``codes (n, h, w, depth)``."""
    sums = 0.0
    with (progress or Progress()).patient_bar(f"depth {codes.shape[-1]}", len(pixels), unit="images") as bar:
        for part, tuples in zip(pixels.split(_BATCH), codes.split(_BATCH), strict=True):
            size = (part.shape[2], part.shape[3])
            sums += float((tokenizer.decode(tuples, size) - as_floats(part)).double().square().sum())
            bar.advance(len(part))
    return sums / pixels.numel()


@torch.no_grad()
def diagnose(tokenizer: ImageTokenizer, pixels: Tensor) -> dict[str, Any]:
    """The quantizer's diagnosis on ``pixels (n, C, H, W)`` uint8, on as many images as it needs."""
    device = tokenizer.quantizer.codebooks.device
    positions = tokenizer.encode(pixels[:1])[0, ..., 0].numel()
    few = pixels[: max(1, _DIAGNOSED // positions)].to(device)
    z = torch.cat([tokenizer.vectors(as_floats(part)) for part in few.split(_BATCH)])
    return tokenizer.quantizer.diagnose(z).to_dict()


@torch.no_grad()
def mean_losses(prior: ImagePrior, codes: Tensor, labels: Tensor, progress: Progress) -> list[float]:
    """The prior's mean cross-entropy of each depth in nats, of ``codes (n, h, w, num_stages)`` with ``labels (n,)``."""
    device = prior.quantizer.codebooks.device
    sums = torch.zeros(codes.shape[-1], dtype=torch.float64, device=device)
    with progress.patient_bar("prior on test images", len(codes), unit="images") as bar:
        for part, classes in zip(codes.split(_BATCH), labels.split(_BATCH), strict=True):
            sums += prior.losses(part.to(device), classes.to(device)) * len(part)
            bar.advance(len(part))
    return (sums / len(codes)).tolist()


def superclass_recovery(tokenizer: ImageTokenizer, images: Images, codes: Tensor, progress: Progress) -> dict[str, Any]:
    """Superclass recovery from the points of ``codes (n, h, w, num_stages)``, in the quantizer's geometry.

    For comparison the same from the mean colours of each grid position, which need no codes and no training.
    """
    height, width = codes.shape[1:3]
    colours = F.adaptive_avg_pool2d(as_floats(images.pixels), (height, width)).flatten(2).mT
    return {
        **_superclass_scores(tokenizer.points(codes), images, tokenizer.quantizer.curvature, progress),
        "of_colours": _superclass_scores(colours, images, 0.0, progress),
        "classes": list(images.label_names),
        "superclasses": list(images.coarse_names),
        "superclass_of": images.coarse_of_labels().tolist(),
    }


def resampled(points: Tensor, images: Images, c: float, progress: Progress | None = None) -> dict[str, taxonomy.Spread]:
    """Mean and spread of the superclass scores over resampled images, from one point ``(n, d)`` for each image.

    ``c``: minus the curvature of the points' space; 0 is flat.
    """
    clusters = len(images.coarse_names)
    return taxonomy.resample(points, images.labels, images.coarse_of_labels(), c, clusters=clusters, progress=progress)


def validation_scores(tokenizer: ImageTokenizer, images: Images) -> dict[str, float]:
    """The error and, where there are superclasses, the ARI of validation images: to choose settings by.

    The ARI is the mean over resampled images: that of a single tree varies too much.
    """
    codes = tokenizer.encode(images.pixels)
    found = {"mse": mean_squared_error(tokenizer, images.pixels, codes)}
    # A class without a validation image has no prototype.
    if images.coarse is not None and len(images.labels.unique()) == len(images.label_names):
        c = tokenizer.quantizer.curvature
        found["ari"] = resampled(taxonomy.centres(tokenizer.points(codes), c), images, c)["ari"].mean
    return found


def _superclass_scores(points: Tensor, images: Images, c: float, progress: Progress) -> dict[str, Any]:
    """All scores of a tree over the classes, ready for JSON, from ``points (n, positions, d)`` of the images."""
    centres = taxonomy.centres(points, c)
    prototypes = taxonomy.prototypes(centres, images.labels, len(images.label_names), c)
    found = taxonomy.recover(prototypes, images.coarse_of_labels(), c, clusters=len(images.coarse_names))
    return {
        **{name: getattr(found, name)._asdict() for name in taxonomy.SCORES},
        "resampled": {name: spread._asdict() for name, spread in resampled(centres, images, c, progress).items()},
        "cophenetic": found.cophenetic,
        "linkage": found.linkage.tolist(),
    }
