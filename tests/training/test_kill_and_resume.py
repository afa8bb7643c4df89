"""A run killed again and again comes to the numbers of one that was left alone, to the bit."""

import os
import random
import signal
import time

import pytest
import torch

from ghrq.system.signals import StopSignals, termination_raises
from ghrq.training.checkpoint import load_checkpoint
from ghrq.training.run import Run
from ghrq.training.run_list import runs

pytestmark = pytest.mark.slow

STEPS = 24


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory, tiny):
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(tiny(steps=STEPS, pause=0.01, checkpoint_every=3, log_every=7).toml())
    return path


@pytest.fixture(scope="module")
def undisturbed(command, recipe_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    process, errors = command("train", recipe_file, "--out", folder)
    process.join()
    assert process.exitcode == 0, errors.read_text()
    return Run.open(folder)


def bits(value):
    """Nested values in a form that == compares by bits."""
    match value:
        case torch.Tensor():
            return (
                str(value.dtype),
                tuple(value.shape),
                value.contiguous().flatten().view(torch.uint8).numpy().tobytes(),
            )
        case dict():
            return {key: bits(inner) for key, inner in value.items()}
        case list() | tuple():
            return [bits(inner) for inner in value]
    return value


def everything(run):
    """All that two runs of a recipe must have in common: only the clock may differ."""
    found = {"results": run.results}
    for stage, steps in (("autoencoder", STEPS), ("prior", STEPS // 2)):
        checkpoint = load_checkpoint(run.checkpoints(stage) / f"step-{steps:08d}")
        checkpoint.loop.pop("seconds")
        found[stage] = bits(vars(checkpoint))
    found["metrics"] = [{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics()]
    return found


def kill_until_finished(start):
    """Start again until a process reaches its end; returns how many did not."""
    for kills in range(100):
        process = start()
        process.join()
        if process.exitcode == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError("never came to an end")


def test_killed_at_random_moments(command, recipe_file, undisturbed, tmp_path):
    folder, chance, states = tmp_path / "killed", random.Random(0), set()

    def start():
        arguments = ["--resume", folder] if folder.exists() else [recipe_file, "--out", folder]
        process, _ = command("train", *arguments)
        before = progress(folder)
        while process.is_alive() and progress(folder) == before:  # however slow the machine: not without any progress
            time.sleep(0.001)
        process.join(chance.random() * 0.15)
        process.kill()
        process.join()
        states.update(found.state for found in runs(tmp_path) if found.folder == folder)
        return process

    assert kill_until_finished(start) >= 3
    assert "interrupted" in states
    assert everything(Run.open(folder)) == everything(undisturbed)


def progress(folder):
    return max(((path.parent.name, path.name) for path in folder.glob("checkpoints/*/step-*")), default=None)


def test_killed_in_the_midst_of_writing(command, recipe_file, undisturbed, tmp_path):
    folder, chance = tmp_path / "killed", random.Random(1)

    def start():
        arguments = ["--resume", folder] if folder.exists() else [recipe_file, "--out", folder]
        return command("train", *arguments, die_after=chance.randrange(1, 70))[0]

    assert kill_until_finished(start) >= 3
    assert everything(Run.open(folder)) == everything(undisturbed)
    assert list(folder.glob("checkpoints/*/.*")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(number, command, recipe_file, undisturbed, tmp_path):
    folder = tmp_path / "stopped"
    process, errors = command("train", recipe_file, "--out", folder)
    while not (folder / "metrics.jsonl").exists():
        assert process.is_alive(), errors.read_text()
        time.sleep(0.01)
    assert [found.state for found in runs(folder)] == ["running"]
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 128 + number
    assert f"ghrq train --resume {folder}" in errors.read_text()
    assert "Traceback" not in errors.read_text()
    (found,) = runs(folder)
    assert found.state == "interrupted"
    process, errors = command("train", "--resume", folder)
    process.join()
    assert process.exitcode == 0, errors.read_text()
    assert everything(Run.open(folder)) == everything(undisturbed)


@pytest.mark.parametrize("guard", [lambda: StopSignals(twice=False), termination_raises])
def test_nohup_keeps_a_run_going_when_its_terminal_is_closed(guard):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with guard():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_full_disk_leaves_the_last_checkpoint_intact(command, recipe_file, undisturbed, tmp_path):
    folder = tmp_path / "full"
    process, errors = command("train", recipe_file, "--out", folder)
    while not list(folder.glob("checkpoints/autoencoder/step-*")):
        assert process.is_alive(), errors.read_text()
        time.sleep(0.01)
    process.kill()
    process.join()
    process, errors = command("train", "--resume", folder, file_limit=5000)  # no file may become larger
    process.join()
    assert process.exitcode == 1
    told = errors.read_text()
    assert "could not save step" in told
    assert "File too large" in told
    assert "is intact in" in told
    assert "Traceback" not in told
    newest = max(folder.glob("checkpoints/autoencoder/step-*"))
    assert f"step {load_checkpoint(newest).step}, is intact" in told
    assert [found.state for found in runs(folder)] == ["failed"]
    process, errors = command("train", "--resume", folder)
    process.join()
    assert process.exitcode == 0, errors.read_text()
    assert everything(Run.open(folder)) == everything(undisturbed)
