"""The engines that fit a model: residual k-means, or training an autoencoder around the quantizer.

Both fit everything in a model except its standardisation: ``fit`` from scratch on all rows, ``begin`` on the first of
many batches of rows, ``update`` on one more batch, in one pass.
Randomness comes from torch's global generator and from the ``random`` argument.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ghrq.data.arrays import ArrayRows
from ghrq.geometry.kmeans import POINTS_PER_CODE
from ghrq.optim import RiemannianAdam
from ghrq.system.errors import DivergedError
from ghrq.system.progress import make_progress
from ghrq.tokenizer.model import EngineName, Model, Settings

# The weight of the quantizer's loss next to the mean squared error of standardised vectors. Measured on sentence
# embeddings: with a tenth of it the encoder drifts away from its codes, with ten times as much it stays too close.
_QUANTIZER_WEIGHT = 0.1

# Largest decay of the moving midpoints, which average over about 1/(1 - decay) batches.
_SLOWEST_DECAY = 0.99

# Fraction of the epochs in which an autoencoder trains without its quantizer.
_WARMUP_SHARE = 0.2

_MAX_GRADIENT_NORM = 1.0


class KMeans:
    """Codebooks are the centres of residual k-means on a sample; further batches update them as moving midpoints."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model, self._settings = model, settings

    @torch.no_grad()
    def fit(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """K-means, stage by stage."""
        _start_by_kmeans(self._model, self._settings, rows, random)

    begin = fit

    @torch.no_grad()
    def update(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """Small batches in the order of the rows; each moves the codes that its rows are assigned to.

        All batches have equal weight until the decay reaches its largest value; then newer ones count more.
        """
        rq, size, seen = self._model.quantizer.train(), self._settings.batch_size, int(self._model.seen)
        assert rq.midpoints is not None
        with make_progress().patient_bar("moving midpoints", rows.count, "rows") as bar:
            for _, x in rows.chunks():
                for part in self._model.latent(x).split(size):
                    rq.midpoints.decay = min(_SLOWEST_DECAY, seen / (seen + size))
                    rq(part)
                    seen += len(part)
                    bar.advance(len(part))
        rq.eval()


class Autoencoder:
    """The RQ-VAE: encoder, quantizer and decoder are trained to reconstruct vectors.

    The outputs of an untrained encoder say little about where codes should be. So it first trains without the
    quantizer, and k-means then initializes the codebooks.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model, self._settings = model, settings
        self._optimizer = RiemannianAdam(model.parameters(), lr=settings.learning_rate)
        model.quantizer.attach(self._optimizer)

    def fit(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """Train for all epochs; with the quantizer, the learning rate decays linearly to 0."""
        warmup = round(_WARMUP_SHARE * self._settings.epochs)
        self._train(rows, random, warmup, quantize=False)
        _start_by_kmeans(self._model, self._settings, rows, random)
        self._train(rows, random, self._settings.epochs - warmup, decay=True)

    def begin(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """One epoch without the quantizer and one with it."""
        self._train(rows, random, epochs=1, quantize=False)
        _start_by_kmeans(self._model, self._settings, rows, random)
        self.update(rows, random)

    def update(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """One more epoch."""
        self._train(rows, random, epochs=1)

    def _train(
        self, rows: ArrayRows, random: np.random.Generator, epochs: int, quantize: bool = True, decay: bool = False
    ) -> None:
        size, rate = self._settings.batch_size, self._settings.learning_rate
        steps, step = epochs * math.ceil(rows.count / size), 0
        self._model.train()
        with make_progress().patient_bar("training" if quantize else "training without codes", steps, "steps") as bar:
            for _ in range(epochs):
                order = random.permutation(rows.count)
                for start in range(0, rows.count, size):
                    for group in self._optimizer.param_groups:
                        group["lr"] = rate * (1.0 - step / steps) if decay else rate
                    loss = self._step(rows.take(np.sort(order[start : start + size])), quantize)
                    step += 1
                    bar.advance(text=f"loss {loss:.4f}")
        self._model.eval()

    def _step(self, x: Tensor, quantize: bool) -> float:
        """One step on the vectors ``x (n, features)``. Returns the loss before it."""
        model = self._model
        vectors = model.standard(x)
        z, weighted = model.encoder(vectors), 0.0
        _check_finite(z)
        if quantize:
            z, _, quantizer_loss = model.quantizer(z)
            weighted = _QUANTIZER_WEIGHT * quantizer_loss
        loss = F.mse_loss(model.decoder(z), vectors) + weighted
        _check_finite(loss)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
        self._optimizer.step()
        return float(loss.detach())


Engine = KMeans | Autoencoder
ENGINES: dict[EngineName, type[Engine]] = {"kmeans": KMeans, "autoencoder": Autoencoder}


def _check_finite(x: Tensor) -> None:
    if not bool(x.detach().sum().isfinite()):
        raise DivergedError("the training of the tokenizer diverged (numbers are not finite): lower learning_rate")


@torch.no_grad()
def _start_by_kmeans(model: Model, settings: Settings, rows: ArrayRows, random: np.random.Generator) -> None:
    """Initialize codebooks and scale of the quantizer by k-means, on as many random rows as it can use."""
    most = POINTS_PER_CODE * settings.codebook_size
    few = rows.count <= most
    drawn = rows.take(slice(None) if few else np.sort(random.choice(rows.count, most, replace=False)))
    with make_progress().patient_bar("k-means", settings.num_stages, "stages") as bar:
        model.quantizer.initialize(model.latent(drawn), iterations=settings.iterations, each_stage=bar.advance)
