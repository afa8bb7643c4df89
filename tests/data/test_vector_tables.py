"""Tables of every format: the same rows come out, in constant memory, and every mistake is one line with a remedy."""

import contextlib
import csv
import gzip
import json
import os
import pickle
import re
import shutil
import socket

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq.data.tables import check_distinct, hash_ids, open_codes, open_table, open_writer
from ghrq.data.tables import sources as sources_module
from ghrq.data.tables import text as text_module
from ghrq.data.tables.write import TableLayout
from ghrq.system import memory
from ghrq.system.errors import UserError

ROWS, DIM = 103, 5
IDS = [f"item-{i:03d}" for i in range(ROWS)]


@pytest.fixture(scope="module")
def vectors():
    # Halves of small numbers: exact in every format and type.
    return (np.random.default_rng(0).integers(-40, 40, (ROWS, DIM)) / 2).astype(np.float32)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """So that a hundred rows come in many pieces."""
    monkeypatch.setattr(sources_module, "ROWS_READ", 7)
    monkeypatch.setattr(text_module, "_BLOCK", 400)


def write_parquet(path, vectors, kind, ids=IDS, **more):
    flat = pa.array(vectors.reshape(-1))
    offsets = pa.array(np.arange(0, vectors.size + 1, vectors.shape[1]))
    arrays = {
        "fixed": lambda: pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        "list": lambda: pa.ListArray.from_arrays(offsets.cast(pa.int32()), flat),
        "large": lambda: pa.LargeListArray.from_arrays(offsets, flat),
    }
    pq.write_table(pa.table({"item_id": ids, "embedding": arrays[kind](), **more}), path, row_group_size=10)
    return path


def write_csv(path, vectors, as_list=False, ids=IDS):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="") as file:
        writer = csv.writer(file)
        names = ["embedding"] if as_list else [f"e{i}" for i in range(vectors.shape[1])]
        writer.writerow(["item_id", *names, "title"])
        for name, row in zip(ids, vectors.tolist(), strict=True):
            writer.writerow([name, *([json.dumps(row)] if as_list else row), 'a, "quoted"\nbroken title'])
    return path


def write_jsonl(path, vectors, ids=IDS):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        for name, row in zip(ids, vectors.tolist(), strict=True):
            file.write(json.dumps({"item_id": name, "embedding": row, "more": {"x": 1}}) + "\n\n")
    return path


def make(kind, folder, vectors):
    """The same rows in a format: path and column."""
    match kind:
        case "parquet-fixed-f16":
            return write_parquet(folder / "t.parquet", vectors.astype(np.float16), "fixed"), "embedding"
        case "parquet-list-f32":
            return write_parquet(folder / "t.parquet", vectors, "list"), None
        case "parquet-large-f64":
            return write_parquet(folder / "t.parquet", vectors.astype(np.float64), "large"), "embedding"
        case "parquet-columns":
            columns = {f"e{i}": vectors[:, i] for i in range(DIM)}
            pq.write_table(pa.table({"e": [0] * ROWS, "item_id": IDS, **columns}), folder / "t.parquet")
            return folder / "t.parquet", "e?"
        case "parquet-folder":
            (folder / "parts").mkdir()
            for part in range(3):
                some = slice(part * 40, (part + 1) * 40)
                write_parquet(folder / "parts" / f"{part}.parquet", vectors[some], "fixed", ids=IDS[some])
            return folder / "parts", "embedding"
        case "csv":
            return write_csv(folder / "t.csv", vectors), "e0,e1, e2,e3,e4"
        case "csv-list":
            return write_csv(folder / "t.csv.gz", vectors, as_list=True), "embedding"
        case "jsonl":
            return write_jsonl(folder / "t.jsonl", vectors), "embedding"
        case "jsonl-gz":
            return write_jsonl(folder / "t.jsonl.gz", vectors), None
    raise KeyError(kind)


