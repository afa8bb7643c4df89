"""An index on the disk: memory-mapped, whole or not there, and damaged files are refused."""

import shutil

import numpy as np
import pytest

import ghrq
from ghrq.ids import Catalogue
from ghrq.search import CodeIndex
from ghrq.system.errors import UserError


def vectors(rows=400, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, 6)).astype(np.float32)


@pytest.fixture(scope="module", params=["euclidean", "ghrq"])
def saved(request, tmp_path_factory):
    tokenizer = ghrq.Tokenizer(kind=request.param, codebook_size=8, num_stages=3, seed=0, iterations=3).fit(vectors())
    index = CodeIndex(tokenizer, Catalogue([f"n{row}" for row in range(400)], tokenizer.encode(vectors())))
    folder = tmp_path_factory.mktemp("saved") / "index"
    index.save(folder)
    return index, folder


@pytest.mark.parametrize("check", [True, False])
def test_a_loaded_index_finds_the_same(saved, check):
    index, folder = saved
    loaded = CodeIndex.load(folder, check=check)
    assert isinstance(loaded.lists.codes, np.memmap)
    assert not loaded.lists.codes.flags.writeable
    for one, other in zip(index.search(vectors(9, 1), 5), loaded.search(vectors(9, 1), 5), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.tokenizer.fingerprint == index.tokenizer.fingerprint


def test_a_loaded_index_can_change_and_replace_its_own_folder(saved, tmp_path):
    _, folder = saved
    shutil.copytree(folder, tmp_path / "index")
    index = CodeIndex.load(tmp_path / "index")
    index.remove(["n3"])
    more = index.tokenizer.encode(vectors(5, seed=2))
    index.add(Catalogue([f"m{row}" for row in range(5)], more))
    with pytest.raises(UserError, match="force=True"):
        index.save(tmp_path / "index")
    index.save(tmp_path / "index", force=True)
    again = CodeIndex.load(tmp_path / "index")
    assert len(again) == 404
    assert again._next == 405
    found = again.search(vectors(4, seed=2), 3, 8)
    np.testing.assert_array_equal(found.ids, index.search(vectors(4, seed=2), 3, 8).ids)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_other_files_are_never_replaced(saved, tmp_path):
    index, _ = saved
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="other files than an index"):
        index.save(tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["codes.npy", "numbers.npy", "starts.npy", "ids.arrow", "config.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_refused(saved, tmp_path, name, damage):
    _, folder = saved
    shutil.copytree(folder, tmp_path / "index")
    path = tmp_path / "index" / name
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-9])
    else:
        content[-20] ^= 1
        path.write_bytes(content)
    with pytest.raises(UserError, match="index") as error:
        CodeIndex.load(tmp_path / "index")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["codes.npy", "ids.arrow"])
def test_cut_files_are_refused_even_unchecked(saved, tmp_path, name):
    _, folder = saved
    shutil.copytree(folder, tmp_path / "index")
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="damaged"):
        CodeIndex.load(tmp_path / "index", check=False)


def test_the_tokenizer_must_be_its_own(saved, tmp_path):
    _, folder = saved
    shutil.copytree(folder, tmp_path / "index")
    other = ghrq.Tokenizer(kind="euclidean", codebook_size=8, num_stages=3, seed=1, iterations=3).fit(vectors(seed=5))
    other.save(tmp_path / "index" / "tokenizer", force=True)
    with pytest.raises(UserError, match="not the tokenizer of this index"):
        CodeIndex.load(tmp_path / "index")
