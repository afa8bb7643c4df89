"""ghrq search as a user meets it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ghrq import Tokenizer, cli
from ghrq.search import CodeIndex

ROWS, DIM = 300, 6


def vectors(rows, seed=0):
    random = np.random.default_rng(seed)
    groups = np.random.default_rng(9).standard_normal((10, DIM))
    return (groups[random.integers(0, 10, rows)] + 0.3 * random.standard_normal((rows, DIM))).astype(np.float32)


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    return end.value.code or 0


def write(path, x, name="item"):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    pq.write_table(pa.table({"sku": [f"{name}-{row:03d}" for row in range(len(x))], "embedding": lists}), path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    write(folder / "items.parquet", vectors(ROWS))
    write(folder / "queries.parquet", vectors(12, seed=1), "query")
    code = run("fit", folder / "items.parquet", "--id", "sku", "--stages", 3, "--codes", 8, "--out", folder / "tok")
    assert code == 0
    return folder


@pytest.fixture
def ids(shop, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return shop / "tok" / "ids.parquet"


def test_a_table_of_queries_in_every_format(shop, ids, tmp_path, capsys):
    for name in ("found.parquet", "found.csv", "found.jsonl"):
        assert run("search", shop / "tok", ids, shop / "queries.parquet", "--k", 4, "--out", name) == 0
    assert "48 rows" in capsys.readouterr().out
    found = pq.read_table("found.parquet").to_pydict()
    expected = CodeIndex(Tokenizer.load(shop / "tok"), ids).search(vectors(12, seed=1), 4)
    assert found["query"] == [f"query-{row:03d}" for row in range(12) for _ in range(4)]
    assert found["rank"] == [1, 2, 3, 4] * 12
    assert found["item"] == expected.ids.ravel().tolist()
    np.testing.assert_array_equal(np.float32(found["distance"]), expected.distances.ravel())
    assert pyarrow.csv.read_csv("found.csv")["item"].to_pylist() == found["item"]
    lines = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [line["item"] for line in lines] == found["item"]


def test_items_like_an_item(shop, ids, capsys):
    assert run("search", shop / "tok", ids, "--like", "item-007", "--k", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["query", "rank", "item", "distance"]
    assert [line.split()[:2] for line in lines[1:]] == [["item-007", str(rank)] for rank in (1, 2, 3)]
    assert all("item-007" not in line.split()[2] for line in lines[1:])


def test_rerank_by_the_table(shop, ids):
    arguments = ("--k", 3, "--probes", 8, "--rerank", shop / "items.parquet", "--out", "found.parquet")
    assert run("search", shop / "tok", ids, shop / "queries.parquet", *arguments) == 0
    x, queries = vectors(ROWS).astype(np.float64), vectors(12, seed=1)
    true = np.square(x[None] - queries[:, None]).sum(-1)
    found = pq.read_table("found.parquet").to_pydict()
    rows = [int(item[5:]) for item in found["item"]]
    np.testing.assert_allclose(found["distance"], true[np.repeat(np.arange(12), 3), rows], rtol=1e-5)
    assert rows[::3] == true.argmin(axis=1).tolist()


def test_a_file_is_replaced_with_force_only(shop, ids, tmp_path, capsys):
    (tmp_path / "found.csv").write_text("mine")
    command = ("search", shop / "tok", ids, "--like", "item-007", "--out", "found.csv")
    assert run(*command) == 2
    assert "found.csv is there already: name another file, or replace it with --force" in capsys.readouterr().err
    assert (tmp_path / "found.csv").read_text() == "mine"
    assert run(*command, "--force") == 0
    assert pyarrow.csv.read_csv("found.csv").num_rows == 10


def test_rerank_finds_rows_by_their_ids(shop, ids, tmp_path, capsys):
    table = pq.read_table(shop / "items.parquet")
    (tmp_path / "parts").mkdir()  # the items in another order, among others, in two files
    mixed = pa.concat_tables(
        [pq.read_table(shop / "queries.parquet"), table.take(np.random.default_rng(2).permutation(ROWS))]
    )
    pq.write_table(mixed[:100], tmp_path / "parts" / "a.parquet")
    pq.write_table(mixed[100:], tmp_path / "parts" / "b.parquet")
    for name, items in (("one.parquet", shop / "items.parquet"), ("two.parquet", "parts")):
        arguments = ("--k", 3, "--rerank", items, "--out", name)
        assert run("search", shop / "tok", ids, shop / "queries.parquet", *arguments) == 0
    assert pq.read_table("one.parquet").equals(pq.read_table("two.parquet"))
    assert "note: 12 rows of parts are of no item of" in capsys.readouterr().err
    pq.write_table(table[2:], tmp_path / "few.parquet")
    assert run("search", shop / "tok", ids, "--like", "item-007", "--rerank", "few.parquet") == 2
    assert "few.parquet lacks 2 of the 300 items of" in capsys.readouterr().err


def test_mistakes_are_one_line(shop, ids, tmp_path, capsys):
    np.save(tmp_path / "narrow.npy", np.zeros((2, 3), np.float32))
    for arguments, told in (
        ((), "name a table of vectors, or --like ITEM"),
        ((shop / "queries.parquet", "--like", "item-001"), "two things"),
        (("--like", "plum"), "ids.parquet: --like: the index lacks 1 item of 1; its ids are like item-"),
        (("--like", "plum"), "the first is plum: correct it"),
        (("narrow.npy",), "narrow.npy: the array has vectors of 3 numbers, the tokenizer was fitted on "),
        ((shop / "queries.parquet", "--out", "found.txt"), "ends in .parquet, .csv, .jsonl"),
        ((shop / "queries.parquet", "--rerank", shop / "queries.parquet"), "queries.parquet has no item of"),
    ):
        assert run("search", shop / "tok", ids, *arguments) == 2
        error = capsys.readouterr().err.strip()
        assert told in error
        assert "\n" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["narrow.npy"]
