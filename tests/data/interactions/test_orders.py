"""Tables of orders and items in any format: order, duplicates, the 5-core, and rows that cannot be used."""

import io
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ghrq.data.interactions import read_orders
from ghrq.system.errors import UserError
from ghrq.system.progress import PlainProgress

ORDERS = {
    "user_id": ["ann", "bob", "ann", "ann", "bob", "bob", "cat", "ann"],
    "item_id": ["x", "y", "z", "y", "x", "w", "x", "w"],
    "timestamp": [30, 10, 10, 20, 5, 10, 1, 20],
}
WANTED = {"ann": ["z", "y", "w", "x"], "bob": ["x", "y", "w"]}
ITEMS = {
    "item_id": ["w", "x", "y", "z", "new"],
    "title": ["Wax", "Xylitol", "Yarn", "Zinc", "Novelty"],
    "about": ["for hair", None, "", " soft ", "just in"],
    "vector": [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]],
}


def table(path, columns):
    """Write columns in the format of ``path``."""
    arrow = pa.table(columns)
    if path.suffix == ".parquet":
        pa.parquet.write_table(arrow, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(arrow, path)
    else:
        arrow.to_pandas().to_json(path, orient="records", lines=True)
    return path


@pytest.fixture
def orders(tmp_path):
    return table(tmp_path / "orders.parquet", ORDERS)


@pytest.fixture
def items(tmp_path):
    return table(tmp_path / "items.parquet", ITEMS)


def keys(data):
    parts = data.sequence.split(data.lengths.tolist())
    return {user: [data.items[i] for i in part.tolist()] for user, part in zip(data.users, parts, strict=True)}


def changed(columns, name, row, value):
    return columns | {name: [*columns[name][:row], value, *columns[name][row + 1 :]]}


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_orders_are_put_in_time_order(tmp_path, ending):
    # Equal times stay in the order of the rows; one order is too few.
    assert keys(read_orders(table(tmp_path / f"orders.{ending}", ORDERS))) == WANTED


def test_paths_may_be_texts(tmp_path, orders, items):
    np.save(tmp_path / "vectors.npy", np.array(ITEMS["vector"], dtype=np.float32))
    data = read_orders(str(orders), str(items), embeddings=str(tmp_path / "vectors.npy"))
    assert keys(data) == WANTED
    assert data.vectors.tolist() == ITEMS["vector"]


def test_columns_of_other_names_and_whole_numbers_as_keys(tmp_path):
    columns = {
        "who": [7, 7, 7, 8, 8, 8],
        "what": pa.array(["a", "b", "a", "b", "b", "c"]).dictionary_encode(),
        "when": [3.5, 2.5, 1.5, 1.0, 2.0, 3.0],
    }
    data = read_orders(table(tmp_path / "t.parquet", columns), user="who", item="what", time="when")
    assert keys(data) == {"7": ["a", "b", "a"], "8": ["b", "b", "c"]}


MOMENTS = [datetime(2024, 1, 31, 10) - timedelta(hours=7 * i) for i in range(3)]


@pytest.mark.parametrize(
    "times",
    [
        MOMENTS,
        [moment.replace(tzinfo=UTC) for moment in MOMENTS],
        [str(moment) for moment in MOMENTS],
        [f"{moment.isoformat()}Z" for moment in MOMENTS],
        ["2024-01-31T10:00:00+02:00", "2024-01-31T10:00:00+03:00", "2024-01-31T10:00:00+04:00"],
        [date(2024, 3, 1), date(2024, 2, 29), date(2023, 12, 31)],
        ["30", "9", "1e-3"],
        [2**62 + 2, 2**62 + 1, 2**62],
        [str(2**62 + 2), str(2**62 + 1), str(2**62)],
        pa.array([2**64 - 1, 2**63, 1], pa.uint64()),
        pa.array([2**60 + 3, 2**60 + 2, 2**60 + 1], pa.timestamp("ns")),
        pa.array([2**60 + 3, 2**60 + 2, 2**60 + 1], pa.timestamp("ns", "Europe/Berlin")),
        ["2024-01-31 10:15:00.123456789", "2024-01-31 10:15:00.123456788", "2024-01-31 10:15:00"],
        ["2024-01-31T10:15:00.123456789Z", "2024-01-31T10:15:00.123456788Z", "2024-01-31T10:15:00Z"],
        pa.array([3, 2, -(2**31)], pa.date32()),
        pa.array([2 * 86_400_000, 86_400_000, 0], pa.date64()),
    ],
    ids=[
        "moments",
        "zone",
        "text",
        "text with Z",
        "offsets",
        "dates",
        "numbers as text",
        "large numbers",
        "large numbers as text",
        "uint64",
        "ns",
        "ns and zone",
        "ns as text",
        "ns as text with Z",
        "date32",
        "date64",
    ],
)
def test_times_of_all_kinds(tmp_path, times):
    columns = {"user_id": ["u"] * 3, "item_id": ["new", "middle", "old"], "timestamp": times}
    assert keys(read_orders(table(tmp_path / "t.parquet", columns))) == {"u": ["old", "middle", "new"]}


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity"])
def test_times_that_are_not_finite_are_refused_or_left_out(tmp_path, value):
    path = table(tmp_path / "orders.csv", ORDERS | {"timestamp": [value, *map(str, ORDERS["timestamp"][1:])]})
    message = rf"orders.csv, row 0 \(counted from 0\): column 'timestamp' is '{value}', expected a finite number"
    both(path, message, "left out 1 of 8 rows, the first is row 0", WANTED | {"ann": ["z", "y", "w"]})
    if value != "nan":  # in a column of numbers, NaN is an empty cell
        path = table(tmp_path / "orders.parquet", changed(ORDERS, "timestamp", 0, float(value)))
        both(path, "expected a finite number", "row 0", WANTED | {"ann": ["z", "y", "w"]})


def test_leading_zeros_of_csv_are_kept(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "user_id,item_id,timestamp\n" + "".join(f"01,{item},{i}\n" for i, item in enumerate(("007", "7", "x")))
    )
    assert keys(read_orders(path)) == {"01": ["007", "7", "x"]}


def test_equal_rows_count_once_and_repeats_stay(tmp_path):
    columns = {
        "user_id": ["u"] * 6,
        "item_id": ["a", "b", "a", "a", "b", "c"],
        "timestamp": [1, 1, 1, 2, 1, 0],
    }
    told = io.StringIO()
    data = read_orders(table(tmp_path / "t.parquet", columns), progress=PlainProgress(told))
    assert keys(data) == {"u": ["c", "a", "b", "a"]}
    assert "left out 2 of 6 rows: the same user, item and time as another row" in told.getvalue()


def plain_core(pairs, k):
    while True:
        users, items = ([pair[side] for pair in pairs] for side in (0, 1))
        kept = [p for p in pairs if users.count(p[0]) >= k and items.count(p[1]) >= k]
        if len(kept) == len(pairs):
            return kept
        pairs = kept


@pytest.mark.parametrize("seed", range(4))
def test_the_core_is_that_of_a_plain_loop(tmp_path, seed):
    random = np.random.default_rng(seed)
    pairs = [(f"u{u}", f"i{i}") for u, i in random.integers((40, 30), size=(190, 2))]
    users, items = zip(*pairs, strict=True)
    columns = {"user_id": users, "item_id": items, "timestamp": range(len(pairs))}
    expected = plain_core(pairs, 4)
    assert 0 < len(expected) < len(pairs)
    data = read_orders(table(tmp_path / "t.parquet", columns), core=4)
    found = [(user, item) for user, items in keys(data).items() for item in items]
    assert sorted(found) == sorted(expected)
    assert int(data.counts().min()) >= 4
    assert int(data.lengths.min()) >= 4


def test_items_have_titles_texts_and_vectors(orders, items):
    data = read_orders(orders, items, title="title", text=["title", "about"], vectors="vector")
    assert keys(data) == WANTED
    assert data.items == ITEMS["item_id"]  # with the one that nobody bought
    assert data.titles == ITEMS["title"]
    assert data.texts == ["Wax. for hair", "Xylitol", "Yarn", "Zinc. soft", "Novelty. just in"]
    assert data.vectors.tolist() == ITEMS["vector"]
    assert read_orders(orders, items, title="title").texts == ITEMS["title"]
    assert read_orders(orders, items).texts is None
    # Items that fewer than two users have are left out, also those that nobody has.
    assert read_orders(orders, items, core=2, vectors="vector").vectors.tolist() == ITEMS["vector"][:3]


@pytest.mark.parametrize("ending", ["npy", "parquet", "csv"])
def test_vectors_from_a_file_of_their_own(tmp_path, orders, items, ending):
    path, values = tmp_path / f"vectors.{ending}", np.array(ITEMS["vector"], dtype=np.float32)
    column = None
    if ending == "npy":
        np.save(path, values)
    elif ending == "parquet":  # in another order, with an item more
        rows = [4, 2, 0, 1, 3]
        ids = [ITEMS["item_id"][row] for row in rows]
        table(path, {"item_id": ["more", *ids], "vector": [[9.0, 9.0], *values[rows].tolist()]})
    else:
        table(path, {"item_id": ITEMS["item_id"], "e0": values[:, 0], "e1": values[:, 1]})
        column = "e*"
    assert read_orders(orders, items, vectors=column, embeddings=path).vectors.tolist() == values.tolist()


def both(orders, message, noted, wanted, **options):
    """A bad row is an error, or is left out and noted."""
    with pytest.raises(UserError, match=message):
        read_orders(orders, **options)
    told = io.StringIO()
    data = read_orders(orders, on_bad="skip", progress=PlainProgress(told), **options)
    assert noted in told.getvalue()
    assert keys(data) == wanted
    return data


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("name", ["user_id", "item_id", "timestamp"])
def test_empty_cells_are_refused_or_left_out(tmp_path, name, ending):
    path = table(tmp_path / f"orders.{ending}", changed(ORDERS, name, 0, None))
    message = rf"orders.{ending}, row 0 \(counted from 0\): column '{name}' is empty \(1 of 8 rows\): fix"
    both(path, message, "left out 1 of 8 rows, the first is row 0", WANTED | {"ann": ["z", "y", "w"]})


def test_unknown_items_are_refused_or_left_out(tmp_path, items):
    path = table(tmp_path / "orders.csv", changed(ORDERS, "item_id", 3, "gone"))
    message = r"row 3 \(counted from 0\): the item 'gone' is not in .*items.parquet \(1 of 8 rows\): fix"
    both(path, message, "the item 'gone' is not in", WANTED | {"ann": ["z", "w", "x"]}, items=items)


@pytest.mark.parametrize(
    ("name", "value", "options", "reason"),
    [
        ("item_id", None, {}, "column 'item_id' is empty"),
        ("title", None, {"title": "title"}, "the item has no text in 'title'"),
        ("title", "  ", {"text": ["title"]}, "the item has no text in 'title'"),
        ("vector", None, {"vectors": "vector"}, "column 'vector' has a value missing"),
        ("vector", [0.0, float("nan")], {"vectors": "vector"}, "column 'vector' holds NaN"),
    ],
)
def test_items_without_key_text_or_vector(tmp_path, orders, name, value, options, reason):
    items = table(tmp_path / "items.parquet", changed(ITEMS, name, 3, value))
    with pytest.raises(UserError, match=rf"items.parquet, row 3 \(counted from 0\): {reason}"):
        read_orders(orders, items, **options)
    data = read_orders(orders, items, on_bad="skip", **options)
    assert keys(data) == WANTED | {"ann": ["y", "w", "x"]}
    assert data.items == ["w", "x", "y", "new"]
    if data.vectors is not None:
        assert data.vectors.tolist() == [ITEMS["vector"][row] for row in (0, 1, 2, 4)]


def test_an_item_without_a_vector_in_another_file(tmp_path, orders, items):
    path = table(
        tmp_path / "vectors.parquet", {name: ITEMS[name][:3] + ITEMS[name][4:] for name in ("item_id", "vector")}
    )
    message = r"items.parquet, row 3 \(counted from 0\): the item has no embedding in .*vectors.parquet"
    wanted = WANTED | {"ann": ["y", "w", "x"]}
    both(orders, message, "no embedding", wanted, items=items, embeddings=path)


def test_remedies_name_what_a_recipe_has(tmp_path, orders, items):
    with pytest.raises(UserError, match=r"no column 'other': vectors \(--set data.vectors=…\) takes one of"):
        read_orders(orders, items, vectors="other")
    bad = table(tmp_path / "bad.parquet", changed(ITEMS, "vector", 3, None))
    with pytest.raises(UserError, match=r"leave such rows out with on_bad='skip' \(--set data.on_bad=skip\)"):
        read_orders(orders, bad, vectors="vector")
    with pytest.raises(ValueError, match="on_bad must be one of"):
        read_orders(orders, on_bad="foo")


def test_an_item_that_was_left_out_is_not_called_missing(tmp_path, orders):
    items = table(tmp_path / "items.parquet", changed(ITEMS, "vector", 3, None))
    told = io.StringIO()
    read_orders(orders, items, vectors="vector", on_bad="skip", progress=PlainProgress(told))
    assert re.search(r"the item 'z' is not in .*items.parquet, or was left out of it\n", told.getvalue())


def test_an_item_in_two_rows(tmp_path, orders):
    items = table(tmp_path / "items.parquet", changed(ITEMS, "item_id", 4, "x"))
    data = both(
        orders, "row 4 .*: column 'item_id' has the item 'x', which an earlier row has", "earlier", WANTED, items=items
    )
    assert data.items == ["w", "x", "y", "z"]
    data = read_orders(orders, items, vectors="vector", on_bad="skip")
    assert data.vectors.tolist() == ITEMS["vector"][:4]  # the vector of the first row


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (ORDERS, {"user": "user"}, "has no column 'user': user .--set data.user=….* takes one of user_id"),
        (ORDERS, {"time": "timestamps"}, "did you mean 'timestamp'"),
        (ORDERS | {"user_id": [0.5] * 8}, {}, "column 'user_id' holds double, expected texts or whole numbers"),
        (ORDERS | {"timestamp": [[1]] * 8}, {}, "column 'timestamp' holds list.*, expected times"),
        (
            changed(ORDERS | {"timestamp": ["2024-01-31"] * 8}, "timestamp", 5, "31.1.2024"),
            {},
            r"row 5 \(counted from 0\): column 'timestamp' is '31.1.2024', expected a number or a time such as",
        ),
        ({name: column[:2] for name, column in ORDERS.items()}, {}, "is too small: no user has 3 events, so nothing"),
        (ORDERS, {"core": 5}, "is too small: no user has 5 events and no item has 5, so nothing"),
        (ORDERS, {"core": -1}, "core is -1: expected 0"),
        (ORDERS, {"core": 2.5}, "core is 2.5: expected 0"),
        (ORDERS, {"text": "title"}, "text is 'title', expected a list of columns"),
        (ORDERS, {"item": "user_id"}, "name three different columns"),
        (ORDERS, {"title": "title"}, "need a table of items"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, columns, options, message):
    with pytest.raises(UserError, match=message):
        read_orders(table(tmp_path / "orders.parquet", columns), **options)


@pytest.mark.parametrize("name", ["user_id", "item_id", "timestamp"])
def test_text_that_is_not_utf8(tmp_path, name):
    path = table(tmp_path / "orders.jsonl", ORDERS | {"timestamp": [f"2024-01-{day:02d}" for day in range(1, 9)]})
    value = {"user_id": b"bob", "item_id": b"y", "timestamp": b"2024-01-02"}[name]
    path.write_bytes(path.read_bytes().replace(value, value[:-1] + b"\xff", 1))
    with pytest.raises(UserError, match=rf"orders.jsonl.*column '{name}'"):
        read_orders(path)


def test_bad_files_are_refused(tmp_path, orders, items):
    np.save(tmp_path / "a.npy", np.zeros((4, 2), np.float32))
    with pytest.raises(UserError, match="is an array and has no columns user_id, item_id, timestamp"):
        read_orders(tmp_path / "a.npy")
    with pytest.raises(UserError, match=r"a.npy has 4 rows, expected 5, one for each row of .*items.parquet"):
        read_orders(orders, items, embeddings=tmp_path / "a.npy")
    with pytest.raises(UserError, match="there is no file"):
        read_orders(tmp_path / "nothing.parquet")
    with pytest.raises(UserError, match="is empty"):
        read_orders(table(tmp_path / "e.parquet", {name: column[:0] for name, column in ORDERS.items()}))


def test_the_guide_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    guide = Path(__file__).parents[3] / "docs" / "recommendation.md"
    examples = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = {"customer": random.integers(30, size=400), "sku": random.integers(60, size=400), "ordered_at": range(400)}
    table(tmp_path / "orders.parquet", rows)
    vectors = random.normal(size=(60, 4)).tolist()
    names = [f"Item {sku}" for sku in range(60)]
    table(
        tmp_path / "items.parquet",
        {"sku": range(60), "name": names, "description": [None] * 30 + ["nice"] * 30, "embedding": vectors},
    )
    values = {}
    need_a_model = ("embed_texts", "Recommender", "Tokenizer", "export_onnx")
    for example in examples:
        if not any(name in example for name in need_a_model):
            exec(compile(example, str(guide), "exec"), values)
    out = capsys.readouterr().out
    assert out.startswith("30 users, 60 items, 400 orders\nfollowers {'recall@10': ")
    assert values["data"].texts[30] == "Item 30. nice"
    written = pa.parquet.read_table("users.parquet").to_pylist()
    assert sum(len(row["history"]) for row in written) == 400
    mine = next(row for row in written if row["user_id"] == rows["customer"][0])
    assert mine["history"] == rows["sku"][rows["customer"] == rows["customer"][0]].tolist()
