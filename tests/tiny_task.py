"""A real but small task: an autoencoder around the real quantizer, then a model that predicts its codes.

It has what makes resuming hard: k-means at the start, dead codes that come back, dropout, random depths, a scheduler,
two kinds of optimisers, a second stage that builds on the first.
"""

import math
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from ghrq import ResidualQuantizer
from ghrq.optim import RiemannianAdam
from ghrq.system import processes
from ghrq.system.errors import UserError
from ghrq.training import Part, Recipe, Section, Stage, Study, Task, key_axis


class Quantizer(Section):
    kind: str = "ghrq"
    codes: int = 16
    noise: bool = True
    """Dropout, random depths, dead codes that come back."""


class Optimizer(Section):
    rate: float = 3e-3
    steps: int = 60
    batch: int = 32


class TinyRecipe(Recipe):
    quantizer: Quantizer = Quantizer()
    optimizer: Optimizer = Optimizer()
    nan_at: int | None = None
    """From this step of the first stage on, the data has NaN in it."""
    pause: float = 0.0
    """Seconds that each step takes longer, for tests that interrupt."""


class Autoencoder(nn.Module):
    def __init__(self, quantizer: Quantizer, width: int = 8) -> None:
        super().__init__()
        noise = quantizer.noise
        self.encoder = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Dropout(0.1 * noise), nn.Linear(16, 4))
        self.rq = ResidualQuantizer(
            4, quantizer.codes, 3, quantizer.kind, decay=0.8, revive_below=0.3 * noise, depth_dropout=noise
        )
        self.decoder = nn.Linear(4, width)
        self.spare = nn.Linear(2, 2)  # no loss reaches it

    def forward(self, batch):
        z_hat, _, quantization = self.rq(self.encoder(batch["x"]))
        reconstruction = F.mse_loss(self.decoder(z_hat), batch["x"])
        return {"loss": reconstruction + quantization, "reconstruction": reconstruction, "quantization": quantization}


class Prior(nn.Module):
    def __init__(self, codes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(codes, 16)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, codes, bias=False)
        self.head.weight = self.embed.weight  # tied, as language models have it

    def forward(self, batch):
        source, target = batch
        return {"loss": F.cross_entropy(self.head(self.drop(self.embed(source))), target)}


RECIPES = Path(__file__).parent / "tiny_recipes"


class Tiny(Task):
    Recipe = TinyRecipe
    study = Study([Part(f"{RECIPES}/{{budget}}.toml", [key_axis("kind", "quantizer.kind", ["ghrq"], ["euclidean"])])])

    def __init__(self, recipe, run):
        super().__init__(recipe, run)
        rng = np.random.default_rng(recipe.seed)
        centres = rng.normal(size=(12, 8)) * 2.0
        self.x = torch.tensor(centres[rng.integers(12, size=512)] + 0.3 * rng.normal(size=(512, 8))).float()

    def rows(self, step, salt):
        """The row numbers of a step's batch."""
        time.sleep(self.recipe.pause)
        rng = np.random.default_rng([self.recipe.seed, salt, step])
        return torch.from_numpy(rng.integers(len(self.x), size=self.recipe.optimizer.batch))

    def stages(self):
        recipe, settings = self.recipe, self.recipe.optimizer
        self.model = model = Autoencoder(recipe.quantizer)
        optimizer = RiemannianAdam(model.parameters(), lr=settings.rate)
        model.rq.attach(optimizer)

        def batches(step):
            while True:
                x = self.x[self.rows(step, 0)]
                step += 1
                yield {"x": x * math.nan if recipe.nan_at is not None and step >= recipe.nan_at else x}

        def begin(_):
            model.eval()
            model.rq.initialize(model.encoder(self.x))

        yield Stage(
            name="autoencoder",
            model=model,
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps),
            batches=batches,
            steps=settings.steps,
            steps_per_epoch=16,
            begin=begin,
            validate=lambda: {"error": F.mse_loss(model.decoder(model.rq(model.encoder(self.x)).z_hat), self.x)},
        )
        if processes.world_size() > 1:  # for the test that all processes agree
            save_file(model.state_dict(), self.run.folder / f"process-{processes.rank()}.safetensors")
        self.codes = model.rq.encode(model.encoder(self.x))
        self.prior = Prior(recipe.quantizer.codes)
        optimizer = torch.optim.AdamW(self.prior.parameters(), lr=1e-2)

        def pairs(step):
            while True:
                codes = self.codes[self.rows(step, 1)]
                step += 1
                yield codes[:, 0], codes[:, 1]

        yield Stage(
            name="prior",
            model=self.prior,
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [10, 20], gamma=0.5),
            batches=pairs,
            steps=settings.steps // 2,
            steps_per_epoch=16,
            clip=1.0,
        )

    def evaluate(self, progress):
        error = F.mse_loss(self.model.decoder(self.model.rq.decode(self.codes)), self.x).item()
        prediction = self.prior(self.codes[:, :2].unbind(-1))["loss"].item()
        sample = [torch.rand(()) for _ in progress.track(range(2), label="sampling")]
        return {"error": error, "prior": prediction, "sample": sample, "codes": self.codes[:5]}


class Slow(Tiny):
    """Its runs can be interrupted: while there is a file ``hold`` next to the folder of the runs, a step takes 1 s."""

    study = Study([Part(f"{RECIPES}/slow.toml", [key_axis("kind", "quantizer.kind", ["ghrq"], ["euclidean"])])])

    def rows(self, step, salt):
        if step > 4 and (self.run.folder.parent.parent / "hold").exists():
            time.sleep(1.0)
        return super().rows(step, salt)


class Mistake(Tiny):
    """Fails with a user's mistake as soon as the run beside it has begun, as do the next two in their ways."""

    def stages(self):
        while not list(self.run.folder.parent.glob("other/metrics.jsonl")):
            time.sleep(0.05)
        self.fail()

    def fail(self):
        raise UserError("mistake: remedy")


class Bug(Mistake):
    def fail(self):
        return {}["a bug"]


class Killed(Mistake):
    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)
