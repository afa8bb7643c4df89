"""The numbers of a trained image tokenizer and its prior, and the sheets of images that a run leaves behind."""

import math
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ghrq.data import inception
from ghrq.data.images import Images, ImageSplits
from ghrq.data.wheels import cache
from ghrq.metrics.image_codes import diagnose, mean_losses, mean_squared_error, superclass_recovery
from ghrq.metrics.image_samples import classifier_scores, inception_scores
from ghrq.models.image_prior import ImagePrior
from ghrq.models.image_tokenizer import ImageTokenizer, as_bytes
from ghrq.report.sheets import sheet
from ghrq.system import files
from ghrq.system.progress import Progress
from ghrq.tasks.image.recipe import ImageRecipe
from ghrq.training.run import Run

_SHOWN_IMAGES, _SHOWN_SAMPLES = 12, 144  # on the sheets

RECONSTRUCTIONS, SAMPLE_SHEET = "reconstructions.png", "samples.png"
"""In the folder of a run: test images and their reconstructions at depth 1, 2, …; the first samples."""

SAMPLES = "samples.safetensors"
"""In the folder of a run: the codes of the sampled images, ``(count, h, w, num_stages)``."""


def evaluate_tokenizer(
    tokenizer: ImageTokenizer, test: Images, codes: Tensor, run: Run, progress: Progress
) -> dict[str, Any]:
    """Errors of the test images, superclass recovery and the quantizer's diagnosis; writes the reconstructions.

    ``codes (n, h, w, num_stages)`` are those of the test images.
    """
    depths = range(1, codes.shape[-1] + 1)
    errors = [mean_squared_error(tokenizer, test.pixels, codes[..., :depth], progress) for depth in depths]
    results: dict[str, Any] = {"mse": errors[-1]}
    if test.coarse is not None:
        recovered = superclass_recovery(tokenizer, test, codes, progress)
        results["ari"] = recovered["ari"]["value"]
        results["taxonomy"] = recovered
    results["mse_by_depth"] = errors
    few, size = test.pixels[:_SHOWN_IMAGES], test.size
    shown = [as_bytes(tokenizer.decode(codes[:_SHOWN_IMAGES, ..., :depth], size)) for depth in depths]
    files.write(run.folder / RECONSTRUCTIONS, sheet(torch.stack([few, *shown])))
    results["quantizer"] = diagnose(tokenizer, test.pixels)
    return results


def evaluate_prior(
    prior: ImagePrior,
    tokenizer: ImageTokenizer,
    images: ImageSplits,
    codes: Tensor,
    recipe: ImageRecipe,
    run: Run,
    progress: Progress,
) -> dict[str, Any]:
    """Losses on the codes of the test images, and scores of samples; writes the samples."""
    results: dict[str, Any] = {"prior": {"test_loss_by_depth": mean_losses(prior, codes, images.test.labels, progress)}}
    settings, judged = recipe.sampling, recipe.evaluation
    if settings.count == 0:
        return results
    options = settings.model_dump(include={"temperature", "top_k", "top_p"})
    with progress.bar("sampling", settings.count, unit="images") as bar:
        sampled = prior.sample(settings.count, progress=bar.advance, **options).cpu()
    files.write(run.folder / SAMPLES, safetensors.torch.save({"codes": sampled.to(torch.int32)}))
    samples = as_bytes(tokenizer.decode(sampled, images.test.size))
    square = math.isqrt(min(len(samples), _SHOWN_SAMPLES))
    files.write(run.folder / SAMPLE_SHEET, sheet(samples[: square * square].unflatten(0, (square, square))))
    scores: dict[str, Any] = {"count": len(samples)}
    if judged.classifier_epochs and len(images.train.label_names) > 1:  # one class cannot be told from others
        scores |= classifier_scores(samples, images, judged.classifier_epochs, progress)
    if judged.inception:
        few, weights = samples[: judged.inception_count], inception.weights(judged.inception)
        scores |= inception_scores(few, images.train, recipe.data.name, weights, cache() / "features", progress)
    fid = {"fid": scores["fid"]} if "fid" in scores else {}  # on the top level for `ghrq runs`
    return {**results, "samples": scores, **fid}
