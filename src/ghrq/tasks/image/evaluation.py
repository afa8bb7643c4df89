"""What a trained tokenizer and its prior are worth, in numbers."""

import math
from typing import Any

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data import inception
from ghrq.data.images import Images
from ghrq.data.wheels import cache
from ghrq.metrics import generation, taxonomy
from ghrq.nets import classifier
from ghrq.nets.classifier import SmallClassifier
from ghrq.report.sheets import sheet
from ghrq.system import files
from ghrq.system.progress import Progress
from ghrq.tasks.image.models import GridPrior, ImageTokenizer, as_floats
from ghrq.tasks.image.pictures import Pictures, load
from ghrq.tasks.image.recipe import Data, ImageRecipe, Sampling
from ghrq.training.run import Run

# Pictures at a time.
_BATCH = 500

# Which real pictures samples are held against, and how the classifier learnt, is the same for all runs.
_SEED = 42

# Vectors that the quantizer is diagnosed on: enough for three digits.
_DIAGNOSED = 100_000

# Parts that a classifier's score is the mean of.
_SCORE_PARTS = 10

# On the sheets.
_SHOWN_PICTURES, _SHOWN_SAMPLES = 12, 144

RECONSTRUCTIONS, SAMPLE_SHEET = "reconstructions.png", "samples.png"
"""In the folder of a run: test pictures and what one code, two codes, … make of them; the first pictures drawn."""

SAMPLES = "samples.safetensors"
"""In the folder of a run: the codes of the pictures that were drawn, ``(count, h, w, num_stages)``."""

_trained: dict[tuple[Data, int], SmallClassifier] = {}


def evaluate(
    recipe: ImageRecipe,
    run: Run,
    pictures: Pictures,
    tokenizer: ImageTokenizer,
    prior: GridPrior | None,
    progress: Progress,
) -> dict[str, Any]:
    """Everything that the tables and the report show; errors are of the test pictures."""
    test = pictures.test
    codes = encode(tokenizer, test.pixels, progress)
    errors = [
        mean_squared_error(tokenizer, test.pixels, codes[..., :depth], progress)
        for depth in range(1, codes.shape[-1] + 1)
    ]
    results: dict[str, Any] = {"mse": errors[-1]}
    if test.coarse is not None:
        recovered = _taxonomy(tokenizer, test, codes, progress)
        results["ari"] = recovered["ari"]["value"]
        results["taxonomy"] = recovered
    results["mse_by_depth"] = errors
    _write_reconstructions(run, tokenizer, test.pixels, codes)
    results["quantizer"] = _diagnose(tokenizer, test.pixels)
    if prior is not None:
        flat = codes.flatten(1, 2)
        results["prior"] = {"test_loss_by_depth": _prior_losses(prior, flat, test.labels, progress)}
        drawn = _draw(recipe.sampling, prior, tokenizer, codes.shape[1:3], len(test.label_names), progress)
        if drawn is not None:
            files.write(run.folder / SAMPLES, safetensors.torch.save({"codes": drawn.to(torch.int32)}))
            images = as_bytes(decode(tokenizer, drawn, test.pixels.shape[2:]))
            square = math.isqrt(min(len(images), _SHOWN_SAMPLES))
            shown = images[: square * square].unflatten(0, (square, square))
            files.write(run.folder / SAMPLE_SHEET, sheet(shown))
            results["samples"] = _judge(recipe, pictures, images, progress)
            if "fid" in results["samples"]:
                results["fid"] = results["samples"]["fid"]  # on the top level, where `ghrq runs` looks
    return results


def _write_reconstructions(run: Run, tokenizer: ImageTokenizer, pixels: Tensor, codes: Tensor) -> None:
    few, tuples = pixels[:_SHOWN_PICTURES], codes[:_SHOWN_PICTURES]
    depths = range(1, codes.shape[-1] + 1)
    back = [as_bytes(decode(tokenizer, tuples[..., :depth], pixels.shape[2:])) for depth in depths]
    files.write(run.folder / RECONSTRUCTIONS, sheet(torch.stack([few, *back])))


def encode(tokenizer: ImageTokenizer, pixels: Tensor, progress: Progress | None = None) -> Tensor:
    """The codes ``(n, h, w, num_stages)`` of bytes ``(n, C, H, W)``."""
    device = tokenizer.quantizer.codebooks.device
    codes = []
    with (progress or Progress()).patient_bar("coding", len(pixels), unit="pictures") as bar:
        for part in pixels.split(_BATCH):
            codes.append(tokenizer.encode(part.to(device)).cpu())
            bar.advance(len(part))
    return torch.cat(codes)


