"""Scores of sampled images against real ones: by a small classifier and by Inception."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghrq.data import inception
from ghrq.data.images import Images, ImageSplits
from ghrq.metrics import generation
from ghrq.nets import classifier
from ghrq.nets.classifier import SmallClassifier
from ghrq.system.progress import Progress

# Images given to the classifier at a time.
_BATCH = 500

# Of the choice of real images and of the classifier: the same for all runs, so that their scores are comparable.
_SEED = 42

# Parts over which a classifier's score is averaged.
_SCORE_PARTS = 10

# The classifier trained last, by its images and epochs: the runs of one table share it.
_trained: dict[tuple[Images, int], SmallClassifier] = {}


def classifier_scores(samples: Tensor, images: ImageSplits, epochs: int, progress: Progress) -> dict[str, Any]:
    """Fréchet distance and score of ``samples (n, C, H, W)`` uint8 by a classifier trained on the training images.

    The same numbers of the test images are there for comparison.
    """
    judge = _trained_classifier(images.train, epochs, progress)
    test = images.test
    features = generation.collect(judge.features, samples, batch=_BATCH)
    reference = generation.collect(judge.features, _real(images.train, len(samples)), batch=_BATCH)
    unseen = generation.collect(judge.features, test.pixels, batch=_BATCH)
    return {
        "classifier_accuracy": classifier.accuracy(judge, test.pixels, test.labels),
        "classifier_distance": features.distance(reference),
        "classifier_distance_of_test_pictures": unseen.distance(reference),
        "classifier_score": _score(generation.extract(judge, samples, batch=_BATCH)),
        "classifier_score_of_test_pictures": _score(generation.extract(judge, test.pixels, batch=_BATCH)),
    }


def inception_scores(
    samples: Tensor, train: Images, name: str, weights: Path, cache: Path, progress: Progress
) -> dict[str, Any]:
    """FID of ``samples (n, C, H, W)`` uint8 against as many training images, and the Inception Score where possible.

    ``weights``: of :func:`ghrq.data.inception.weights`. Features of the images of the data set ``name`` are kept in the
    folder ``cache``.
    """
    network = generation.inception(weights)
    real = _real(train, len(samples))
    reference = generation.collect_once(cache, f"{name}-train", inception.SHA256, network, real, progress=progress)
    outputs = generation.extract(network, samples, progress=progress)
    results = {"fid": generation.summarize(outputs).distance(reference), "fid_count": len(samples)}
    if (complete := inception.complete_weights()) is not None:
        results["inception_score"] = _score(outputs @ generation.last_layer(complete).T)
    return results


def _real(images: Images, count: int) -> Tensor:
    """``count`` training images in random order."""
    order = np.random.default_rng(_SEED).permutation(len(images))[:count]
    return images.pixels[torch.from_numpy(order)]


def _score(logits: Tensor) -> float:
    return generation.inception_score(logits.double().softmax(-1), splits=min(_SCORE_PARTS, len(logits)))[0]


def _trained_classifier(images: Images, epochs: int, progress: Progress) -> SmallClassifier:
    if (images, epochs) not in _trained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            judge = SmallClassifier(images.pixels.shape[1], len(images.label_names))
        classifier.train(judge, images.pixels, images.labels, epochs=epochs, progress=progress)
        _trained.clear()
        _trained[images, epochs] = judge
    return _trained[images, epochs]