KINDS = ["parquet-fixed-f16", "parquet-list-f32", "parquet-large-f64", "parquet-columns", "parquet-folder"]
KINDS += ["csv", "csv-list", "jsonl", "jsonl-gz"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_rows(kind, tmp_path, vectors):
    path, column = make(kind, tmp_path, vectors)
    table = pickle.loads(pickle.dumps(open_table(path, column, "item_id")))
    assert (table.rows, table.dim, table.id_name) == (ROWS, DIM, "item_id")
    batches = list(table.batches(25))
    assert [len(batch.vectors) for batch in batches] == [25, 25, 25, 25, 3]
    assert all(batch.vectors.dtype == np.float32 for batch in batches)
    np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), vectors)
    assert [name for batch in batches for name in batch.ids.to_pylist()] == IDS
    assert [name for ids in table.ids(30) for name in ids.to_pylist()] == IDS
    rows = np.array([99, 3, 50, 3, 49])
    np.testing.assert_array_equal(table.take(rows), vectors[rows])
    # Pieces read one without the other are the whole again, in the same batches.
    spans = table.spans(25)
    assert spans[-1][1] == ROWS
    assert (len(spans) > 1) == (kind.startswith("parquet") and kind != "parquet-columns")  # that has one row group
    pieces = [batch for start, stop in spans for batch in table.batches(25, start, stop)]
    assert [batch.ids.to_pylist() for batch in pieces] == [batch.ids.to_pylist() for batch in batches]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f8", "<i4"])
def test_arrays_number_their_rows(dtype, order, tmp_path, vectors):
    vectors = np.round(vectors)
    np.save(tmp_path / "t.npy", np.asarray(vectors.astype(dtype), order=order))
    table = open_table(tmp_path / "t.npy")
    assert (table.rows, table.dim, table.id_name, table.has_ids) == (ROWS, DIM, "row", False)
    np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in table.batches(25)]), vectors)
    assert [i for ids in table.ids(25) for i in ids.to_pylist()] == list(range(ROWS))
    np.testing.assert_array_equal(table.take(np.array([7, 2])), vectors[[7, 2]])
    assert table.spans(50) == [(0, 50), (50, 100), (100, 103)]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [(range(ROWS), list(range(ROWS))), ([f"{i:03d}" for i in range(ROWS)], None), (["NA", *IDS[1:]], None)],
)
def test_ids_of_csv_keep_their_spelling(ids, kept, tmp_path, vectors):
    """Whole numbers become such; leading zeros stay, and NA is a name like any other."""
    table = open_table(write_csv(tmp_path / "t.csv", vectors, ids=list(ids)), "e*", "item_id")
    assert next(table.ids(ROWS)).to_pylist() == (kept or list(ids))


def test_ids_of_json_that_look_like_times_are_text(tmp_path, vectors):
    ids = [f"2020-01-01 00:{i // 60:02d}:{i % 60:02d}" for i in range(ROWS)]
    table = open_table(write_jsonl(tmp_path / "t.jsonl", vectors, ids=ids), "embedding", "item_id")
    assert next(table.ids(ROWS)).to_pylist() == ids


def test_categorical_ids_and_labels(tmp_path, vectors):
    ids = pa.array(IDS).dictionary_encode()
    more = {"sort": pa.array([f"k{i % 3}" for i in range(ROWS)]).dictionary_encode(), "paths": [["a", "b"]] * ROWS}
    path = write_parquet(tmp_path / "t.parquet", vectors, "fixed", ids=ids, **more)
    table = open_table(path, "embedding", "item_id", "sort")
    assert next(table.ids(ROWS)).to_pylist() == IDS
    assert table.labels() == [f"k{i % 3}" for i in range(ROWS)]
    assert open_table(path, "embedding", label_column="paths").labels() == ["a > b"] * ROWS
    pq.write_table(pa.table({"v": [[1.0]], "nested": [[["a"], ["b"]]]}), tmp_path / "nested.parquet")
    with pytest.raises(UserError, match=r"column 'nested' holds list<.*>, which cannot be a label: name another"):
        open_table(tmp_path / "nested.parquet", "v", label_column="nested").labels()
    with pytest.raises(UserError, match="without a column of labels"):
        open_table(path, "embedding").labels()


