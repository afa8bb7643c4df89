"""The page "Add a task" of CONTRIBUTING.md: its task trains, resumes, reproduces and reports."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """``tree.py`` and ``tree.toml`` as the page has them, in the current folder."""
    blocks = dict(re.findall(r"^```(python|toml)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    (tmp_path / "tree.py").write_text(blocks["python"])
    (tmp_path / "tree.toml").write_text(blocks["toml"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tree", raising=False)
    return tmp_path


@pytest.mark.slow
def test_the_task_of_the_page(files, ghrq):
    assert len((files / "tree.py").read_text().splitlines()) < 60

    code, _, err = ghrq("train", "tree.toml", "--set", "quantizer.kind=naive", "--out", "runs/naive")
    assert code == 0, err
    expected = json.loads((files / "runs/naive/results.json").read_text())

    shutil.copytree(files / "runs/naive", files / "runs/stopped")
    (files / "runs/stopped/results.json").unlink()
    shutil.rmtree(files / "runs/stopped/checkpoints")
    assert ghrq("train", "--resume", "runs/stopped")[0] == 0
    assert json.loads((files / "runs/stopped/results.json").read_text()) == expected

    code, out, err = ghrq("reproduce", "tree:Tree", "--seeds", 2, "--grid")
    assert code == 0, err
    assert "report: runs/tree-cpu/report.html" in out
    assert "Points of a tree" in (files / "runs/tree-cpu/report.html").read_text("utf-8")
    table = (files / "runs/tree-cpu/tables.md").read_text("utf-8")
    assert re.search(r"\| GHRQ \| \**0\.\d{4} ± 0\.\d{4}\** \| \d+ ± \d+ \|", table), table
    assert table.count("±") >= 6, "three kinds with two seeds each"
    assert ghrq("runs")[1].count("finished") == 8

    code, _, err = ghrq("train", "tree.toml", "--set", "optimizer.rates=1")
    assert (code, "did you mean 'optimizer.rate'?" in err) == (2, True)
