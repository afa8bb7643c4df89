"""The guides for tables are followed as a reader would: every command and every piece of Python, in their order."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ghrq.cli import main
from ghrq.training.recipe import load_recipe

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = pytest.mark.slow


def blocks(page):
    return re.findall(r"^```(python|sh)\n(.*?)^```", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def follow(steps):
    """Run ``steps``; pieces of Python share their names. The commands that were run."""
    names, ran = {}, []
    for language, text in steps:
        if language == "python":
            exec(compile(text, "guide", "exec"), names)
            continue
        for line in re.sub(r"\\\n", " ", text).splitlines():
            command, *words = shlex.split(line, comments=True)
            if command == "ghrq":
                with pytest.raises(SystemExit) as end:
                    main(words)
                assert end.value.code in (0, None), line
                ran.append(words[0])
    return ran


def test_first_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert follow(blocks("start/first-ids.md")) == ["advise", "fit", "inspect", "explore", "decode"]
    assert Path("page.html").stat().st_size > 50_000
    assert np.load("coarse.npy").shape == (2000, 64)


def test_a_shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    follow(blocks("start/first-ids.md")[1:2])  # the table
    items = pd.read_parquet("items.parquet")
    new = items[:150].assign(item_id=[f"new{row}" for row in range(150)])
    new["embedding"] = [vector + np.float32(0.01) for vector in new["embedding"]]
    new.to_parquet("today.parquet")
    Path("gone.txt").write_text("i3\ni4\n")
    ran = follow(blocks("semantic-ids.md"))
    first = ["advise", "fit", "fit", "inspect", "explore", "fit", "inspect"]
    assert ran == [*first, "encode", "export", "extend", "drift", "fit", "remap"]
    assert set(pd.read_parquet("map.parquet").columns) == {"item_id", "old", "new"}
    grown = pd.read_parquet("ids.parquet")
    assert len(grown) == 2150
    assert set(grown[grown["retired"]]["item_id"]) == {"i3", "i4"}


def test_recipes_in_the_guide_on_training_runs_are_right(tmp_path):
    recipes = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / "training-runs.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert recipes
    for text in recipes:
        (tmp_path / "mine.toml").write_text(text)
        load_recipe(tmp_path / "mine.toml")
