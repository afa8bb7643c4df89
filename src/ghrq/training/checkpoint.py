"""Checkpoints: one folder each, written atomically, in safetensors and JSON.

::

    checkpoints/<stage>/step-00001200/
        model.safetensors      the model's state, as ``load_state_dict`` takes it
        training.safetensors   the tensors of everything else: the optimiser's moments, random states
        state.json             everything else: step, parameter groups, scheduler, random states
        SHA256SUMS             of the three, as ``sha256sum -c`` reads it

The two newest are kept. If the newest is damaged, the one before is used.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.training import tree
from ghrq.training.run import step_folders, step_number

KEPT = 2

_MODEL, _TRAINING, _STATE, _SUMS = "model.safetensors", "training.safetensors", "state.json", "SHA256SUMS"
_TRAIN_AGAIN = "remove that folder, and the run's results.json if there is one, to train the stage again"


class DamagedCheckpointError(UserError):
    """A checkpoint's files are not what was written."""


@dataclass
class Checkpoint:
    """Everything that training needs to resume exactly."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    random: list[dict[str, Any]]
    """The random states of each process."""
    loop: dict[str, Any]
    """The loop's own state."""

    @classmethod
    def of(
        cls,
        step: int,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        random: list[dict[str, Any]],
        loop: dict[str, Any],
    ) -> "Checkpoint":
        """The current state; tensors are shared, not copied."""
        schedule = None if scheduler is None else scheduler.state_dict()
        return cls(step, model.state_dict(), optimizer.state_dict(), schedule, random, loop)

    def restore(self, optimizer: Optimizer, scheduler: LRScheduler | None) -> None:
        """Load the state of optimiser and scheduler, after that of the model."""
        for saved, own in zip(self.optimizer["param_groups"], optimizer.param_groups, strict=True):
            for name in saved.keys() & own.keys():
                if type(saved[name]) is not type(own[name]) and not (_is_number(saved[name]) and _is_number(own[name])):
                    raise TypeError(f"the optimiser's {name} is {saved[name]!r}")
        optimizer.load_state_dict(self.optimizer)
        # load_state_dict casts state to the parameter's type, and Adam's turns a counter into a tensor: undo both.
        numbers = [number for group in self.optimizer["param_groups"] for number in group["params"]]
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in self.optimizer["state"].get(number, {}).items():
                device = getattr(optimizer.state[parameter][name], "device", None)
                optimizer.state[parameter][name] = value.to(device) if isinstance(value, Tensor) else value
        if scheduler is not None and self.scheduler is not None:
            scheduler.load_state_dict(self.scheduler)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into the folder of its stage, and keep only the two newest. Returns its own folder."""
    path = folder / f"step-{checkpoint.step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".step-*"):  # of a process that was killed
        shutil.rmtree(leftover)
    with files.draft(path) as draft:
        draft.mkdir()
        _write(draft, checkpoint)
    for old in step_folders(folder)[KEPT:]:
        _remove(old)
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's own folder; :class:`DamagedCheckpointError` if its files are not what was written."""
    try:
        sums = dict(line.split("  ")[::-1] for line in files.read_text(path / _SUMS).splitlines())
        for name in (_MODEL, _TRAINING, _STATE):
            if (path / name).exists() and not (path / name).is_file():  # a pipe would block
                raise ValueError(f"{name} is not a regular file")
            if sums.get(name) != files.sha256(path / name):
                raise ValueError(f"{name} has another checksum than {_SUMS}")
        tensors = safetensors.torch.load_file(path / _TRAINING)
        state = tree.join(files.parse_json(files.read_text(path / _STATE)), tensors)
        if type(state["step"]) is not int or state["step"] != step_number(path):
            raise ValueError(f"{_STATE} is of the step {state['step']!r}")
        return Checkpoint(model=safetensors.torch.load_file(path / _MODEL), **state)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        what = f"{Path(error.filename).name} is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {what}") from error


def newest_checkpoint(folder: Path, note: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint of a stage, ``None`` if it has none; ``note`` is called for damaged ones."""
    paths = step_folders(folder)
    for path in paths:
        try:
            return load_checkpoint(path)
        except DamagedCheckpointError as error:
            note(f"{error}; trying the one before")
    if paths:
        raise DamagedCheckpointError(f"no checkpoint in {folder} is good: {_TRAIN_AGAIN}")
    return None


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Around code that loads a checkpoint of ``folder``: one of another model or optimiser is a :class:`UserError`."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[-1].strip()  # torch: a line for each tensor
        raise UserError(
            f"the checkpoints in {folder} do not fit the task ({reason}): restore the code they were made with, or "
            f"{_TRAIN_AGAIN}"
        ) from error


def newest_step(folder: Path) -> int | None:
    """The step of the newest checkpoint of a stage, by its name."""
    paths = step_folders(folder)
    return step_number(paths[0]) if paths else None


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    tensors: dict[str, Tensor] = {}
    rest = {name: value for name, value in vars(checkpoint).items() if name != "model"}
    state = tree.split(rest, "", tensors)
    for name, given in ((_MODEL, checkpoint.model), (_TRAINING, tensors)):
        safetensors.torch.save_file(_separate(given), folder / name)
        files.sync(folder / name)
    files.write(folder / _STATE, json.dumps(state))
    sums = [f"{files.sha256(folder / name)}  {name}\n" for name in (_MODEL, _TRAINING, _STATE)]
    files.write(folder / _SUMS, "".join(sums))


def _separate(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """As safetensors needs them: on the CPU, contiguous, without shared memory."""
    seen: set[int] = set()
    separate = {}
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"the model's state '{name}' is of type {type(value).__name__}, and not a tensor")
        tensor = value.detach().cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return separate


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _remove(path: Path) -> None:
    """Remove a checkpoint, renamed first: a kill on the way must not leave an incomplete one."""
    hidden = path.with_name(f".{path.name}.old")
    os.rename(path, hidden)
    shutil.rmtree(hidden)


def non_finite(model: nn.Module) -> list[str]:
    """The names of parameters with NaN or infinite values, and of buffers with NaN (a mask may be infinite)."""
    names = [name for name, value in model.named_parameters() if not value.isfinite().all()]
    return names + [name for name, value in model.named_buffers() if value.is_floating_point() and value.isnan().any()]
