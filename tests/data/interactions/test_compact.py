"""The compact form of Amazon Beauty: the real counts, a small folder, and damaged files named with their line."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ghrq.data.interactions import leave_two_out, read_compact
from ghrq.system.errors import UserError

REAL = Path(os.environ.get("GHRQ_DATA", "")) / "amazon-beauty"

LINES = ["u1 1 2 3", "u2 4 1 2 5 4"]
ITEMS = [
    {"id": 1, "asin": "A", "title": "Soap", "categories": [["Beauty", "Bath"], ["Gifts"]]},
    {"id": 2, "asin": "B", "title": "Comb", "categories": []},
    {"id": 3, "asin": "C", "title": None, "categories": [["Beauty"]]},
    {"id": 4, "asin": "D"},
    {"id": 5, "asin": "E", "title": "Oil", "categories": [["Beauty"]]},
]
VECTORS = np.arange(10, dtype=np.float16).reshape(5, 2) / 4


def write(folder, lines=LINES, items=ITEMS, vectors=VECTORS):
    texts = {"sequences.txt.gz": lines, "items.jsonl.gz": [json.dumps(item) for item in items]}
    for name, content in texts.items():
        (folder / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in content).encode()))
    if vectors is not None:
        np.save(folder / "mpnet-embeddings.f16.npy", vectors)
    return folder


@pytest.mark.skipif(not REAL.joinpath("sequences.txt.gz").is_file(), reason="no amazon-beauty in the folder GHRQ_DATA")
def test_beauty_has_the_published_counts():
    data = read_compact(REAL)
    assert (len(data), len(data.items), len(data.sequence)) == (22_363, 12_101, 198_502)
    assert data.vectors is not None
    assert data.vectors.shape == (12_101, 768)
    torch.testing.assert_close(data.vectors.norm(dim=1), torch.ones(12_101), atol=2e-3, rtol=0)
    assert int(data.lengths.min()) == 5
    assert int(data.counts().min()) == 5
    assert data.titles is not None
    assert data.titles[0].startswith("OPI Nail Lacquer")
    # No user repeats an item.
    assert len((data.owners() * len(data.items) + data.sequence).unique()) == len(data.sequence)
    split = leave_two_out(data)
    assert len(split.train.sequence) == 198_502 - 2 * 22_363
    assert int((split.train.counts()[split.test] == 0).sum()) == 138


def test_a_small_folder(tmp_path):
    data = read_compact(write(tmp_path))
    assert data.users == ["u1", "u2"]
    assert data.items == ["A", "B", "C", "D", "E"]
    assert data.starts.tolist() == [0, 3, 8]
    assert data.sequence.tolist() == [0, 1, 2, 3, 0, 1, 4, 3]
    assert data.sequence.dtype == data.starts.dtype == torch.int64
    assert data.titles == ["Soap", "Comb", "", "", "Oil"]
    assert data.texts is not None
    assert data.texts[0] == "Title: Soap; Categories: Beauty > Bath"
    assert data.vectors is not None
    np.testing.assert_array_equal(data.vectors, VECTORS.astype(np.float32))


def test_embeddings_may_be_missing(tmp_path):
    assert read_compact(write(tmp_path, vectors=None)).vectors is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["u1 1 2 3", "u2 1 2 6"], "line 2: the item '6' is not one of 1 to 5"),
        (["u1 1 2 3", "u2 1 0 3"], "line 2: the item '0' is not one"),
        (["u1 1 2 3", "u2 1 x 3"], "line 2: the item 'x' is not one"),
        (["u1 1 2 3", "u2 1 99999999999999999999 3"], "line 2: the item '9999"),
        (["u1 1 2 3", "u2 1 2"], "line 2: expected a user and at least 3 items"),
        (["u1 1 2 3", "", "u2 1 2 3"], "line 2: expected a user"),
        (["u1 1 2 3", "u1 1 2 4"], "line 2: the user 'u1' has a line already"),
        ([], "line 1: expected a user"),
    ],
)
def test_bad_sequences_are_named_with_their_line(tmp_path, lines, message):
    with pytest.raises(UserError, match=rf"sequences.txt.gz, {message}"):
        read_compact(write(tmp_path, lines))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"id": 7, "asin": "D", "title": ""}, "expected an object with the id 4"),
        ({"id": 4, "title": ""}, "expected texts as 'asin' and 'title'"),
        ({"id": 4, "asin": "D", "title": 5}, "expected texts as 'asin' and 'title'"),
        ({"id": 4, "asin": "D", "title": "", "categories": ["Beauty"]}, "expected lists of texts as 'categories'"),
        ([4], "expected an object"),
    ],
)
def test_bad_items_are_named_with_their_line(tmp_path, item, message):
    with pytest.raises(UserError, match=rf"items.jsonl.gz, line 4: {message}"):
        read_compact(write(tmp_path, items=[*ITEMS[:3], item, ITEMS[4]]))


def test_damaged_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no sequences.txt.gz"):
        read_compact(str(tmp_path))
    write(tmp_path)
    with pytest.raises(UserError, match="expected a row of floats for each of the 5 items"):
        read_compact(write(tmp_path, vectors=VECTORS[:4]))
    with pytest.raises(UserError, match=r"row 0 .* NaN or infinite"):
        read_compact(write(tmp_path, vectors=np.full_like(VECTORS, np.nan)))
    (tmp_path / "items.jsonl.gz").write_bytes(gzip.compress(b"{" + b'"id": 1,\n'))
    with pytest.raises(UserError, match=r"items.jsonl.gz, line 1: it is not JSON"):
        read_compact(tmp_path)
    content = (tmp_path / "sequences.txt.gz").read_bytes()
    write(tmp_path)
    (tmp_path / "sequences.txt.gz").write_bytes(content[:-9])
    with pytest.raises(UserError, match=r"sequences.txt.gz cannot be read as gzip"):
        read_compact(tmp_path)
