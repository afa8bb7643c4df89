"""The IDs that come with the package."""

import numpy as np

from ghrq import Tokenizer
from ghrq.data import wordnet, wordnet_ids


def test_the_nouns_have_different_ids_of_their_tokenizer() -> None:
    nouns, ids = wordnet.load(), wordnet_ids()
    assert ids.names == list(nouns.names)
    assert ids.codes.shape == (82_115, 4)
    assert len(np.unique(ids.codes, axis=0)) == len(ids.codes)
    tokenizer = Tokenizer.from_pretrained("wordnet-nouns")
    assert tokenizer.vocabulary("reassign").sizes == (128,) * 4
    assert ids.codes.max() < 128
    assert np.isfinite(tokenizer.decode(ids.codes[:100])).all()
    size = sum(path.stat().st_size for path in ids.folder.iterdir())
    assert size <= 1_000_000, "it is in every installation"


def test_relatives_share_codes() -> None:
    """Of two nouns with the same first two codes, far more are of one kind than of two at random."""
    ids = wordnet_ids()
    kind = np.unique([kind or "" for kind in ids.kinds], return_inverse=True)[1]
    prefix = ids.codes[:, 0] * 128 + ids.codes[:, 1]
    order = np.argsort(prefix, kind="stable")
    together = prefix[order[1:]] == prefix[order[:-1]]
    same = (kind[order[1:]] == kind[order[:-1]])[together].mean()
    chance = np.square(np.bincount(kind) / len(kind)).sum()
    assert same > 0.8 > 3 * chance
    dog = ids.names.index("dog.n.01")
    assert ids.kinds[dog] == "animal"
