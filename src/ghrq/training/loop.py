"""The training loop: one stage, from its newest checkpoint to its end, on one device or on many.

A run that was killed resumes to the same numbers. For that, a step depends only on what a checkpoint holds: batches are
a function of the step, and a checkpoint is written after everything else of its step, log and validation included.
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from ghrq.system import processes
from ghrq.system.errors import DivergedError, StoppedError, UserError, require
from ghrq.system.progress import Progress
from ghrq.system.settings import Precision
from ghrq.system.signals import StopSignals
from ghrq.training.checkpoint import Checkpoint, fitting, newest_checkpoint, newest_step, non_finite, save_checkpoint
from ghrq.training.randomness import random_state, seed_everything, set_random_state
from ghrq.training.recipe import Training
from ghrq.training.run import Run
from ghrq.training.schedule import bucketed, shuffled
from ghrq.training.trackers import Trackers


@dataclass
class Stage:
    """One model to train.

    With several processes, each takes its share of the rows of a batch. For that a batch is tensors, perhaps in
    dictionaries, lists and tuples, all with the rows as their first dimension, and the loss is a mean over rows.
    """

    name: str
    """Names a folder: lower-case letters, digits, ``-`` and ``_``."""
    model: nn.Module
    """``model(batch)`` gives a dictionary of tensors ``()``: ``"loss"`` is minimised, the others are logged."""
    optimizer: Optimizer
    batches: Callable[[int], Iterator[Any]]
    """``batches(step)``: the endless stream from that step on. A batch depends on the seed and its step only."""
    steps: int
    steps_per_epoch: int
    scheduler: LRScheduler | None = None
    """Steps once after each step of the optimiser."""
    begin: Callable[[Progress], None] | None = None
    """Called before the first step of a new stage, with the model on its device, such as for k-means."""
    validate: Callable[[], dict[str, float]] | None = None
    """Called at the end of each epoch, with the model in eval mode and without gradient; the values, if any, are
    logged."""
    clip: float | None = None
    """Instead of ``training.clip``."""
    precision: Precision | None = None
    """Instead of ``training.precision``."""

    @classmethod
    def of(
        cls,
        name: str,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        rows: int,
        batch: int,
        epochs: int,
        seed: int,
        take: Callable[[Tensor], Any],
        lengths: Tensor | None = None,
        decay: Callable[[int], Callable[[int], float]] | None = None,
        **others: Any,
    ) -> "Stage":
        """A stage of ``epochs`` epochs over ``rows`` rows, ``batch`` at a time, in an order that ``seed`` decides.

        ``take`` makes a batch of row numbers ``(b,)`` int64; one batch of an epoch may be smaller. With ``lengths``
        ``(rows,)`` a batch has rows of about equal length.
        ``decay(steps)(step)`` multiplies the learning rates, see :mod:`ghrq.training.schedule`. ``others`` are
        ``begin``, ``validate``, ``clip`` and ``precision``.
        """
        if rows < 1 or batch < 1 or epochs < 0:
            raise ValueError(
                f"stage '{name}' needs rows and batch of 1 or more and epochs of 0 or more, got rows={rows}, "
                f"batch={batch}, epochs={epochs}"
            )
        steps_per_epoch = -(-rows // batch)
        steps = epochs * steps_per_epoch
        return cls(
            name,
            model,
            optimizer,
            batches=shuffled(rows, batch, seed, take) if lengths is None else bucketed(lengths, batch, seed, take),
            steps=steps,
            steps_per_epoch=steps_per_epoch,
            scheduler=None if decay is None else LambdaLR(optimizer, decay(steps)),
            **others,
        )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            raise ValueError(f"a stage's name must be of lower-case letters, digits, - and _, got {self.name!r}")
        if self.steps < 0 or self.steps_per_epoch < 1:
            raise ValueError(
                f"stage '{self.name}' must have steps of 0 or above and steps_per_epoch of 1 or above, "
                f"got {self.steps} and {self.steps_per_epoch}"
            )


def fit(stage: Stage, run: Run, settings: Training, progress: Progress) -> None:
    """Train ``stage`` to its end, from its newest checkpoint if there is one. The model is left in eval mode.

    A finished stage is only loaded. Raises :class:`StoppedError` when interrupted, when the loss is not finite, or when
    a checkpoint cannot be written; the last good checkpoint stays intact.
    """
    _Loop(stage, run, settings, progress).work()


def load(stage: Stage, run: Run, progress: Progress) -> None:
    """Load the model of a finished stage, and leave it in eval mode."""
    checkpoint = newest_checkpoint(run.checkpoints(stage.name), progress.note)
    if checkpoint is None or checkpoint.step < stage.steps:
        done = 0 if checkpoint is None else checkpoint.step
        raise UserError(
            f"stage '{stage.name}' of {run.folder} is not finished, {done} of {stage.steps} steps: "
            f"first {run.train_again}"
        )
    stage.model.to(processes.accelerator().device)
    with fitting(run.checkpoints(stage.name)):
        stage.model.load_state_dict(checkpoint.model)
    stage.model.eval()


class _Losses(nn.Module):
    """The model in training: under autocast if asked for; only the loss keeps its gradient."""

    def __init__(self, model: nn.Module, device: str, precision: Precision) -> None:
        super().__init__()
        self.model, self.device, self.precision = model, device, precision

    def forward(self, batch: Any) -> dict[str, Tensor]:
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            parts = self.model(batch)
        if not isinstance(parts, dict) or "loss" not in parts:
            given = f"the keys {list(parts)}" if isinstance(parts, dict) else type(parts).__name__
            raise ValueError(f"model(batch) must give a dictionary with the key 'loss', got {given}")
        return {name: part.float() if name == "loss" else part.detach().float() for name, part in parts.items()}


class _Loop:
    def __init__(self, stage: Stage, run: Run, settings: Training, progress: Progress) -> None:
        self.stage, self.run, self.settings, self.progress = stage, run, settings, progress
        self.accelerator, self.utils = processes.accelerator(), require("accelerate.utils", "train")
        self.alone = self.accelerator.num_processes == 1
        # Elsewhere reading the loss would wait for the GPU or for the other processes.
        self.looks_at_every_step = self.alone and self.accelerator.device.type == "cpu"
        self.step = 0
        self.saved_step: int | None = None
        self.window: list[dict[str, Tensor]] = []  # not logged yet, on the device
        self.shown = ""
        self.seconds_before = 0.0

    def work(self) -> None:
        checkpoint = self._restore_model()
        if checkpoint is None or checkpoint.step < self.stage.steps:
            self._prepare(checkpoint)
            with closing(Trackers(self.settings.trackers, self.run, self.stage.name, self.step)) as self.trackers:
                self._train()
        self.stage.model.eval()

    # --- start ---------------------------------------------------------------------------------------------

    def _restore_model(self) -> Checkpoint | None:
        stage = self.stage
        checkpoint = newest_checkpoint(self.run.checkpoints(stage.name), self.progress.note)
        stage.model.to(self.accelerator.device)
        if checkpoint is not None:
            with fitting(self.run.checkpoints(stage.name)):
                stage.model.load_state_dict(checkpoint.model)
            self.step = self.saved_step = checkpoint.step
        elif stage.begin is not None:
            stage.begin(self.progress)
        self.run.cut_metrics(stage.name, self.step)
        return checkpoint

    def _prepare(self, checkpoint: Checkpoint | None) -> None:
        stage = self.stage
        precision = stage.precision or self.settings.precision
        losses = _Losses(stage.model, self.accelerator.device.type, precision)
        self.model = self.accelerator.prepare_model(losses)
        self.model.train()
        rank = self.accelerator.process_index
        restored = checkpoint is not None and rank < len(checkpoint.random)
        if checkpoint is not None:
            with fitting(self.run.checkpoints(stage.name)):
                checkpoint.restore(stage.optimizer, stage.scheduler)
                self._restore_loop(checkpoint.loop)
                if restored:
                    set_random_state(checkpoint.random[rank])
        if rank > 0 and not restored:  # another dropout on each process
            seed_everything(self.run.recipe.seed, f"{stage.name} step {self.step} process {rank}")
        self.started = self.saved_at = time.monotonic()

    def _restore_loop(self, saved: dict[str, Any]) -> None:
        device, window = self.accelerator.device, saved["window"]
        self.window = [{name: torch.tensor(float(v), device=device) for name, v in of.items()} for of in window]
        self.seconds_before = float(saved["seconds"])

    # --- steps ---------------------------------------------------------------------------------------------

    def _train(self) -> None:
        stage, settings = self.stage, self.settings
        batches = stage.batches(self.step)
        with (
            StopSignals(twice=self.alone) as signals,
            self.progress.bar(stage.name, stage.steps, self.step, unit="steps") as bar,
        ):
            while self.step < stage.steps:
                try:
                    batch = next(batches)
                except StopIteration:
                    raise ValueError(
                        f"the batches of stage '{stage.name}' end at step {self.step}: expected an endless stream"
                    ) from None
                self._advance(batch)
                if self.step % settings.log_every == 0 or self.step == stage.steps:
                    self._log()
                bar.advance(text=self.shown)
                if self.step % stage.steps_per_epoch == 0:
                    self._validate()
                self._save_or_stop(signals)
            if self.saved_step != self.step:  # a stage of no steps
                self._save()

    def _advance(self, batch: Any) -> None:
        stage = self.stage
        self.step += 1
        batch, share = self._share(batch)
        stage.optimizer.zero_grad()
        try:
            parts = self.model(batch)
        except Exception as error:
            self._check_parameters(error)  # the cause may be that the last step made them infinite
            raise
        # Weighted by its share of the rows, so that the mean over processes is the mean over rows.
        parts = parts if share == 1.0 else {name: part * share for name, part in parts.items()}
        self.window.append({name: part.detach() for name, part in parts.items()})
        if self.looks_at_every_step:
            loss = parts["loss"].item()
            self.shown = f"loss {loss:.4g}"
            if not math.isfinite(loss):
                self._log()
        parts["loss"].backward()
        clip = self.settings.clip if stage.clip is None else stage.clip
        if math.isfinite(clip):
            nn.utils.clip_grad_norm_(stage.model.parameters(), clip)
        stage.optimizer.step()
        if stage.scheduler is not None:
            stage.scheduler.step()

    def _share(self, batch: Any) -> tuple[Any, float]:
        """The rows of a batch for this process, on its device, and their number relative to an even share."""
        share = 1.0
        if not self.alone:
            rank, count = self.accelerator.process_index, self.accelerator.num_processes
            rows = self.utils.find_batch_size(batch)
            start, stop = rows * rank // count, rows * (rank + 1) // count
            if rows < count:
                raise UserError(f"a batch of {rows} rows is too small for {count} processes")

            def cut(tensor: Tensor) -> Tensor:
                if tensor.dim() > 0 and tensor.shape[0] != rows:
                    raise ValueError(
                        f"to share a batch, all of its tensors need the same number of rows, got {tensor.shape[0]} "
                        f"beside {rows}"
                    )
                return tensor[start:stop] if tensor.dim() > 0 else tensor

            batch = self.utils.recursively_apply(cut, batch)
            share = (stop - start) * count / rows
        return self.utils.send_to_device(batch, self.accelerator.device, non_blocking=True), share

    # --- logging -------------------------------------------------------------------------------------------

    def _read_window(self) -> list[dict[str, float]]:
        """The values of each step not logged yet, as numbers, in one transfer from the device."""
        if not self.window:
            return []
        flat = torch.stack([part for parts in self.window for part in parts.values()])
        values = iter(self.accelerator.reduce(flat, "mean").tolist())
        return [{name: next(values) for name in parts} for parts in self.window]

    def _log(self) -> None:
        """Log the mean of each value since the last line; stop if one of the losses was not finite."""
        window = self._read_window()
        means = {}
        for name in dict.fromkeys(name for parts in window for name in parts):
            values = [parts[name] for parts in window if name in parts]
            means[name] = sum(values) / len(values)
        if not self.looks_at_every_step:
            self.shown = f"loss {means['loss']:.4g}"
        rate = self.stage.optimizer.param_groups[0]["lr"]
        self._write(means | {"lr": float(rate), "seconds": round(self._seconds(), 3)})
        self._check_losses(window)
        self.window = []

    def _check_losses(self, window: list[dict[str, float]]) -> None:
        for step, parts in enumerate(window, start=self.step - len(window) + 1):
            if not math.isfinite(parts["loss"]):
                values = ", ".join(f"{name} {value:.6g}" for name, value in parts.items())
                self._diverge(f"the loss is not finite at step {step} ({values})")

    def _write(self, values: dict[str, Any]) -> None:
        epoch = round(self.step / self.stage.steps_per_epoch, 4)
        self.run.log({"stage": self.stage.name, "step": self.step, "epoch": epoch} | values)
        self.trackers.log(values, self.step)

    def _validate(self) -> None:
        """Validate in eval mode, and restore the random state of training."""
        if self.stage.validate is None:
            return
        state = random_state()
        self.model.eval()
        with torch.no_grad():
            values = self.stage.validate()
        self.model.train()
        set_random_state(state)
        if values:
            self._write({f"validation/{name}": float(value) for name, value in values.items()})

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    # --- stopping and saving -------------------------------------------------------------------------------

    def _save_or_stop(self, signals: StopSignals) -> None:
        """Save if due or asked to stop. Several processes agree on that at each log step."""
        done = self.step == self.stage.steps
        if not (self.alone or done or self.step % self.settings.log_every == 0):
            return
        signal, due = signals.received, time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds
        if not self.alone:
            agreed = torch.tensor([signal, int(due)], device=self.accelerator.device)
            torch.distributed.all_reduce(agreed, torch.distributed.ReduceOp.MAX)
            signal, due = int(agreed[0]), bool(agreed[1])
        enough = self.step - (self.saved_step or 0) >= self.settings.checkpoint_every
        if signal or due or enough or done:
            self._save()
        if signal:
            raise StoppedError(
                f"stopped at step {self.step} of {self.stage.steps} of stage '{self.stage.name}', and saved. "
                f"To go on: {self.run.go_on}",
                exit_code=128 + signal,
            )

    def _save(self) -> None:
        window = self._read_window()  # empty with several processes, which have just logged
        self._check_losses(window)
        self._check_parameters()
        states = self.utils.gather_object([random_state()])
        if self.accelerator.is_main_process:
            loop = {"window": window, "seconds": self._seconds()}
            stage = self.stage
            checkpoint = Checkpoint.of(self.step, stage.model, stage.optimizer, stage.scheduler, states, loop)
            try:
                self.run.sync_metrics()
                save_checkpoint(self.run.checkpoints(stage.name), checkpoint)
            except (OSError, SafetensorError) as error:
                raise StoppedError(
                    f"could not save step {self.step} of stage '{stage.name}': {error}. {self._last_good()} "
                    f"Once there is room to write: {self.run.go_on}"
                ) from error
        self.saved_step, self.saved_at = self.step, time.monotonic()

    def _check_parameters(self, cause: Exception | None = None) -> None:
        bad = non_finite(self.stage.model)
        if bad:
            more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
            self._diverge(f"{', '.join(bad[:3])}{more} not finite at step {self.step}", cause)

    def _diverge(self, what: str, cause: Exception | None = None) -> None:
        raise DivergedError(
            f"stage '{self.stage.name}' diverged: {what}. {self._last_good()} Going on from there would diverge "
            f"again: lower the learning rate, or set training.clip, and train into another folder."
        ) from cause

    def _last_good(self) -> str:
        step = newest_step(self.run.checkpoints(self.stage.name))
        if step is None:
            return "No checkpoint was written before."
        return f"The last good checkpoint, step {step}, is intact in {self.run.checkpoints(self.stage.name)}."
