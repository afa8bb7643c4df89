"""The original Amazon files: JSON and Python literals, the rules of order, and damaged lines."""

import gzip
import io
import json
import os
import random
from pathlib import Path

import pytest

from ghrq.data.interactions import leave_two_out, read_amazon, read_compact
from ghrq.system import unpacking
from ghrq.system.errors import UserError
from ghrq.system.progress import PlainProgress

REAL = Path(os.environ.get("GHRQ_DATA", "")) / "amazon-beauty"

# User, item, time. The items of u1 at time 5 come by their ASINs. D has no metadata, so u2 has four reviews left.
REVIEWS = [
    *(("u1", "E", 9), ("u1", "C", 5), ("u1", "B", 5), ("u1", "A", 7), ("u1", "F", 1), ("u1", "D", 2)),
    *(("u2", item, 1) for item in "ABCDE"),
    *(("u3", item, time) for time, item in enumerate("EACBF")),
]
META = [
    {"asin": "Z", "title": "Never bought", "related": {"also_bought": ["A", "B"]}},
    {"asin": "C", "title": 'Comb\'s "best"', "description": " wide  teeth\n"},
    {"asin": "B", "title": "Soap", "price": 5.0, "categories": [["Beauty"]]},
    {"asin": "A", "description": "no title"},
    {"asin": "F", "title": None},
    {"asin": "E", "title": "Éclat"},
    {"asin": "B", "title": "again"},
]
TIMES = "reviewerID", "asin", "unixReviewTime"


def write(path, lines):
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


@pytest.fixture
def paths(tmp_path):
    """Reviews as JSON, metadata as Python literals, as published."""
    reviews = [
        json.dumps({"reviewText": "fine", "helpful": [0, 1], **dict(zip(TIMES, r, strict=True))}) for r in REVIEWS
    ]
    return write(tmp_path / "reviews_Toys_5.json.gz", reviews), write(tmp_path / "meta_Toys.json.gz", map(repr, META))


def keys(data):
    parts = data.sequence.split(data.lengths.tolist())
    return {user: "".join(data.items[i] for i in part.tolist()) for user, part in zip(data.users, parts, strict=True)}


def check(data):
    assert keys(data) == {"u1": "FBCAE", "u3": "EACBF"}
    assert data.items == ["A", "B", "C", "E", "F"]
    assert data.titles == ["", "Soap", 'Comb\'s "best"', "Éclat", ""]
    assert data.texts == ["no title", "Soap", 'Comb\'s "best". wide teeth', "Éclat", ""]
    assert data.vectors is None
    assert [data.items[i] for i in leave_two_out(data).test.tolist()] == ["E", "F"]


def test_the_files_as_published(paths):
    told = io.StringIO()
    check(read_amazon(str(paths[0]), progress=PlainProgress(told)))
    assert "left out 2 of 16 reviews: their items have no metadata" in told.getvalue()
    assert "1 of 5 items have neither a title nor a description" in told.getvalue()
    assert "left out 4 of 14 rows: a user with fewer than 5 events" in told.getvalue()


def test_literals_and_json_may_be_exchanged(paths, tmp_path):
    reviews = [repr(dict(zip(TIMES, r, strict=True))) for r in REVIEWS]
    meta = [json.dumps(item) if row % 2 else repr(item) for row, item in enumerate(META)]
    check(read_amazon(write(tmp_path / "r.gz", ["", *reviews]), write(tmp_path / "m.gz", meta)))


