"""Training, validation and test images."""

import torch

from ghrq.data.images import load_splits


def test_no_image_is_in_two_splits() -> None:
    found = load_splits("digits", validation=0.1)
    assert [len(part) for part in found] == [1350, 150, 297]
    rows = torch.cat([part.pixels.flatten(1) for part in found])
    assert len(rows.unique(dim=0)) == len(rows)  # no two digits are alike, so none was taken twice
