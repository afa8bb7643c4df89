"""A run of the image task, for all who only read it."""

from pathlib import Path

import pytest
from small_image import small

from ghrq.training.train import train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image") / "run"
    train(small(), folder)
    return folder
