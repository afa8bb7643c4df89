"""The engines that fit a model: residual k-means, or training an autoencoder around the quantizer.

All fit everything in a model except its standardisation: ``fit`` from scratch on all rows, ``begin`` on the first of
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
from ghrq.quantizer.refit import POINTS_FOR_ROUNDS
from ghrq.system.checks import largest_size
from ghrq.system.errors import DivergedError
from ghrq.system.progress import make_progress
from ghrq.tokenizer.model import EngineName, LinearPlusMLP, Model, Settings

# Largest decay of the moving midpoints, which average over about 1/(1 - decay) batches.
_SLOWEST_DECAY = 0.99

_MAX_GRADIENT_NORM = 1.0


class KMeans:
    """Codebooks are the centres of residual k-means on a sample; further batches update them as moving midpoints."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model, self._settings = model, settings

    @torch.no_grad()
    def fit(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """K-means, stage by stage; with ``refine``, then all stages together."""
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
    """Encoder, quantizer and decoder are trained to reconstruct vectors.

    Encoder and decoder begin as principal components, and k-means initializes the codebooks: so training begins about
    where the k-means engine ends. In ``fit`` the learning rates decay linearly to 0.
    """

    _decays = True

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model, self._settings = model, settings
        books = settings.learning_rate if settings.codebook_rate is None else settings.codebook_rate
        groups = [
            {"params": [*model.encoder.parameters(), *model.decoder.parameters()], "lr": settings.learning_rate},
            {"params": list(model.quantizer.parameters()), "lr": books},
        ]
        self._rates = [settings.learning_rate, books]
        self._optimizer = RiemannianAdam(groups, lr=settings.learning_rate)
        model.quantizer.attach(self._optimizer)

    def fit(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """Train for all epochs."""
        self._start(rows, random)
        self._train(rows, random, self._settings.epochs, decay=self._decays)

    def begin(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """One epoch."""
        self._start(rows, random)
        self.update(rows, random)

    def update(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """One more epoch."""
        self._train(rows, random, epochs=1)

    @torch.no_grad()
    def _start(self, rows: ArrayRows, random: np.random.Generator) -> None:
        model = self._model
        vectors = model.standard(_sample(self._settings, rows, random))
        components = torch.linalg.eigh(vectors.T @ vectors).eigenvectors.flip(1)[:, : self._settings.latent_dim]
        for part, map_ in ((model.encoder, components.T), (model.decoder, components)):
            assert isinstance(part, LinearPlusMLP)
            part.direct[: len(map_), : map_.shape[1]] = map_
        _start_by_kmeans(model, self._settings, rows, random)

    def _train(self, rows: ArrayRows, random: np.random.Generator, epochs: int, decay: bool = False) -> None:
        size = self._settings.batch_size
        steps, step = epochs * math.ceil(rows.count / size), 0
        self._model.train()
        with make_progress().patient_bar("training", steps, "steps") as bar:
            for _ in range(epochs):
                order = random.permutation(rows.count)
                for start in range(0, rows.count, size):
                    for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                        group["lr"] = rate * (1.0 - step / steps) if decay else rate
                    loss = self._step(rows.take(np.sort(order[start : start + size])))
                    step += 1
                    bar.advance(text=f"loss {loss:.4f}")
        self._model.eval()

    def _step(self, x: Tensor) -> float:
        """One step on the vectors ``x (n, features)``. Returns the loss before it."""
        model, settings = self._model, self._settings
        vectors = model.standard(x)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            z = model.encoder(vectors)
            _check_finite(z)
            z_hat, _, quantizer_loss = model.quantizer(z)
            made = model.decoder(z_hat)
        error = F.mse_loss(made.float(), vectors)
        loss = settings.reconstruction_weight * error + settings.quantizer_weight * quantizer_loss
        _check_finite(loss)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
        self._optimizer.step()
        return float(loss.detach())


class RQVAE(Autoencoder):
    """The RQ-VAE as papers describe it: networks and codes begin at random, the learning rates are constant."""

    _decays = False

    def _start(self, rows: ArrayRows, random: np.random.Generator) -> None:
        """Everything is random already."""


Engine = KMeans | Autoencoder
ENGINES: dict[EngineName, type[Engine]] = {"kmeans": KMeans, "autoencoder": Autoencoder, "rq-vae": RQVAE}


def _check_finite(x: Tensor) -> None:
    if not bool(x.detach().sum().isfinite()):
        raise DivergedError("the training of the tokenizer diverged (numbers are not finite): lower learning_rate")


@torch.no_grad()
def _start_by_kmeans(model: Model, settings: Settings, rows: ArrayRows, random: np.random.Generator) -> None:
    """Initialize codebooks and scale of the quantizer by k-means."""
    drawn = _sample(settings, rows, random)
    steps = settings.num_stages + (settings.refine + 1 if settings.refine else 0)
    with make_progress().patient_bar("k-means", steps, "steps") as bar:
        model.quantizer.initialize(
            model.latent(drawn),
            iterations=settings.iterations,
            each_stage=bar.advance,
            balance=settings.balance,
            refine=settings.refine,
        )


def _sample(settings: Settings, rows: ArrayRows, random: np.random.Generator) -> Tensor:
    """As many random rows as k-means, or the rounds after it, can use: ``(n, features)``."""
    most = (POINTS_FOR_ROUNDS if settings.refine else POINTS_PER_CODE) * largest_size(settings.codebook_size)
    few = rows.count <= most
    return rows.take(slice(None) if few else np.sort(random.choice(rows.count, most, replace=False)))
