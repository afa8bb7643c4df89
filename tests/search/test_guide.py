"""docs/search.md: its first Python example runs, and its commands exist."""

import re
from pathlib import Path

import numpy as np

from ghrq import cli

GUIDE = (Path(__file__).parents[2] / "docs" / "search.md").read_text("utf-8")


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0]
    names = {"X": np.random.default_rng(0).standard_normal((600, 8)).astype(np.float32)}
    exec(example, names)
    assert names["found"].ids.shape == (1, 10)
    assert len(names["index"]) == 600
    assert (tmp_path / "index" / "codes.npy").is_file()


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
