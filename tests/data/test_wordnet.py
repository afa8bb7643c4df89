"""The shipped nouns, a dict folder and NLTK give the same; damaged files are named with their line."""

import gzip
import lzma
import os
import shutil
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from ghrq.data import wordnet

DEBIAN = Path("/usr/share/wordnet")  # where Debian's package wordnet-base puts the dict files
LICENCE = "".join(f"  {i} WordNet 3.0 Copyright, line {i} of the licence  \n" for i in range(1, 4))

# Lemmas, parents (symbol and the parent's key), gloss. Keys are letters, in the order of the file. The second "hound"
# of the file is the more frequent, so it is sense 1; Rex has two parents, one as an instance.
TINY = {
    "a": (["entity"], [], "that which is; "),
    "b": (["animal", "beast"], [("@", "a")], 'a living thing; "the animals of the forest"; "a wild beast"'),
    "c": (["hound"], [("@", "a")], 'a person "of no worth" who hunts'),
    "d": (["hound", "dog"], [("@", "b")], "a hunting animal"),
    "e": (["Rex", "King_Rex"], [("@i", "d"), ("@", "c")], "a hound in a story"),
}
INDEX = ["animal b", "beast b", "dog d", "entity a", "hound d c", "king_rex e", "rex e"]
NAMES = ("entity.n.01", "animal.n.01", "hound.n.02", "hound.n.01", "rex.n.01")


def write_tiny(folder: Path, line_end: str = "\n") -> Path:
    """A dict folder in Princeton's format; the offsets are those of files with plain line ends."""
    below = {key: [(s.replace("@", "~"), k) for k, v in TINY.items() for s, p in v[1] if p == key] for key in TINY}

    def line(key, offsets):
        lemmas, up, gloss = TINY[key]
        pointers = [f"{s} {offsets[k]:08d} n 0000" for s, k in up + below[key]] + ["+ 00000123 v 0101"]
        words = " ".join(f"{lemma} {7:x}" for lemma in lemmas)
        return (
            f"{offsets[key]:08d} 03 n {len(lemmas):02x} {words} {len(pointers):03d} {' '.join(pointers)} | {gloss}  \n"
        )

    offsets, place = {}, len(LICENCE)
    for key in TINY:
        offsets[key] = place
        place += len(line(key, dict.fromkeys(TINY, 0)))
    data = LICENCE + "".join(line(key, offsets) for key in TINY)
    index = LICENCE
    for lemma, *keys in map(str.split, INDEX):
        index += f"{lemma} n {len(keys)} 1 @ {len(keys)} 0 {' '.join(f'{offsets[key]:08d}' for key in keys)}  \n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("data.noun", data), ("index.noun", index)):
        (folder / name).write_bytes(text.replace("\n", line_end).encode())
    return folder


def nltk_reader(folder: Path, monkeypatch):
    """NLTK's reader of a dict folder, completed by the files of other parts of speech that it opens."""
    nltk = pytest.importorskip("nltk", reason="NLTK is not installed: pip install nltk")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    (folder / "lexnames").write_text("".join(f"{i:02d}\tfile{i}\t1\n" for i in range(45)))
    for name in (*(f"{kind}.{pos}" for pos in ("adj", "adv", "verb") for kind in ("data", "index")), "index.sense"):
        (folder / name).write_text(LICENCE if name.startswith("data") else "")
    for pos in ("adj", "adv", "verb", "noun"):
        (folder / f"{pos}.exc").write_text("")
    monkeypatch.setattr(nltk.data, "path", [str(folder.parents[1])])
    with pytest.warns(UserWarning, match="multilingual"):
        return WordNetCorpusReader(nltk.data.find(f"corpora/{folder.name}"), None)


def assert_same(one: wordnet.Nouns, other: wordnet.Nouns) -> None:
    assert one.names == other.names
    assert one.lemmas == other.lemmas
    assert one.glosses == other.glosses
    for name, dtype in (("offsets", np.int32), ("edges", np.int32), ("instance", np.bool_)):
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype == dtype
        np.testing.assert_array_equal(first, second)


@pytest.fixture(scope="module")
def shipped():
    return wordnet.load()


def test_the_shipped_nouns_are_all_of_wordnet_3(shipped):
    assert len(shipped.names) == len(set(shipped.names)) == len(shipped.lemmas) == len(shipped.glosses) == 82_115
    assert shipped.offsets.shape == (82_115,)
    assert shipped.edges.shape == (84_427, 2)
    assert int((~shipped.instance).sum()) == len(shipped.hypernyms(instances=False)) == 75_850
    assert int(shipped.instance.sum()) == 8_577
    assert len(shipped.hypernyms()) == 84_427
    assert (np.diff(shipped.offsets) > 0).all()
    assert (np.diff(shipped.edges[:, 0].astype(np.int64) * 82_115 + shipped.edges[:, 1]) > 0).all()


