"""TensorBoard gets what metrics.jsonl gets; the others are named with their pip command where they are missing."""

import importlib.util

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ghrq.system.errors import UserError
from ghrq.training.run import Run
from ghrq.training.trackers import Trackers
from ghrq.training.train import train


def scalars(folder, tag):
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard(tiny, tmp_path):
    train(tiny(trackers=["tensorboard"], log_every=4), tmp_path / "run")
    lines = [line for line in Run.open(tmp_path / "run").metrics("autoencoder") if "loss" in line]
    found = scalars(tmp_path / "run" / "tensorboard" / "autoencoder", "loss")
    assert [step for step, _ in found] == [4, 8, 12]
    assert [value for _, value in found] == pytest.approx([line["loss"] for line in lines])
    assert scalars(tmp_path / "run" / "tensorboard" / "prior", "lr")


def test_what_is_trained_again_is_shown_once(tiny, tmp_path):
    run = Run.create(tmp_path / "run", tiny())
    for start, steps, value in ((0, (1, 2, 3, 4), 0.0), (2, (3, 4, 5), 1.0)):
        trackers = Trackers(("tensorboard",), run, "stage", start)
        for step in steps:
            trackers.log({"loss": value, "text": "left out"}, step)
        trackers.close()
    assert scalars(run.folder / "tensorboard" / "stage", "loss") == [(1, 0.0), (2, 0.0), (3, 1.0), (4, 1.0), (5, 1.0)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_tracker_is_told_before_anything_starts(name, tiny, tmp_path):
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(UserError, match=f"asks for {name}, which is not installed: pip install {name}"):
        train(tiny(trackers=[name]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_and_biases_without_a_network(tiny, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(tiny(trackers=["wandb"], steps=4, log_every=2), tmp_path / "run")
    assert len(list((tmp_path / "run" / "wandb").glob("offline-run-*"))) == 2


def test_mlflow_in_a_folder(tiny, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    train(tiny(trackers=["mlflow"], steps=4, log_every=2), tmp_path / "run")
    found = mlflow.search_runs(experiment_names=["ghrq"], output_format="list")
    assert sorted(run.data.tags["stage"] for run in found) == ["autoencoder", "prior"]
    assert all(run.data.metrics["loss"] > 0.0 and run.data.params["seed"] == "0" for run in found)
