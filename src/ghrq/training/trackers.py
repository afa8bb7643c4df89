"""Metrics besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow, through Accelerate's trackers.

Each stage counts its steps from 0, so each has its own record: a folder for TensorBoard, a run in a group for W&B, a
tagged run for MLflow.
"""

import hashlib
from importlib.util import find_spec
from typing import Any

from ghrq.system import processes
from ghrq.system.errors import UserError, require
from ghrq.training.run import Run


class Trackers:
    """The trackers of one stage of a run, from ``step`` on; does nothing on processes other than the first."""

    def __init__(self, names: tuple[str, ...], run: Run, stage: str, step: int) -> None:
        check_installed(names)
        self._trackers = [_start(name, run, stage, step) for name in names] if processes.is_main() else []

    def log(self, values: dict[str, Any], step: int) -> None:
        """Send the numbers among ``values``."""
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.log(numbers, step=step)

    def close(self) -> None:
        """Flush."""
        for tracker in self._trackers:
            tracker.finish()


def check_installed(names: tuple[str, ...]) -> None:
    """Raise an error if one of the trackers is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise UserError(
                f"training.trackers asks for {name}, which is not installed: pip install {name}, or leave it out"
            )


def _start(name: str, run: Run, stage: str, step: int) -> Any:
    tracking = require("accelerate.tracking", "train")
    label = f"{run.recipe.name}/{stage}"
    if name == "tensorboard":
        # Removes what an interrupted run logged after its last checkpoint.
        tracker = tracking.TensorBoardTracker(stage, run.folder / "tensorboard", purge_step=step + 1)
    elif name == "wandb":
        # A resumed stage continues its W&B run.
        identity = hashlib.sha256(f"{run.folder.resolve()} {label}".encode()).hexdigest()[:16]
        settings = run.recipe.model_dump(mode="json")
        tracker = tracking.WandBTracker(
            "ghrq", name=label, group=run.recipe.name, id=identity, resume="allow", dir=run.folder, config=settings
        )
    else:
        tracker = tracking.MLflowTracker("ghrq", run_name=label, tags={"stage": stage, "run": run.folder.name})
    tracker.start()
    if name == "mlflow":
        tracker.store_init_configuration(run.recipe.flat())
    return tracker