@pytest.mark.parametrize(
    ("name", "offset", "parents", "instance", "gloss"),
    [
        ("entity.n.01", 1740, set(), False, "its own distinct existence"),
        ("dog.n.01", 2084071, {"canine.n.02", "domestic_animal.n.01"}, False, "domesticated by man"),
        ("dog.n.03", 10023039, {"chap.n.01"}, False, "informal term for a man"),
        ("einstein.n.01", 10954498, {"physicist.n.01"}, True, "physicist born in Germany"),
    ],
)
def test_some_synsets_as_nltk_knows_them(shipped, name, offset, parents, instance, gloss):
    row = shipped.names.index(name)
    mine = shipped.edges[:, 0] == row
    assert shipped.offsets[row] == offset
    assert {shipped.names[parent] for parent in shipped.edges[mine, 1]} == parents
    assert (shipped.instance[mine] == instance).all()
    assert gloss in shipped.glosses[row]


def test_the_shipped_file_is_small_and_has_its_licence():
    files = resources.files("ghrq.data") / "files"
    assert len((files / "wordnet-nouns.json.xz").read_bytes()) < 3_000_000
    licence = (files / "WORDNET-LICENSE").read_text()
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in licence
    assert "Permission to use, copy, modify and distribute" in licence


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_tiny_dict_folder(tmp_path, line_end, packed):
    folder = write_tiny(tmp_path, line_end)
    if packed:
        for name in ("data.noun", "index.noun"):
            (folder / f"{name}.xz").write_bytes(lzma.compress((folder / name).read_bytes()))
            (folder / name).unlink()
    nouns = wordnet.from_dict(folder)
    assert nouns.names == NAMES
    assert nouns.lemmas == ("entity", "animal", "hound", "hound", "Rex")
    assert nouns.glosses[0] == "that which is"
    assert nouns.glosses[1] == "a living thing"
    assert nouns.glosses[2] == "a person  who hunts"
    assert nouns.edges.tolist() == [[1, 0], [2, 0], [3, 1], [4, 2], [4, 3]]
    assert nouns.instance.tolist() == [False, False, False, False, True]
    assert nouns.hypernyms(instances=False).tolist() == [[1, 0], [2, 0], [3, 1], [4, 2]]
    assert nouns.offsets[0] == len(LICENCE)


@pytest.mark.slow
def test_nltk_reads_the_tiny_folder_alike(tmp_path, monkeypatch):
    folder = write_tiny(tmp_path / "corpora" / "wordnet")
    assert_same(wordnet.from_nltk(nltk_reader(folder, monkeypatch)), wordnet.from_dict(folder))


def test_saved_nouns_come_back(tmp_path):
    nouns = wordnet.from_dict(write_tiny(tmp_path))
    wordnet.save(nouns, tmp_path / "nouns.json.xz")
    assert_same(wordnet.load(tmp_path / "nouns.json.xz"), nouns)


needs_debian = pytest.mark.skipif(
    not (DEBIAN / "index.noun").is_file(), reason="no WordNet dict files: apt-get install wordnet-base"
)


@needs_debian
def test_the_dict_folder_is_what_is_shipped(shipped):
    assert_same(wordnet.from_dict(DEBIAN), shipped)


@needs_debian
def test_nltk_is_what_is_shipped(shipped, tmp_path, monkeypatch):
    folder = tmp_path / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for name in ("data.noun", "index.noun"):
        shutil.copy(DEBIAN / name, folder)
    assert_same(wordnet.from_nltk(nltk_reader(folder, monkeypatch)), shipped)


def test_wordnet_3_without_its_index_takes_the_shipped_sense_numbers(shipped):
    data = Path(os.environ.get("GHRQ_DATA", ""), "wordnet-3.0", "data.noun")
    if not data.is_file():
        pytest.skip("no wordnet-3.0/data.noun in the folder that GHRQ_DATA names")
    assert_same(wordnet.from_dict(data.parent), shipped)


def edited(folder: Path, name: str, old: str, new: str) -> Path:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("data.noun", " n 02 animal", " n 0z animal", "data.noun, line 5: not a noun synset"),
        ("data.noun", " n 02 animal", " n 03 animal", "data.noun, line 5: not a noun synset"),
        ("data.noun", " n 02 animal", " v 02 animal", "line 5: .*type 'v', not 'n'"),
        ("data.noun", "| a hunting", "a hunting", "line 7: .*no gloss"),
        ("data.noun", " n 0000", "", "line 4: .*pointers announced"),
        ("index.noun", "hound n 2", "hound n 3", "index.noun, line 8: not a noun's senses"),
        ("index.noun", "hound n 2", "hound n two", "index.noun, line 8: not a noun's senses"),
        ("index.noun", "hound n 2", "howl n 2", "index.noun has no sense .* of 'hound'"),
    ],
)
def test_a_malformed_line_is_named_with_a_remedy(tmp_path, name, old, new, message):
    folder = edited(write_tiny(tmp_path), name, old, new)
    with pytest.raises(ValueError, match=rf"(?s){message}.*wordnet-base"):
        wordnet.from_dict(folder)