def test_lines_are_never_run(paths, tmp_path):
    line = f"{{'asin': 'A', 'title': __import__('pathlib').Path({str(tmp_path / 'run')!r}).touch()}}"
    with pytest.raises(UserError, match=r"m.gz, line 1: it is neither JSON nor a Python literal \(malformed node"):
        read_amazon(paths[0], write(tmp_path / "m.gz", [line]))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'asin': 'A'", r"it is neither JSON nor a Python literal \("),
        ("{'asin': 'A', 'title': " + "[" * 5000, r"it is neither JSON nor a Python literal \("),
        ("{'asin': 'A', 'title': " + "-" * 300_000 + "1}", r"it is neither JSON nor a Python literal \("),
        ('{"asin": "A", "title": ' + "[" * 100_000, r"it is neither JSON nor a Python literal \("),
        ("['asin', 'asin': 'A']", r"it is neither JSON nor a Python literal \("),
        ("{'asin': 'A', 'title': 5}", "expected texts as 'title' and 'description'"),
        ("{'asin': 'A', 'title': '" + "x" * 2**22 + "'}", "it has more than 4,194,304 bytes"),
        ("'asin': 'A'", r"it is neither JSON nor a Python literal \("),
        ("\"'asin': 'A'\"", "expected an object, got str"),
    ],
)
def test_damaged_metadata_are_named_with_their_line(paths, tmp_path, line, message):
    with pytest.raises(UserError, match=rf"m.gz, line 2: {message}"):
        read_amazon(paths[0], write(tmp_path / "m.gz", [repr(META[1]), line]))


@pytest.mark.parametrize(
    "change", [{"asin": None}, {"reviewerID": 5}, {"unixReviewTime": "5"}, {"unixReviewTime": 2**70}]
)
def test_damaged_reviews_are_named_with_their_line(paths, tmp_path, change):
    reviews = [
        json.dumps(dict(zip(TIMES, r, strict=True)) | (change if row == 3 else {})) for row, r in enumerate(REVIEWS)
    ]
    with pytest.raises(UserError, match=r"r.gz, line 4: expected texts as 'reviewerID' and 'asin', and seconds"):
        read_amazon(write(tmp_path / "r.gz", reviews), paths[1])


def test_other_files_are_refused(paths, tmp_path):
    reviews, meta = paths
    with pytest.raises(UserError, match="there is no file"):
        read_amazon(tmp_path / "nothing.gz", meta)
    with pytest.raises(UserError, match=r"is not called reviews_CATEGORY_5.json.gz: name the file of its metadata"):
        read_amazon(write(tmp_path / "r.gz", []))
    with pytest.raises(UserError, match="is empty"):
        read_amazon(write(tmp_path / "r.gz", []), meta)
    with pytest.raises(UserError, match=r"m.gz has none of the items of .*reviews_Toys_5.json.gz"):
        read_amazon(reviews, write(tmp_path / "m.gz", [repr(META[0])]))
    (tmp_path / "plain.gz").write_text("{}")
    with pytest.raises(UserError, match=r"plain.gz cannot be read as gzip"):
        read_amazon(tmp_path / "plain.gz", meta)
    content = reviews.read_bytes()
    reviews.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"reviews_Toys_5.json.gz cannot be read as gzip"):
        read_amazon(reviews, meta)


def test_a_small_file_that_would_fill_the_memory(paths, tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "FREELY", 2**20)
    (tmp_path / "m.gz").write_bytes(gzip.compress(b" " * 2**21))
    with pytest.raises(UserError, match=r"m.gz would unpack to"):
        read_amazon(paths[0], tmp_path / "m.gz")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.joinpath("sequences.txt.gz").is_file(), reason="no amazon-beauty in the folder GHRQ_DATA")
def test_beauty_comes_back_from_files_of_the_original_format(tmp_path):
    # The original files are not on this machine: they are written from the compact form, with its order as the time.
    data = read_compact(REAL)
    users, items, times = data.owners().tolist(), data.sequence.tolist(), range(len(data.sequence))
    reviews = [
        json.dumps(
            {"reviewerID": data.users[user], "asin": data.items[item], "helpful": [0, 0], "unixReviewTime": time}
        )
        for user, item, time in zip(users, items, times, strict=True)
    ]
    random.Random(0).shuffle(reviews)
    meta = [repr({"asin": key, "title": title}) for key, title in zip(data.items, data.titles, strict=True)]
    again = read_amazon(write(tmp_path / "r.gz", reviews), write(tmp_path / "m.gz", meta))
    assert (len(again), len(again.items), len(again.sequence)) == (22_363, 12_101, 198_502)
    order = [again.users.index(user) for user in data.users[:50]]
    for user, number in enumerate(order):
        mine = data.sequence[data.starts[user] : data.starts[user + 1]].tolist()
        other = again.sequence[again.starts[number] : again.starts[number + 1]].tolist()
        assert [data.items[i] for i in mine] == [again.items[i] for i in other]