# --- mistakes ------------------------------------------------------------------------------------------------


def fails(path, match, column="embedding", id_column="item_id", dtype=np.float32):
    """Opening and reading it fails with one line that names the file."""
    with pytest.raises(UserError, match=match) as caught:
        for _ in open_table(path, column, id_column, dtype=dtype).batches(25):
            pass
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message


BAD_ROW = 61


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (
            [1.0, 2.0],
            "has 2 numbers, expected 5 as in other rows: fix or remove that row, or leave such rows out",
        ),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "has 6 numbers"),
        ([], r"has 0 numbers|is '\[\]', expected numbers"),
        (None, "missing or NaN|is '', expected numbers"),
        ([1.0, 2.0, None, 4.0, 5.0], "missing or NaN|expected numbers such as"),
        ([1.0, 2.0, float("nan"), 4.0, 5.0], "NaN or a number that is not finite|missing or NaN"),
        ([1.0, 2.0, 1e39, 4.0, 5.0], "not finite in float32"),
    ],
)
def test_bad_rows_are_named(kind, bad, match, tmp_path, vectors):
    rows = vectors.tolist()
    rows[BAD_ROW] = bad
    path = tmp_path / f"items.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"item_id": IDS, "embedding": pa.array(rows, pa.list_(pa.float64()))}), path)
    elif kind == "jsonl":
        lines = [json.dumps({"item_id": name, "embedding": row}) for name, row in zip(IDS, rows, strict=True)]
        path.write_text("\n".join(lines))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["item_id", "embedding"])
            writer.writerows((i, "" if r is None else json.dumps(r)) for i, r in zip(IDS, rows, strict=True))
    fails(path, rf"row {BAD_ROW} \(counted from 0\): column 'embedding' .*({match})")


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("item-x,1,2,3", r"row 61 \(counted from 0\) cannot be read as CSV \(.*Expected 7 columns, got 4"),
        ("item-x,1,2,oops,4,5,t", r"row 61 \(counted from 0\): column 'e2' is 'oops', expected a number: fix"),
        (f"item-x,1,2,{'o' * 99},4,5,t", r"row 61 .*: column 'e2' is 'o{39}…', expected a number: fix or remove"),
        ("item-x,1,2,,4,5,t", r"row 61 \(counted from 0\): column 'e2' has a value missing or NaN"),
        ("item-x,1,2,nan,4,5,t", r"row 61 \(counted from 0\): column 'e2' has a value missing or NaN"),
        ("item-x,1,2,inf,4,5,t", r"row 61 \(counted from 0\): column 'e2' holds NaN or a number that is not finite"),
    ],
)
def test_bad_lines_of_csv_are_named(line, match, tmp_path):
    lines = ["item_id,e0,e1,e2,e3,e4,title"] + [f"{i},1,2.5,3,4,5,t" for i in IDS]
    lines[BAD_ROW + 1] = line
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    fails(tmp_path / "items.csv", match, column="e*")


def test_a_text_among_the_first_numbers_of_csv_is_named(tmp_path):
    """The first lines decide what a column holds: one text among them does not make it a column of texts."""
    lines = ["sku,title,e0,e1"] + [f"{i},t,1,{i}.5" for i in range(ROWS)]
    lines[1 + 9] = "9,1984,1,abc"
    path = tmp_path / "items.csv"
    path.write_text("\n".join(lines))
    fails(path, r"items.csv, row 9 \(counted from 0\): column 'e1' is 'abc', expected a number: fix", "e*", "sku")
    fails(path, "column 'title' holds string, expected numbers: name another with --column", "e0,title", "sku")
    # A column that is not asked for may hold what it likes.
    lines = ["size,e0,e1"] + ["1,1,2"] * ROWS
    lines[1 + 9] = "XL,1,2"
    path.write_text("\n".join(lines))
    assert open_table(path, "e*").rows == ROWS


