"""Sizes by level and balanced codebooks in a tokenizer and everything behind it."""

import json

import numpy as np
import pytest
import torch

from ghrq import Tokenizer
from ghrq.ids import PrefixTrie, resolve_reassign
from ghrq.metrics.quality import quality
from ghrq.report.ids_provenance import _codes
from ghrq.report.ids_verdict import judge
from ghrq.system.errors import UserError

SIZES = [4, 16, 8]


@pytest.fixture(scope="module")
def x():
    random = np.random.default_rng(0)
    centres = random.standard_normal((12, 6))
    groups = np.minimum(random.geometric(0.3, size=1200) - 1, 11)  # some are much larger than others
    return (centres[groups] + 0.3 * random.standard_normal((1200, 6))).astype(np.float32)


@pytest.fixture(scope="module")
def tokenizer(x):
    return Tokenizer(codebook_size=SIZES).fit(x)


def evenness(tokenizer, x):
    return np.array(quality(tokenizer.encode(x), tokenizer=tokenizer).perplexity)


def test_codes_and_vocabulary_have_the_sizes(tokenizer, x):
    codes = tokenizer.encode(x)
    assert codes.shape == (1200, 3)
    assert (codes.max(0) < SIZES).all()
    assert [len(np.unique(column)) for column in codes.T] == SIZES
    assert tokenizer.vocabulary("none").sizes == (4, 16, 8)
    assert tokenizer.vocabulary().offsets == (3, 7, 23, 31)
    trie = PrefixTrie(codes, SIZES)
    assert trie.sizes == (4, 16, 8)
    tokens = tokenizer.vocabulary("none").tokens(codes)
    assert torch.equal(tokenizer.vocabulary("none").codes(tokens), torch.from_numpy(codes))


def test_it_is_saved_and_comes_back(tokenizer, x, tmp_path):
    tokenizer.save(tmp_path / "tok")
    params = json.loads((tmp_path / "tok" / "config.json").read_text())["params"]
    assert (params["codebook_size"], params["num_stages"], params["balance"]) == (SIZES, 3, False)
    again = Tokenizer.load(tmp_path / "tok")
    assert again.codebook_size == SIZES
    assert again.fingerprint == tokenizer.fingerprint
    np.testing.assert_array_equal(again.encode(x), tokenizer.encode(x))
    assert again.partial_fit(x[:300]).encode(x).max(0).tolist() <= [3, 15, 7]
    # The same weights under other sizes of the same room.
    config = json.loads((tmp_path / "tok" / "config.json").read_text())
    config["params"]["codebook_size"] = [8, 16, 4]
    (tmp_path / "tok" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="tok"):
        Tokenizer.load(tmp_path / "tok")


def test_other_codes_are_refused(tokenizer, x):
    codes = tokenizer.encode(x[:5])
    with pytest.raises(ValueError, match="codes of stage 1 must be from 0 to 3"):
        tokenizer.decode(codes + np.array([4, 0, 0]))
    with pytest.raises(ValueError, match=r"stages below \[4, 16, 8\]"):
        quality(np.array([[0, 0, 8]]), tokenizer=tokenizer)
    with pytest.raises(UserError, match="3 sizes for num_stages=4"):
        Tokenizer(codebook_size=SIZES, num_stages=4).fit(x)
    with pytest.raises(UserError, match="codebook_size=16 codes need at least as many rows"):
        Tokenizer(codebook_size=SIZES).fit(x[:15])


def test_reassigned_tuples_are_distinct_and_within_the_sizes(tokenizer, x):
    z = tokenizer.latent(x)[:400]
    codes = torch.from_numpy(tokenizer.encode(x[:400]))
    for crowd in (codes, codes[:1].expand(400, -1)):  # 400 of 512 tuples, even if all want the same
        found = resolve_reassign(crowd, lambda rows: z[rows], tokenizer.quantizer_)
        assert len(found.unique(dim=0)) == 400
        assert bool((found < torch.tensor(SIZES)).all())
    with pytest.raises(ValueError, match=r"3 stages of \[4, 16, 8\] codes make 512 tuples"):
        resolve_reassign(codes[:1].expand(513, -1), lambda rows: z[rows], tokenizer.quantizer_)


def test_quality_and_its_advice_name_the_sizes(tokenizer, x):
    codes = tokenizer.encode(x)
    found = quality(codes, x, tokenizer, neighbours=0)
    assert found.codebook_size == SIZES
    assert found.usage == [1.0, 1.0, 1.0]
    assert found.summary()[2][2].endswith("of 16")
    coarse = quality(codes, x * [[1, 1, 1, 1, 1, 100]], tokenizer, neighbours=0)  # not what was encoded
    assert any("--codes 8,32,16" in check.advice for check in judge(coarse).checks)
    idle = judge(quality(codes % [[4, 3, 8]], x, tokenizer, neighbours=0))
    assert any("--codes 4,4,8" in check.advice for check in idle.checks)
    assert (_codes((4, 16, 8)), _codes((16, 16))) == ("4, 16 and 8 codes", "16 codes")


@pytest.mark.parametrize("kind", ["ghrq", "euclidean"])
def test_balanced_codebooks_are_used_more_evenly(kind, x, tmp_path):
    plain, even = (Tokenizer(kind=kind, codebook_size=[16, 8], balance=each).fit(x) for each in (False, True))
    assert evenness(even, x)[0] > evenness(plain, x)[0] + 1.0
    assert evenness(even, x).prod() > evenness(plain, x).prod()
    # Each row by itself gets the code that it gets among others: the nearest.
    np.testing.assert_array_equal(np.concatenate([even.encode(x[i : i + 1]) for i in range(20)]), even.encode(x)[:20])
    even.save(tmp_path / "tok")
    assert Tokenizer.load(tmp_path / "tok").balance is True
    again = Tokenizer(kind=kind, codebook_size=[16, 8], balance=True).fit(x)
    assert again.fingerprint == even.fingerprint


def test_balance_is_of_kmeans(x):
    with pytest.raises(UserError, match="balance=True is of k-means"):
        Tokenizer(engine="rq-vae", balance=True).fit(x)
    with pytest.raises(UserError, match="balance must be True or False"):
        Tokenizer(balance=1).fit(x)
    network = {"engine": "autoencoder", "epochs": 1, "latent_dim": 4, "hidden": (8,)}
    assert Tokenizer(codebook_size=[4, 8], balance=True, **network).fit(x).encode(x).shape == (1200, 2)
