"""The examples of the README run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_there_are_four():
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
