"""Arrays of .npz files: what they claim is looked at first."""

import numpy as np
import pytest

from ghrq.data.npz import read_headers
from ghrq.system import unpacking
from ghrq.system.errors import UserError


def test_a_small_file_of_a_large_array_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREELY", 2**16)
    np.savez_compressed(tmp_path / "a.npz", codes=np.zeros((1000, 1000), np.uint8))
    with pytest.raises(UserError, match="would unpack to"):
        read_headers(tmp_path / "a.npz")