def test_offsets_must_ascend(tmp_path):
    folder = write_tiny(tmp_path)
    lines = (folder / "data.noun").read_text().splitlines(keepends=True)
    (folder / "data.noun").write_text("".join([*lines, lines[-1]]))
    with pytest.raises(ValueError, match=r"line 9: .*does not come after"):
        wordnet.from_dict(folder)


@pytest.mark.parametrize("keep", range(1, 5))
def test_a_file_cut_at_a_line_is_found_by_its_pointers(tmp_path, keep):
    folder = write_tiny(tmp_path)
    lines = (folder / "data.noun").read_text().splitlines(keepends=True)
    (folder / "data.noun").write_text("".join(lines[: 3 + keep]))
    with pytest.raises(ValueError, match=r"data.noun, line \d+: points to synset \d{8}, which is not in the file"):
        wordnet.from_dict(folder)


@pytest.mark.parametrize(("name", "line"), [("data.noun", 8), ("index.noun", 10)])
def test_a_file_cut_within_a_line(tmp_path, name, line):
    folder = write_tiny(tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:-4])
    with pytest.raises(ValueError, match=f"{name}, line {line}: the file is cut off here"):
        wordnet.from_dict(folder)


def test_a_cut_archive_and_an_empty_file(tmp_path):
    folder = write_tiny(tmp_path)
    packed = lzma.compress((folder / "data.noun").read_bytes())
    (folder / "data.noun").unlink()
    (folder / "data.noun.xz").write_bytes(packed[:-20])
    with pytest.raises(ValueError, match=r"data.noun.xz is damaged .*: get it again"):
        wordnet.from_dict(folder)
    (folder / "data.noun").write_text(LICENCE)
    with pytest.raises(ValueError, match="no synset in"):
        wordnet.from_dict(folder)


def test_missing_dict_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no data.noun .*wordnet-base"):
        wordnet.from_dict(tmp_path / "nowhere")
    (write_tiny(tmp_path) / "index.noun").unlink()
    with pytest.raises(FileNotFoundError, match=r"no index.noun .* put the index.noun of the same version beside it"):
        wordnet.from_dict(tmp_path)


def repacked(packed: bytes, old: bytes, new: bytes) -> bytes:
    text = lzma.decompress(packed)
    assert old in text
    return lzma.compress(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "damage",
    [
        lambda good: good[:-10],
        lambda good: good[:200] + bytes([good[200] ^ 1]) + good[201:],
        lambda good: gzip.compress(lzma.decompress(good)),
        lambda good: lzma.compress(b"{"),
        lambda good: lzma.compress(b"[1, 2]"),
        lambda good: repacked(good, b"nouns 1", b"nouns 0"),
        lambda good: repacked(good, b'"senses":[', b'"senses":[1,'),
        lambda good: repacked(good, b'"parents":[', b'"parents":[0,'),
        lambda good: repacked(good, b'"parents":[0,', b'"parents":[5,'),
        lambda good: repacked(good, b'"parent_counts":[0,1,', b'"parent_counts":[-1,2,'),
    ],
)
def test_a_damaged_file_of_nouns(tmp_path, damage):
    file = tmp_path / "nouns.json.xz"
    wordnet.save(wordnet.from_dict(write_tiny(tmp_path)), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"nouns.json.xz is damaged or no file of WordNet nouns .*: name a file"):
        wordnet.load(file)


def test_a_missing_file_of_nouns(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no WordNet nouns at .*: name a file"):
        wordnet.load(tmp_path / "nouns.json.xz")


def test_nltk_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    with pytest.raises(ImportError, match="pip install nltk"):
        wordnet.from_nltk()


def test_the_corpus_of_nltk_missing(tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk", reason="NLTK is not installed: pip install nltk")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(FileNotFoundError, match=r"nltk.downloader wordnet"):
        wordnet.from_nltk(LazyCorpusLoader("wordnet", WordNetCorpusReader, None))


@pytest.mark.parametrize(
    "content",
    [
        lzma.compress(b"[" * 100_000),
        lzma.compress(b"[]"),
        lzma.compress(b'{"format": 3}'),
        lzma.compress(b"{}")[:-5],
        lzma.compress(bytes(2**29), preset=0),
    ],
)
def test_a_file_that_is_something_else_or_a_bomb_is_one_line(tmp_path, content):
    (tmp_path / "nouns.json.xz").write_bytes(content)
    with pytest.raises(ValueError, match=r"nouns\.json\.xz is damaged or no file of WordNet nouns") as told:
        wordnet.load(tmp_path / "nouns.json.xz")
    assert "\n" not in str(told.value)