def decode(tokenizer: ImageTokenizer, codes: Tensor, size: Any) -> Tensor:
    """The pictures ``(n, C, H, W)`` that codes stand for, as numbers from 0 to 1; ``size`` is ``(H, W)``."""
    device = tokenizer.quantizer.codebooks.device
    return torch.cat([tokenizer.decode(part.to(device), tuple(size)).cpu() for part in codes.split(_BATCH)])


def as_bytes(pictures: Tensor) -> Tensor:
    """Numbers from 0 to 1 as bytes."""
    return (255.0 * pictures).round().byte()


def mean_squared_error(
    tokenizer: ImageTokenizer, pixels: Tensor, codes: Tensor, progress: Progress | None = None
) -> float:
    """Of pixels from 0 to 1, between bytes ``(n, C, H, W)`` and what their codes ``(n, h, w, depth)`` stand for."""
    sums = 0.0
    with (progress or Progress()).patient_bar(f"depth {codes.shape[-1]}", len(pixels), unit="pictures") as bar:
        for part, tuples in zip(pixels.split(_BATCH), codes.split(_BATCH), strict=True):
            sums += float((decode(tokenizer, tuples, part.shape[2:]) - as_floats(part)).double().square().sum())
            bar.advance(len(part))
    return sums / pixels.numel()