@pytest.mark.parametrize("name", ["items.csv", "items.csv.gz"])
@pytest.mark.parametrize(("separator", "called"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_than_the_comma_are_named(separator, called, name, tmp_path):
    opener = gzip.open if name.endswith("gz") else open
    with opener(tmp_path / name, "wt") as file:
        file.write("item_id;e0;e1\nx;0,5;1,5\n".replace(";", separator))
    fails(tmp_path / name, f"has {called} between its columns: the separator has to be a comma", "e*")


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"item_id": "x", "embedding": [1, 2', r"row 61 \(counted from 0\) cannot be read as JSON lines"),
        ('{"item_id": "x", "embedding": ["a", 2]}', r"row 61 .* changed from number to string"),
        ('{"item_id": 5, "embedding": [1, 2, 3, 4, 5]}', r"row 61 .* changed from string to number"),
        ('{"item_id": "x"}', r"row 61 \(counted from 0\): column 'embedding' has a value missing"),
        ('{"embedding": [1, 2, 3, 4, 5]}', r"row 61 \(counted from 0\): column 'item_id' has no id"),
        (
            '{"item_id": "x",\n "embedding": [1, 2, 3, 4, 5]}',
            r"row 61 \(counted from 0\) cannot be read as JSON lines, it has no whole object: put one object on a line",
        ),
    ],
)
def test_bad_lines_of_json_are_named(line, match, tmp_path):
    lines = [json.dumps({"item_id": i, "embedding": [1, 2, 3, 4, 5]}) for i in IDS]
    lines[BAD_ROW] = line
    (tmp_path / "items.jsonl").write_text("\n".join(lines))
    fails(tmp_path / "items.jsonl", match)


@pytest.mark.parametrize(
    "line", ["null", "[1]", '{"item_id": "a"} null', '{"a": "}"', "{" * 30_000, '{"a":' * 30_000 + "}" * 30_000]
)
def test_lines_that_crash_the_parser_of_json_are_refused(line, tmp_path):
    """pyarrow's parser ends the process for some of them."""
    lines = [json.dumps({"item_id": i, "embedding": [1, 2, 3, 4, 5], "t": 'a \\ "[ {'}) for i in IDS]
    lines[BAD_ROW] = line
    (tmp_path / "items.jsonl").write_text("\n".join(lines))
    fails(
        tmp_path / "items.jsonl",
        r"row 61 \(counted from 0\) cannot be read as JSON lines, .*: put one object on a line",
    )


def test_missing_columns_name_the_nearest(tmp_path, vectors):
    path = write_parquet(tmp_path / "items.parquet", vectors, "fixed", title=["t"] * ROWS, price=[1.0] * ROWS)
    fails(path, r"'embeding': did you mean 'embedding'\? --column takes one of item_id, embedding, title", "embeding")
    fails(path, "no column 'ITEM_ID': did you mean 'item_id'", id_column="ITEM_ID")
    fails(path, r"no column of .* matches 'v_\*'", column="v_*")
    fails(path, "no column 'pric': did you mean 'price'", column="price,pric")
    fails(path, "column 'embedding' holds fixed_size_list.*expected numbers", column="price,embedding")
    fails(path, "column 'title' is 't', expected numbers such as \\[0.1, 0.2\\]", column="title")
    fails(path, "ids have to be text or whole numbers, column 'price' holds double", id_column="price")
    pq.write_table(pa.table({"a": [[1.0]], "b": [[2.0]], "c": [True]}), tmp_path / "two.parquet")
    fails(tmp_path / "two.parquet", "several columns of vectors, a, b: say where", column=None, id_column=None)
    fails(tmp_path / "two.parquet", "column 'c' holds bool, expected a list of numbers", column="c", id_column=None)
    pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), tmp_path / "none.parquet")
    fails(
        tmp_path / "none.parquet",
        "no column of lists: say where .* --column, one of x, y, or several .* 'emb_\\*'",
        None,
        None,
    )
    pq.write_table(pa.table({f"emb_{i}": [1.0] for i in range(10)}), tmp_path / "many.parquet")
    fails(tmp_path / "many.parquet", "no column 'emb_x': --column takes one of", "emb_x", None)
    pq.write_table(pa.table({f"embedding_{i}": [1.0] for i in range(10)}), tmp_path / "many.parquet")
    fails(tmp_path / "many.parquet", "no column 'embedding_x': --column takes one of", "embedding_x", None)


