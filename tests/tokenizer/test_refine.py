"""Tokenizers whose codebooks are fitted together."""

from dataclasses import asdict

import numpy as np
import pytest
from tokenizer_tables import clustered

from ghrq import Tokenizer
from ghrq.system.errors import UserError
from ghrq.tokenizer import tokenizer as module


@pytest.mark.parametrize("kind", ["ghrq", "euclidean"])
def test_refined_codebooks_decode_more_exactly_and_are_saved(kind, tmp_path, monkeypatch):
    x = clustered(1500, dim=12, groups=300)
    plain, refined = (Tokenizer(kind=kind, num_stages=3, codebook_size=16, refine=n).fit(x) for n in (0, 3))
    plain_error, refined_error = (
        float(np.square(each.decode(each.encode(x, beam=5)) - x).mean()) for each in (plain, refined)
    )
    assert refined_error < 0.97 * plain_error
    refined.save(tmp_path / "tok")
    again = Tokenizer.load(tmp_path / "tok")
    assert again.refine == 3
    assert again.fingerprint == refined.fingerprint
    # Files of earlier versions do not have the setting.
    monkeypatch.setattr(module, "asdict", lambda settings: {k: v for k, v in asdict(settings).items() if k != "refine"})
    refined.save(tmp_path / "old")
    old = Tokenizer.load(tmp_path / "old")
    assert old.refine == 0
    np.testing.assert_array_equal(old.encode(x), refined.encode(x))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"refine": 2, "balance": True}, "refine=2 is of plain k-means and does not go with balance=True"),
        ({"refine": 2, "engine": "autoencoder"}, "does not go with engine='autoencoder'"),
        ({"refine": -1}, "refine must be"),
    ],
)
def test_what_refine_does_not_go_with_is_one_clear_line(settings, told):
    with pytest.raises(UserError, match=told):
        Tokenizer(codebook_size=8, num_stages=2, **settings).fit(clustered())
