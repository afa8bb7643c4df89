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


MISTAKES = {
    "no Recipe": (("    Recipe = TreeRecipe\n", ""), "the class Tree does not define Recipe"),
    "no evaluate": (("def evaluate", "def evaluated"), "the class Tree does not define evaluate"),
    "a loss alone": (
        ('return {"loss": error + self.weight * ball_units(self.quantizer) * loss, "error": error}', "return error"),
        "model(batch) must give a dictionary with the key 'loss', got Tensor",
    ),
    "a tuple": (('return {"mse": error.item(), "used": len(codes[:, 0].unique())}', "return 1, 2"), "got tuple"),
    "an error": (("error = nn.functional.mse_loss(self.model.d", "int('x'); error = (self.model.d"), "tree.py line 5"),
    "no batch": (("batch: Positive = 64", "batch: int = 0"), "got rows=1200, batch=0, epochs=1"),
    "a model": (("def evaluate", "def models(self): return {'m': self.model}\n    def evaluate"), "no save_pretrained"),
    "a format": (('".4f"', '".4q"'), "column 'MSE': spec='.4q' is no format of a number"),
    "the best": (('best="lowest"', 'best="low"'), "column 'MSE': best='low': expected 'highest', 'lowest' or None"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_a_line(files, ghrq, change, message):
    """None of them is a traceback."""
    text = (files / "tree.py").read_text()
    assert text.count(change[0]) == 1
    (files / "tree.py").write_text(text.replace(*change).replace("epochs: Count = 10", "epochs: Count = 1"))
    code, _, err = ghrq("train", "tree.toml", "--out", "run")
    assert (code, message in err) == (2, True), err


@pytest.mark.slow
def test_a_column_that_no_run_has_is_told(files, ghrq):
    text = (files / "tree.py").read_text().replace('"mse", ".4f"', '"mze", ".4f"').replace("Count = 10", "Count = 1")
    (files / "tree.py").write_text(text)
    assert ghrq("reproduce", "tree:Tree", "--jobs", 1)[0] == 0
    assert "**Not in the results:** `mze`. They have `mse`, `used`" in (files / "runs/tree-cpu/tables.md").read_text()