@pytest.mark.parametrize("name", ["e.parquet", "e.csv", "e.jsonl", "e.npy", "header.csv", "blank.jsonl"])
def test_empty_tables(name, tmp_path):
    path = tmp_path / name
    match name:
        case "e.parquet":
            pq.write_table(pa.table({"embedding": pa.array([], pa.list_(pa.float32()))}), path)
        case "e.npy":
            np.save(path, np.zeros((0, 4), np.float32))
        case "header.csv":
            path.write_text("item_id,embedding\n")
        case _:
            path.write_text("\n\n" if name == "blank.jsonl" else "")
    fails(path, "(?i)empty", None if name == "e.npy" else "embedding", None)


def test_damaged_and_foreign_files(tmp_path, vectors):
    path = write_parquet(tmp_path / "items.parquet", vectors, "list")
    whole = path.read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        fails(path, "cannot be read as parquet .*: it is damaged or cut off: write or copy it again")
    path.write_bytes(whole[:200] + bytes(300) + whole[500:])
    fails(path, "cannot be read as parquet")
    np.save(tmp_path / "a.npy", vectors)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-9])
    fails(tmp_path / "a.npy", "cannot be read as a NumPy array", None, None)
    np.save(tmp_path / "b.npy", vectors[0])
    fails(tmp_path / "b.npy", r"shape \(5,\) and type float32, expected rows of numbers", None, None)
    np.save(tmp_path / "c.npy", np.array([["a"]]))
    fails(tmp_path / "c.npy", "type <U1", None, None)
    np.save(tmp_path / "o.npy", vectors.astype(object), allow_pickle=True)
    fails(tmp_path / "o.npy", "o.npy holds Python objects, expected rows of numbers .*: save it as numbers", None, None)
    np.save(tmp_path / "d.npy", vectors)
    fails(tmp_path / "d.npy", "has no columns: leave out --id item_id", None)
    packed = write_jsonl(tmp_path / "t.jsonl.gz", vectors)
    packed.write_bytes(packed.read_bytes()[:-20])
    fails(packed, "cannot be read as JSON lines")
    (tmp_path / "latin.csv").write_bytes("item_id,embedding\ncaf\xe9,1\n".encode("latin-1"))
    fails(tmp_path / "latin.csv", r"latin.csv, row 0 \(counted from 0\) is not text in UTF-8: save the file as UTF-8")
    (tmp_path / "latin.csv").write_bytes("caf\xe9,embedding\na,1\n".encode("latin-1"))
    fails(tmp_path / "latin.csv", "latin.csv is not text in UTF-8: save the file as UTF-8")
    for name, line in (("wide.csv", "item_id,embedding\n"), ("wide.jsonl", '{"item_id": "a", "embedding": [1]}\n')):
        for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
            (tmp_path / name).write_bytes(line.encode(encoding))
            fails(tmp_path / name, f"{name} is text in UTF-16, expected UTF-8: save the file as UTF-8")
    (tmp_path / "t.xlsx").write_bytes(b"x")
    fails(tmp_path / "t.xlsx", "expected .parquet, .npy, .csv")
    fails(tmp_path / "gone.parquet", "there is no file")
    (tmp_path / "folder").mkdir()
    fails(tmp_path / "folder", "has no \\*.parquet in it")
    write_parquet(tmp_path / "folder" / "1.parquet", vectors, "list")
    write_parquet(tmp_path / "folder" / "2.parquet", vectors, "fixed")
    with pytest.raises(UserError, match=r"2.parquet has other columns than .*1.parquet"):
        open_table(tmp_path / "folder", "embedding")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["replaced", "written to"])
