"""Every test starts with the same seed; commands run in this process or, with ``command``, in their own."""

import multiprocessing
import os
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import pytest
import torch

from ghrq import cli
from ghrq_command import run_command
from tiny_task import TinyRecipe

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def ghrq(capsys, monkeypatch, tmp_path):
    """``code, out, err = ghrq("train", …)``: a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_debug", False)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run


@pytest.fixture(scope="session")
def tiny():
    """``tiny(steps=4, clip=1.0, nan_at=3)``: a recipe; keys of [training] and [optimizer] without their table."""

    def recipe(seed=0, quantizer=None, nan_at=None, pause=0.0, steps=12, batch=32, rate=3e-3, **training):
        return TinyRecipe(
            task="tiny_task:Tiny",
            name="tiny",
            seed=seed,
            quantizer=quantizer or {},
            optimizer={"steps": steps, "batch": batch, "rate": rate},
            nan_at=nan_at,
            pause=pause,
            training={"trackers": [], "log_every": 5} | training,
        )

    return recipe


@pytest.fixture(scope="session")
def forkserver():
    """Processes of this context begin with torch and ghrq imported."""
    context = multiprocessing.get_context("forkserver")
    # Optimisers import dynamo when the first is made: that too is done once.
    context.set_forkserver_preload(["tiny_task", "accelerate", "torch._dynamo", "ghrq.training.train", "ghrq.cli"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        ensure_running()
    return context


@pytest.fixture(scope="session")
def command(forkserver, tmp_path_factory):
    """``process, error_file = command("train", …)``: a started process, forked from one that has imported torch."""
    folder = tmp_path_factory.mktemp("stderr")
    started = []

    def start(*arguments, die_after=None, file_limit=None):
        error_file = folder / f"{len(started)}.txt"
        process = forkserver.Process(target=run_command, args=(arguments, error_file, die_after, file_limit))
        process.start()
        started.append(process)
        return process, error_file

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()
