"""Every test starts from the same random state; commands run as a user runs them."""

import pytest
import torch

from ghrq import cli


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def ghrq(capsys, monkeypatch, tmp_path):
    """``code, out, err = ghrq("train", …)``: a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_debug", False)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run
