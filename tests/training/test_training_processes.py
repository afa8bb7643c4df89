"""The same command under torchrun: processes agree, and they come to what one process comes to."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_task
from ghrq.training.checkpoint import load_checkpoint
from ghrq.training.run import Run
from ghrq.training.train import train

pytestmark = pytest.mark.slow


def torchrun(*arguments):
    """``ghrq`` in two processes; a group of their own, so that a signal can be sent to all."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ghrq"]
    paths = os.pathsep.join([str(Path(tiny_task.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_agree_and_come_to_what_one_comes_to(tiny, tmp_path):
    # Without random depths and dropout, which each process draws for its own rows. 33 rows do not divide evenly.
    settings = {"steps": 12, "batch": 33, "quantizer": {"noise": False}, "trackers": ["tensorboard"], "log_every": 4}
    (tmp_path / "recipe.toml").write_text(tiny(**settings).toml())
    process = torchrun("train", tmp_path / "recipe.toml", "--out", tmp_path / "two")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.count("results: ") == 1  # the first process alone speaks
    assert "Traceback" not in err

    first, second = (load_file(tmp_path / "two" / f"process-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name

    results = train(tiny(**settings), tmp_path / "one")
    one, two = Run.open(tmp_path / "one"), Run.open(tmp_path / "two")
    assert json.loads((two.folder / "environment.json").read_text())["machine"]["processes"] == 2
    alone = load_checkpoint(one.checkpoints("autoencoder") / "step-00000012").model
    del alone["rq.usage.share"]  # the quantizer counts usage as if all processes had as many rows
    for name, tensor in alone.items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    assert two.results["error"] == pytest.approx(results["error"], rel=1e-4)
    pairs = list(zip(one.metrics("autoencoder"), two.metrics("autoencoder"), strict=True))
    assert len(pairs) == 3
    for single, double in pairs:
        assert single["step"] == double["step"]
        assert double["loss"] == pytest.approx(single["loss"], rel=1e-4)


def test_two_processes_stop_together_and_one_goes_on(tiny, tmp_path):
    folder, recipe = tmp_path / "run", tiny(steps=40, pause=0.02, log_every=4)
    (tmp_path / "recipe.toml").write_text(recipe.toml())
    process = torchrun("train", tmp_path / "recipe.toml", "--out", folder)
    while not (folder / "metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)  # torchrun hands it on
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"ghrq train --resume {folder}" in err
    (saved,) = folder.glob("checkpoints/autoencoder/step-*")
    checkpoint = load_checkpoint(saved)
    assert 0 < checkpoint.step < 40
    assert len(checkpoint.random) == 2
    assert not torch.equal(checkpoint.random[0]["torch"], checkpoint.random[1]["torch"])
    assert train(recipe, folder, resume=True)["error"] > 0.0
    steps = [line["step"] for line in Run.open(folder).metrics("autoencoder") if "loss" in line]
    assert steps == list(range(4, 41, 4))