@torch.no_grad()
def _diagnose(tokenizer: ImageTokenizer, pixels: Tensor) -> dict[str, Any]:
    device = tokenizer.quantizer.codebooks.device
    per_picture = tokenizer.vectors(as_floats(pixels[:1]).to(device)).flatten(0, 2).shape[0]
    few = pixels[: max(1, _DIAGNOSED // per_picture)]
    z = torch.cat([tokenizer.vectors(as_floats(part.to(device))) for part in few.split(_BATCH)])
    return tokenizer.quantizer.diagnose(z).to_dict()


def validate(tokenizer: ImageTokenizer, images: Images) -> dict[str, float]:
    """What settings are to be chosen by: the error and, where there are superclasses, ARI of held-out pictures.

    The ARI is the mean over pictures drawn anew: that of one tree is too fickle to choose by.
    """
    codes = encode(tokenizer, images.pixels)
    found = {"mse": mean_squared_error(tokenizer, images.pixels, codes)}
    # A class that no picture is held out of has no prototype.
    if images.coarse is not None and len(images.labels.unique()) == len(images.label_names):
        c = tokenizer.quantizer.curvature
        found["ari"] = resampled(taxonomy.centres(_points(tokenizer, codes), c), images, c)["ari"].mean
    return found


def _points(tokenizer: ImageTokenizer, codes: Tensor) -> Tensor:
    """What codes ``(n, h, w, num_stages)`` stand for on the ball: ``(n, h·w, d)``."""
    rq = tokenizer.quantizer
    return torch.cat([rq.points(rq.decode(part.flatten(1, 2))).cpu() for part in codes.split(_BATCH)])


def _taxonomy(tokenizer: ImageTokenizer, images: Images, codes: Tensor, progress: Progress) -> dict[str, Any]:
    """Superclass recovery from what the codes stand for, under the quantizer's own convention and geometry.

    Beside it the same from the mean colour of the pixels of each position: what needs no codes and no learning.
    """
    height, width = codes.shape[1:3]
    colours = F.adaptive_avg_pool2d(as_floats(images.pixels), (height, width)).flatten(2).mT
    return {
        **_recover(_points(tokenizer, codes), images, tokenizer.quantizer.curvature, progress),
        "of_colours": _recover(colours, images, 0.0, progress),
        "classes": list(images.label_names),
        "superclasses": list(images.coarse_names),
        "superclass_of": images.coarse_of_labels().tolist(),
    }


def _recover(points: Tensor, images: Images, c: float, progress: Progress) -> dict[str, Any]:
    """From points ``(n, positions, d)`` of the pictures."""
    of_pictures = taxonomy.centres(points, c)
    prototypes = taxonomy.prototypes(of_pictures, images.labels, len(images.label_names), c)
    found = taxonomy.recover(prototypes, images.coarse_of_labels(), c, clusters=len(images.coarse_names))
    again = resampled(of_pictures, images, c, progress)
    return {
        **{name: getattr(found, name)._asdict() for name in taxonomy.SCORES},
        "resampled": {name: spread._asdict() for name, spread in again.items()},
        "cophenetic": found.cophenetic,
        "linkage": found.linkage.tolist(),
    }


def resampled(
    of_pictures: Tensor, images: Images, c: float, progress: Progress | None = None
) -> dict[str, taxonomy.Spread]:
    """Scores of the superclasses when pictures are drawn anew, from one point ``(n, d)`` for each picture."""
    clusters = len(images.coarse_names)
    return taxonomy.resample(
        of_pictures, images.labels, images.coarse_of_labels(), c, clusters=clusters, progress=progress
    )


@torch.no_grad()
def _prior_losses(prior: GridPrior, codes: Tensor, labels: Tensor, progress: Progress) -> list[float]:
    """Cross-entropy in nats on pictures it has not seen, one number a depth."""
    device = next(prior.parameters()).device
    sums = torch.zeros(codes.shape[-1], dtype=torch.float64, device=device)
    with progress.patient_bar("prior on test pictures", len(codes), unit="pictures") as bar:
        for part, classes in zip(codes.split(_BATCH), labels.split(_BATCH), strict=True):
            sums += prior.losses(part.to(device), classes.to(device)) * len(part)
            bar.advance(len(part))
    return (sums / len(codes)).tolist()


def _draw(
    settings: Sampling, prior: GridPrior, tokenizer: ImageTokenizer, grid: Any, classes: int, progress: Progress
) -> Tensor | None:
    """Codes ``(count, h, w, num_stages)``, of all classes alike if the prior knows classes."""
    if settings.count == 0:
        return None
    model = prior.prior
    device = next(model.parameters()).device
    labels = torch.arange(settings.count, device=device) % classes if model.classes else None
    with progress.bar("drawing", settings.count, unit="pictures") as bar:
        codes = model.sample(
            settings.count,
            tokenizer.quantizer,
            labels=labels,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            progress=bar.advance,
        )
    return codes.cpu().unflatten(1, tuple(grid))


def _judge(recipe: ImageRecipe, pictures: Pictures, drawn: Tensor, progress: Progress) -> dict[str, Any]:
    """Fréchet distances of drawn pictures to real ones, by a small classifier and by Inception."""
    settings = recipe.evaluation
    results: dict[str, Any] = {"count": len(drawn)}
    # Pictures of a single class give a classifier nothing to learn.
    if settings.classifier_epochs and len(pictures.train.label_names) > 1:
        judge = _classifier(recipe.data, settings.classifier_epochs, progress)
        features = generation.collect(judge.features, drawn, batch=_BATCH)
        reference = generation.collect(judge.features, _real(pictures.train, len(drawn)), batch=_BATCH)
        unseen = generation.collect(judge.features, pictures.test.pixels, batch=_BATCH)
        results["classifier_accuracy"] = classifier.accuracy(judge, pictures.test.pixels, pictures.test.labels)
        results["classifier_distance"] = features.distance(reference)
        results["classifier_distance_of_test_pictures"] = unseen.distance(reference)
        results["classifier_score"] = _score(generation.extract(judge, drawn, batch=_BATCH))
        results["classifier_score_of_test_pictures"] = _score(
            generation.extract(judge, pictures.test.pixels, batch=_BATCH)
        )
    if settings.inception:
        count = min(settings.inception_count, len(drawn))
        network = generation.inception(inception.weights(settings.inception))
        kept = cache() / "features"
        seen = _real(pictures.train, count)
        name = f"{recipe.data.name}-train"
        reference = generation.collect_once(kept, name, inception.SHA256, network, seen, progress=progress)
        outputs = generation.extract(network, drawn[:count], progress=progress)
        results["fid"] = generation.summarize(outputs).distance(reference)
        results["fid_count"] = count
        if (complete := inception.complete_weights()) is not None:
            results["inception_score"] = _score(outputs @ generation.last_layer(complete).T)
    return results


def _real(images: Images, count: int) -> Tensor:
    """As many training pictures, drawn at random."""
    order = np.random.default_rng(_SEED).permutation(len(images))[:count]
    return images.pixels[torch.from_numpy(order)]


def _score(logits: Tensor) -> float:
    return generation.inception_score(logits.double().softmax(-1), splits=min(_SCORE_PARTS, len(logits)))[0]


def _classifier(data: Data, epochs: int, progress: Progress) -> SmallClassifier:
    """The same for every run on the same pictures, whatever its seed and kind: cells of one table share it."""
    if (data, epochs) not in _trained:
        images = load(data).train
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            judge = SmallClassifier(images.pixels.shape[1], len(images.label_names))
        classifier.train(judge, images.pixels, images.labels, epochs=epochs, progress=progress)
        _trained.clear()
        _trained[data, epochs] = judge
    return _trained[data, epochs]
