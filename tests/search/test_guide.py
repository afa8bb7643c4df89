"""docs/search.md: its Python examples run, and its commands exist."""

import re
from pathlib import Path

import numpy as np

from ghrq import cli
from ghrq.ids import Catalogue

GUIDE = (Path(__file__).parents[2] / "docs" / "search.md").read_text("utf-8")


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names = {}
    exec(first, names)
    assert names["found"].ids.shape == (1, 10)
    assert len(names["index"]) == 2000
    assert (tmp_path / "index" / "codes.npy").is_file()
    Catalogue([f"i{row}" for row in range(10)], np.arange(30).reshape(10, 3)).save("ids.parquet")
    exec(second, names)
    assert names["codes"].tolist() == [[21, 22, 23], [24, 25, 26]]


def test_the_options_of_the_commands_are_there(capsys):
    try:
        cli.main(["search", "--help"])
    except SystemExit:
        told = capsys.readouterr().out
    used = {
        option for line in re.findall(r"^ghrq search .*", GUIDE, re.MULTILINE) for option in re.findall(r"--\S+", line)
    }
    assert used >= {"--k", "--like", "--rerank", "--out"}
    assert all(option in told for option in used)
