"""Runs side by side: the same numbers as one after the other, bars and errors of all of them in one place."""

import json
import os
import signal
import time
from contextlib import contextmanager

import pytest

from ghrq.data.wheels import DownloadError
from ghrq.system.errors import StoppedError, UserError
from ghrq.system.progress import Bar, Progress
from ghrq.training.jobs import how_many, side_by_side
from ghrq.training.run import runs
from ghrq.training.train import train_all
from tiny_task import Slow


class Record(Progress):
    """Everything that was shown."""

    def __init__(self):
        self.notes, self.bars = [], {}

    def note(self, text):
        self.notes.append(text)

    @contextmanager
    def bar(self, label, total, done=0, unit=""):
        shown = self.bars[label] = {"total": total, "done": done, "unit": unit, "text": "", "open": True}

        class Shown(Bar):
            def advance(self, amount=1, text=""):
                shown["done"] += amount
                shown["text"] = text or shown["text"]

        yield Shown()
        shown["open"] = False


def busy(item, progress):
    """What the other processes do in these tests."""
    with progress.bar("working", 5, done=1, unit="pieces") as bar:
        for _ in range(4):
            bar.advance(text=f"on {item}")
    match item:
        case "mistake":
            raise UserError("mistake: remedy")
        case "download":
            raise DownloadError("no net: remedy")
        case "bug":
            return {}["a bug"]
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "endless":
            time.sleep(3600)
    return os.getpid()


def test_bars_of_all_and_few_processes():
    progress = Record()
    assert side_by_side(busy, {}, 2, progress) == {}
    results = side_by_side(busy, {name: name for name in "abcde"}, 2, progress)
    assert list(results) == list("abcde")
    assert len(set(results.values())) == 2
    assert os.getpid() not in results.values()
    expected = {"total": 5, "done": 5, "unit": "pieces", "open": False}
    assert progress.bars == {f"{name}: working": expected | {"text": f"on {name}"} for name in "abcde"}


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ("mistake", UserError, "^mistake: remedy$"),
        ("download", UserError, "^no net: remedy$"),
        ("bug", RuntimeError, r"(?s)return {}\[\"a bug\"\].*KeyError"),
        ("killed", StoppedError, r"the process of one has been killed \(SIGKILL\).*--jobs 1 goes on"),
    ],
)
def test_the_first_error_ends_all(item, error, message):
    progress = Record()
    with pytest.raises(error, match=message):
        side_by_side(busy, {"other": "endless", "one": item}, 2, progress)
    assert not any(bar["open"] for bar in progress.bars.values())


def test_the_same_numbers_as_one_after_the_other(tiny, tmp_path):
    recipes = {f"seed-{seed}": tiny(seed=seed, steps=3) for seed in range(2)} | {"bad": tiny(rate=1e38)}
    progress = Record()
    together = train_all(recipes, tmp_path / "together", progress, jobs=2)
    alone = train_all(recipes, tmp_path / "alone", Progress())
    assert list(together) == list(alone)
    assert [together[name] for name in ("seed-0", "seed-1")] == [alone[name] for name in ("seed-0", "seed-1")]
    assert list(together["bad"]) == ["error"]
    assert "2 of 3: seed-1" in progress.notes
    assert progress.bars["seed-1: autoencoder"]["done"] == 3


def wait_until(true, errors, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, errors.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train_all(Slow.cells("cpu", 2, False, ""), tmp_path_factory.mktemp("runs"), Progress())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_gone_on_with(number, command, undisturbed, tmp_path):
    """A signal to the first process alone: the others save what they have, nobody is left behind."""
    arguments = ("reproduce", "tiny_task:Slow", "--seeds", 2, "--jobs", 2, "--out", tmp_path / "runs")
    hold = tmp_path / "hold"
    hold.touch()
    process, errors = command(*arguments)
    wait_until(lambda: len(list(tmp_path.glob("runs/*/metrics.jsonl"))) == 2, errors)
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
    for seed, expected in enumerate(undisturbed.values()):
        assert json.loads((tmp_path / f"runs/ghrq-{seed}/results.json").read_text()) == expected


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