def test_a_table_that_changes_while_it_is_read_is_refused(kind, change, tmp_path, vectors):
    """Even if the other file has as many rows: ids and vectors would not belong together."""
    path, column = make(kind, tmp_path, vectors)
    table = open_table(path, column, "item_id")
    batches = table.batches(25)
    next(batches)
    part = path / "2.parquet" if path.is_dir() else path
    if change == "replaced":
        shutil.copyfile(part, tmp_path / "other")
        os.replace(tmp_path / "other", part)
    else:
        part.touch()
    for reading in (batches, table.batches(25), table.ids(25)):
        with pytest.raises(UserError, match="was changed while it was read: run the command again when nothing writes"):
            list(reading)


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".csv", ".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
def test_only_files_are_opened(kind, suffix, tmp_path):
    """A pipe would block for ever."""
    path = tmp_path / f"items{suffix}"
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
            server.bind(path.name)
    fails(path, f"{path.name} is {kind}, expected a file: write the data to a file first")


def test_no_flipped_bit_of_a_written_parquet_passes(tmp_path):
    """Wherever in the data it is: the rows are the same, or it is an error. Page headers have no checksum."""
    path, codes = tmp_path / "ids.parquet", np.arange(3000, dtype=np.int32).reshape(-1, 3) % 7
    with open_writer(path, TableLayout("id", "codes", 3, np.int32, 1000)) as writer:
        writer.write(pa.array([f"item-{i}" for i in range(1000)]), codes)
    whole = path.read_bytes()
    complaints = []
    for place in range(4, len(whole) - int.from_bytes(whole[-8:-4], "little") - 8, 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            (batch,) = open_codes(path).batches(1000)
        except UserError as error:
            complaints.append(str(error))
        else:
            np.testing.assert_array_equal(batch.vectors, codes)
            assert batch.ids.to_pylist() == [f"item-{i}" for i in range(1000)]
    assert sum("checksum" in complaint for complaint in complaints) > 10
    assert all(re.fullmatch("[^\n]*write or copy it again", complaint) for complaint in complaints)


def test_codes_are_whole_numbers(tmp_path):
    write_parquet(tmp_path / "ids.parquet", np.arange(ROWS * DIM, dtype=np.int64).reshape(-1, DIM), "list")
    table = open_table(tmp_path / "ids.parquet", "embedding", dtype=np.int32)
    values = np.concatenate([batch.vectors for batch in table.batches(20)])
    assert values.dtype == np.int32
    np.testing.assert_array_equal(values.reshape(-1), np.arange(ROWS * DIM))
    with pytest.raises(UserError, match="no column 'codes' but item_id, embedding: expected a file of 'ghrq encode'"):
        open_codes(tmp_path / "ids.parquet")
    for number in (0.5, 2.0**31, float("nan")):
        write_parquet(tmp_path / "bad.parquet", np.full((ROWS, DIM), number), "list")
        fails(tmp_path / "bad.parquet", "row 0 .*holds a number that is not a code", dtype=np.int32)


def test_columns_of_the_same_name(tmp_path, vectors):
    """An error if they are asked for; others do no harm."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIM)
    arrays = [pa.array(IDS), pa.array(IDS), lists, pa.array(vectors[:, 0]), pa.array(vectors[:, 1])]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, ["item_id", "item_id", "embedding", "x_1", "x_1"]), path)
    fails(path, "t.parquet has 2 columns called 'item_id': rename all but one of them")
    for column in ("x_1", "x_*", "x_1,x_1"):
        fails(path, "has 2 columns called 'x_1': rename all but one", column, None)
    np.testing.assert_array_equal(next(open_table(path, "embedding").batches(ROWS)).vectors, vectors)
    pq.write_table(pa.Table.from_arrays([lists, lists], ["e", "e"]), path)
    fails(path, "several columns of vectors, e, e: say where", None, None)
    fails(path, "has 2 columns called 'e'", "e", None)
    (tmp_path / "t.csv").write_text("id,id,a,b\n1,2,3,4\n")
    fails(tmp_path / "t.csv", "t.csv has 2 columns called 'id'", "a,b", "id")
    assert open_table(tmp_path / "t.csv", "a,b").rows == 1


def test_bytes_that_are_no_text(tmp_path, vectors):
    """Parquet does not check that text is UTF-8."""
    offsets = pa.py_buffer(np.arange(ROWS + 1, dtype=np.int32) * 3)
    data = b"".join(b"\xff\xfe\xfd" if i == BAD_ROW else b"%03d" % i for i in range(ROWS))
    ids = pa.Array.from_buffers(pa.string(), ROWS, [None, offsets, pa.py_buffer(data)])
    path = write_parquet(tmp_path / "t.parquet", vectors, "fixed", ids=ids, text=ids)
    fails(path, r"row 61 \(counted from 0\): column 'item_id' is not text in UTF-8")
    fails(path, r"row 61 \(counted from 0\): column 'text' is '.*', expected numbers such as", "text", None)
    with pytest.raises(UserError, match="column 'text' is not text in UTF-8: save the file as UTF-8"):
        open_table(path, "embedding", label_column="text").labels()
    table = open_table(path, "embedding", "item_id", on_bad="skip")
    assert table.skipped == [(BAD_ROW, "\ufffd\ufffd\ufffd", "column 'item_id' is not text in UTF-8")]
    (tmp_path / "t.csv").write_bytes(b"item_id,embe\xa1\n1,2\n")
    fails(tmp_path / "t.csv", "t.csv is not text in UTF-8: save the file as UTF-8", None, None)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 4)}",
        "{[]: 1}",
        "-" * 9000 + "1",
        "(" * 9000,
    ],
)
def test_headers_of_arrays_are_not_trusted(header, tmp_path):
    text = header.encode() + b" \n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)
    (tmp_path / "t.npy").write_bytes(content)
    fails(tmp_path / "t.npy", "t.npy cannot be read as a NumPy array .*: it is damaged", None, None)


def test_lists_that_do_not_fit_into_memory_are_refused_unread(tmp_path, vectors, monkeypatch):
    path = write_parquet(tmp_path / "t.parquet", vectors, "list")
    monkeypatch.setattr(memory, "available", lambda: 100)
    fails(path, "t.parquet: reading 7 rows would take .* of memory, 0.0 GB are free: write it with shorter lists")


# --- bad rows that are left out --------------------------------------------------------------------------------

BAD = {0: "missing", 7: "NaN", 8: "NaN", 60: "has 2 numbers", 61: "has no id", 102: "not finite"}


def with_bad_rows(folder, vectors, kind):
    rows, ids = vectors.tolist(), list(IDS)
    rows[0], rows[60], ids[61] = None, rows[60][:2], None
    rows[7][2] = rows[8][0] = float("nan")
    rows[102][4] = float("inf")
    path = folder / f"items.{kind}"
    if kind == "parquet":
        arrays = {"item_id": ids, "embedding": pa.array(rows, pa.list_(pa.float32()))}
        pq.write_table(pa.table(arrays), path, row_group_size=10)
    else:
        lines = [json.dumps({"item_id": name, "embedding": row}) for name, row in zip(ids, rows, strict=True)]
        path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("with_ids", [True, False])
def test_bad_rows_are_left_out(kind, with_ids, tmp_path, vectors):
    path = with_bad_rows(tmp_path, vectors, kind)
    table = pickle.loads(pickle.dumps(open_table(path, "embedding", "item_id" if with_ids else None, on_bad="skip")))
    bad = [row for row in BAD if with_ids or row != 61]
    good = np.setdiff1d(np.arange(ROWS), bad)
    assert [row.row for row in table.skipped] == bad
    assert all(BAD[row.row] in row.reason for row in table.skipped)
    assert [row.id for row in table.skipped] == ["" if not with_ids or row == 61 else IDS[row] for row in bad]
    assert (table.rows, table.dim) == (len(good), DIM)
    names = [IDS[row] if with_ids else row for row in good]
    for size in (1, 25, 1000):
        batches = list(table.batches(size))
        np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), vectors[good])
        assert [name for batch in batches for name in batch.ids.to_pylist()] == names
        assert [name for ids in table.ids(size) for name in ids.to_pylist()] == names
        pieces = [batch for start, stop in table.spans(size) for batch in table.batches(size, start, stop)]
        assert [batch.ids.to_pylist() for batch in pieces] == [batch.ids.to_pylist() for batch in batches]
    np.testing.assert_array_equal(table.take(np.array([0, 50, 3])), vectors[good[[0, 50, 3]]])
    np.testing.assert_array_equal(table.row_numbers(np.arange(table.rows)), good)


def test_a_table_of_bad_rows_only(tmp_path, vectors):
    path = write_parquet(tmp_path / "t.parquet", np.full_like(vectors, np.nan), "fixed")
    with pytest.raises(UserError, match=r"t.parquet has no row that can be used, row 0 because column 'embedding'"):
        open_table(path, "embedding", on_bad="skip")


def test_duplicates_are_numbered_as_in_the_file(tmp_path, vectors):
    path = with_bad_rows(tmp_path, vectors, "parquet")
    changed = pq.read_table(path).to_pydict()
    changed["item_id"][70] = IDS[3]
    pq.write_table(pa.table({**changed, "embedding": pa.array(changed["embedding"], pa.list_(pa.float32()))}), path)
    table = open_table(path, "embedding", "item_id", on_bad="skip")
    with pytest.raises(UserError, match=r"rows 3 and 70 \(counted from 0\) have the same item_id 'item-003'"):
        check_distinct(table, np.concatenate([hash_ids(ids) for ids in table.ids(30)]))


# --- duplicates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [True, False])
def test_duplicate_ids_are_named(as_text, tmp_path, vectors):
    ids = [f"id{i}" if as_text else i * 2**40 - 5 for i in range(ROWS)]
    for pair in (None, (4, 90), (0, 1)):
        mine = list(ids)
        if pair:
            mine[pair[1]] = mine[pair[0]]
        table = open_table(write_parquet(tmp_path / "t.parquet", vectors, "fixed", ids=mine), "embedding", "item_id")
        hashes = np.concatenate([hash_ids(part) for part in table.ids(10)])
        if pair is None:
            check_distinct(table, hashes, 10)
            continue
        named = rf"rows {pair[0]} and {pair[1]} \(counted from 0\) have the same item_id {mine[pair[0]]!r}: remove"
        with pytest.raises(UserError, match=named):
            check_distinct(table, hashes, 10)


def test_equal_hashes_of_distinct_ids_are_looked_at_again(tmp_path, vectors):
    table = open_table(write_parquet(tmp_path / "t.parquet", vectors, "fixed"), "embedding", "item_id")
    hashes = np.concatenate([hash_ids(part) for part in table.ids(10)])
    hashes[7] = hashes[50]  # as if two ids had met by chance
    check_distinct(table, hashes, 10)


def test_hashes_tell_texts_apart():
    near = ["", "\0", "\0\0", "a", "aa", "ab", "ba", "a" * 500, "a" * 499 + "b", "é", "e"]
    texts = pa.array(near + [f"{i}" for i in range(50_000)])
    hashes = hash_ids(texts)
    assert len(np.unique(hashes)) == len(texts) == len(set(texts.to_pylist()))
    np.testing.assert_array_equal(hashes[5:900], hash_ids(texts[5:900]))  # a slice of a longer array
    np.testing.assert_array_equal(hashes[:8], hash_ids(pa.array(near[:8])))
    assert len(hash_ids(texts[:0])) == 0
