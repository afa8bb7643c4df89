"""Several runs at a time: the same numbers as one after the other, and progress and errors of all in one place."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from ghrq.system.errors import StoppedError, UserError
from ghrq.system.progress import Progress
from ghrq.system.relay import Relay
from ghrq.training.jobs import _stop, how_many
from ghrq.training.run_list import runs
from ghrq.training.study import PlannedRun
from ghrq.training.train import run_study
from recorded import Record
from tiny_task import Slow

pytestmark = pytest.mark.slow


def planned(**recipes):
    return [PlannedRun(name, {"recipe": "tiny", "seed": recipe.seed}, recipe) for name, recipe in recipes.items()]


def test_the_same_numbers_as_one_after_the_other(tiny, tmp_path):
    study = planned(zero=tiny(seed=0, steps=3), bad=tiny(rate=1e38), one=tiny(seed=1, steps=3))
    progress = Record()
    together = run_study(study, tmp_path / "together", progress, jobs=2)
    alone = run_study(study, tmp_path / "alone", Progress())
    assert [run.axes for run in together] == [run.axes for run in alone]
    assert [run.results for run in together] == [run.results for run in alone]
    assert together[0].results["error"] != together[2].results["error"]
    assert together[1].error.replace("together", "alone") == alone[1].error
    assert "stage 'autoencoder' diverged" in together[1].error
    assert [run.error for run in together[::2]] == ["", ""]
    assert "3 of 3: one" in progress.notes
    assert progress.bars["one: autoencoder"][:3] == (3, 3, "steps")
    again = Record()
    assert run_study(study[::2], tmp_path / "together", again, jobs=2) == together[::2]
    assert sum("is finished" in note for note in again.notes) == 2


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ("Mistake", UserError, "^one: mistake: remedy$"),
        ("Bug", StoppedError, r"(?s)^one: Traceback .*return {}\[\"a bug\"\].*KeyError"),
        ("Killed", StoppedError, r"the process of one has been killed \(SIGKILL\).*--jobs 1 goes on"),
    ],
)
def test_the_first_error_ends_the_others_which_save(task, error, message, tiny, tmp_path):
    progress = Record()
    hold = tmp_path / "hold"
    hold.touch()
    study = planned(
        other=tiny(steps=40).model_copy(update={"task": "tiny_task:Slow"}),
        one=tiny().model_copy(update={"task": f"tiny_task:{task}"}),
    )
    with pytest.raises(error, match=message) as told:
        run_study(study, tmp_path / "runs", progress, jobs=2)
    assert told.value.exit_code == error.exit_code
    assert all(last for *_, last in progress.bars.values())
    (other,) = runs(tmp_path / "runs" / "other")
    assert other.state == "interrupted"
    assert 0 < other.step < 40


def wait_until(true, errors, process=None, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, errors.read_text()
        assert process is None or process.is_alive(), errors.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run_study(Slow.study.plan("cpu", seeds=2), tmp_path_factory.mktemp("runs"), Progress())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_gone_on_with(number, command, undisturbed, tmp_path):
    """A signal to the parent alone: its children save a checkpoint and end."""
    arguments = ("reproduce", "tiny_task:Slow", "--seeds", 2, "--jobs", 2, "--out", tmp_path / "runs")
    hold = tmp_path / "hold"
    hold.touch()
    process, errors = command(*arguments)
    wait_until(lambda: len(list(tmp_path.glob("runs/*/metrics.jsonl"))) == 2, errors, process)
    os.kill(process.pid, number)
    process.join(60)
    if number == signal.SIGKILL:
        wait_until(lambda: all(run.state == "interrupted" and run.step for run in runs(tmp_path / "runs")), errors)
    else:
        assert process.exitcode == 128 + number
        assert errors.read_text().splitlines()[-1] == "error: stopped. To go on: the same reproduce command again"
    found = runs(tmp_path / "runs")
    assert [run.state for run in found] == ["interrupted"] * 2
    assert all(0 < run.step < 40 for run in found)  # saved on the way out, not at a regular checkpoint
    hold.unlink()
    process, errors = command(*arguments)
    process.join(120)
    assert process.exitcode == 0, errors.read_text()
    for expected in undisturbed:
        found = json.loads((tmp_path / "runs" / expected.folder.name / "results.json").read_text())
        assert found == expected.results


def test_a_second_interrupt_does_not_wait_for_the_children():
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    process.stdout.readline()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _stop([SimpleNamespace(process=process, relay=Relay("one", Progress()))])
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.wait(10) == -signal.SIGKILL
    process.stdout.close()


def test_how_many_at_a_time(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert [how_many(None, count) for count in (1, 3, 9)] == [1, 3, 4]
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    assert [how_many(None, count) for count in (1, 2, 3, 4, 9)] == [1, 2, 3, 2, 2]
    assert how_many(6, 9) == 6
    assert how_many(6, 3) == 3
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert how_many(None, 9) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert how_many(None, 9) == 1
    with pytest.raises(UserError, match="--jobs 3: several processes work on each run already"):
        how_many(3, 9)
