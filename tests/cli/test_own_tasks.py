"""The code of a task that is not part of ghrq runs where the user asks for it, not because a file of a run names it."""

import shutil
import sys
from pathlib import Path

import pytest

from ghrq.report.results import Group
from ghrq.system.errors import UserError
from ghrq.training.run import Run
from ghrq.training.study import Outcome
from ghrq.training.train import train

EVIL = """
from pathlib import Path

Path("ran").touch()
from tiny_task import Tiny


class Mine(Tiny):
    pass
"""


@pytest.fixture
def downloaded(tiny, tmp_path, monkeypatch):
    """A finished run whose recipe names ``surprise:Mine``, and the module in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("surprise.py").write_text(EVIL)
    train(tiny(steps=2), "downloaded")
    for name in ("recipe.toml", "environment.json"):  # as if it had been trained under that name
        file = Path("downloaded", name)
        file.write_text(file.read_text().replace("tiny_task:Tiny", "surprise:Mine"))
    yield Path("downloaded")
    sys.modules.pop("surprise", None)


def ran() -> bool:
    return Path("ran").exists()


def test_no_command_that_only_reads_runs_it(downloaded, ghrq) -> None:
    code, out, _ = ghrq("runs", ".")
    assert code == 0
    assert "surprise:Mine" in out
    assert ghrq("recipes")[0] == 0
    code, _, err = ghrq("image", "encode", downloaded, "surprise.py", "--out", "x.npz")
    assert (code, "is a run of the task 'surprise:Mine'" in err) == (2, True)
    assert ghrq("image", "decode", downloaded, "surprise.py", "--out", "x.png")[0] == 2
    assert Group({}, [Outcome({}, downloaded)]).recipe() is None
    assert not ran()


def test_eval_runs_it_only_by_name(downloaded, ghrq) -> None:
    before = (downloaded / "results.json").read_bytes()
    code, _, err = ghrq("eval", downloaded)
    assert (code, err.count("\n")) == (2, 1)
    assert "recipe.toml: task 'surprise:Mine': it is not part of ghrq" in err
    assert "'ghrq eval RUN --task surprise:Mine'" in err
    code, _, err = ghrq("eval", downloaded, "--task", "tiny_task:Tiny")
    assert (code, err) == (2, "error: --task tiny_task:Tiny: downloaded is a run of the task 'surprise:Mine'\n")
    assert not ran()
    assert ghrq("eval", downloaded, "--task", "surprise:Mine")[0] == 0
    assert ran()
    assert (downloaded / "results.json").read_bytes() == before


def test_a_base_recipe_does_not_hide_it(downloaded, ghrq) -> None:
    """recipe.toml of a run has no ``extends``; one that somebody wrote may."""
    recipe = downloaded / "recipe.toml"
    shutil.copy(recipe, downloaded / "base.toml")
    for task in ("", 'task = "image"\n'):
        recipe.write_text('extends = "base.toml"\n' + task)
        for command in (("eval", downloaded), ("runs", "."), ("reproduce", "tiny_task:Tiny", "--out", ".")):
            ghrq(*command)
    assert not ran()


def test_reproduce_of_another_task_does_not_run_it(downloaded, ghrq) -> None:
    downloaded.rename("ghrq-s0")
    code, _, err = ghrq("reproduce", "tiny_task:Tiny", "--budget", "demo", "--out", ".", "--jobs", "1")
    assert (code, "task 'surprise:Mine': it is not part of ghrq" in err) == (2, True)
    assert not ran()


def test_train_runs_it_as_asked(downloaded, ghrq) -> None:
    (downloaded / "results.json").unlink()
    assert ghrq("train", "--resume", downloaded)[0] == 0
    assert ran()


def test_in_python_it_is_imported_first(downloaded) -> None:
    with pytest.raises(UserError, match="or import surprise first"):
        _ = Run.open(downloaded).recipe
    assert not ran()
    Run.open(downloaded).import_task()
    assert ran()
    assert Run.open(downloaded).recipe.task == "surprise:Mine"
