"""Rows are found by their ids: order, others, missing ones, types, and files without ids."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq.data.tables import CODES_COLUMN, match_items, open_codes, open_table
from ghrq.data.tables.match import Matched
from ghrq.system.errors import UserError
from ghrq.system.progress import PlainProgress


def ids_file(path, ids, name="sku"):
    codes = pa.array([[0, row] for row in range(len(ids))], pa.list_(pa.int32()))
    pq.write_table(pa.table({name: ids, CODES_COLUMN: codes}), path)
    return open_codes(path)


def items_file(path, ids, **options):
    columns = {"sku": ids, "x": np.arange(len(ids), dtype=np.float32), "kind": [f"kind {each}" for each in ids]}
    pq.write_table(pa.table(columns), path)
    return open_table(path, "x", "sku", "kind", title_column="kind", **options)


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [7, 1, 2**40, 3]])
def test_the_row_of_each_item(tmp_path, names):
    a, b, c, d = names
    codes, noted = ids_file(tmp_path / "ids.parquet", [b, c, a]), io.StringIO()
    items = items_file(tmp_path / "items.parquet", [a, d, b, c])
    found = match_items(codes, items, progress=PlainProgress(noted))
    assert found.order.tolist() == [2, 3, 0]
    assert found.labels() == [f"kind {each}" for each in (b, c, a)]
    assert found.names(np.array([0, 2])) == [f"kind {b}", f"kind {a}"]
    assert noted.getvalue().startswith("note: 1 row of ")
    same = match_items(codes, items_file(tmp_path / "same.parquet", [b, c, a]), progress=PlainProgress(noted))
    assert same == Matched(same.table, None)
    assert same.labels() == found.labels()
    assert same.names(np.array([1])) == [f"kind {c}"]
    assert noted.getvalue().count("note") == 1


def test_missing_items_are_named_with_a_remedy(tmp_path):
    codes = ids_file(tmp_path / "ids.parquet", list("abcdef"))
    with pytest.raises(
        UserError, match=r"few.parquet lacks 4 of the 6 items of .*, such as 'a', 'c', 'd': give a table"
    ):
        match_items(codes, items_file(tmp_path / "few.parquet", ["b", "e"]))
    with pytest.raises(UserError, match=r"one.parquet lacks 1 of the 6 items of .*ids.parquet, 'c': do this"):
        match_items(codes, items_file(tmp_path / "one.parquet", list("abdef")), "do this")
    with pytest.raises(UserError, match=r"it has sku 'x', for example, and not 'a', 'b', 'c': name the column .* --id"):
        match_items(codes, items_file(tmp_path / "none.parquet", ["x"]))
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"sku": list("abcdef"), "x": [0.0, 1.0, None, 3.0, 4.0, 5.0]}), path)
    with pytest.raises(UserError, match=r"bad.parquet \(without the 1 rows that were skipped\) lacks 1 of the 6"):
        match_items(codes, open_table(path, "x", "sku", on_bad="skip"))


def test_an_item_with_two_rows_is_an_error_and_others_do_not_matter(tmp_path):
    codes = ids_file(tmp_path / "ids.parquet", ["b", "a"])
    with pytest.raises(UserError, match=r"rows 0 and 2 \(counted from 0\) have the same sku 'a'"):
        match_items(codes, items_file(tmp_path / "twice.parquet", ["a", "b", "a"]))
    assert match_items(codes, items_file(tmp_path / "other.parquet", ["a", "b", "c", "c"])).order.tolist() == [1, 0]


def test_whole_numbers_of_text_files_are_found(tmp_path):
    (tmp_path / "items.csv").write_text("sku,x\n12,0.5\n7,0.25\n")
    items = open_table(tmp_path / "items.csv", "x", "sku")
    assert match_items(ids_file(tmp_path / "ids.parquet", [7, 12]), items).order.tolist() == [1, 0]
    text, numbers = ids_file(tmp_path / "text.parquet", ["7", "12"]), items_file(tmp_path / "n.parquet", [3, 12, 7])
    assert match_items(text, numbers).order.tolist() == [2, 1]
    with pytest.raises(UserError, match=r"rows 1 and 2 \(counted from 0\) have the same sku 12"):
        match_items(text, items_file(tmp_path / "twice.parquet", [7, 12, 12]))


def test_without_ids_rows_count(tmp_path):
    for rows in (3, 4):
        np.save(tmp_path / f"codes{rows}.npy", np.zeros((rows, 2), dtype=np.int32))
        np.save(tmp_path / f"items{rows}.npy", np.zeros((rows, 5), dtype=np.float32))
    named = items_file(tmp_path / "items.parquet", ["c", "a", "b"])
    bare = open_table(tmp_path / "items3.npy")
    assert match_items(open_codes(tmp_path / "codes3.npy"), named).order is None
    assert match_items(open_codes(tmp_path / "codes3.npy"), bare).order is None
    assert match_items(ids_file(tmp_path / "ids.parquet", ["a", "b", "c"]), bare).order is None
    for table in (named, bare):
        with pytest.raises(UserError, match=r"codes4.npy has 4 rows, .* 3, and .*codes4.npy has no ids, .* same order"):
            match_items(open_codes(tmp_path / "codes4.npy"), table)
    with pytest.raises(UserError, match=r"ids4.parquet has 4 rows, .*items3.npy 3, and .*items3.npy has no ids"):
        match_items(ids_file(tmp_path / "ids4.parquet", list("abcd")), bare)


def test_row_numbers_that_are_ids_are_rows_of_a_table_without_ids(tmp_path):
    np.save(tmp_path / "items.npy", np.zeros((4, 5), dtype=np.float32))
    kept = ids_file(tmp_path / "ids.parquet", [0, 3, 1], "row")  # 2 was retired
    assert match_items(kept, open_table(tmp_path / "items.npy")).order.tolist() == [0, 3, 1]
    with pytest.raises(UserError, match=r"items.npy lacks 1 of the 2 items of .*more.parquet, 4"):
        match_items(ids_file(tmp_path / "more.parquet", [0, 4], "row"), open_table(tmp_path / "items.npy"))


def test_numbers_of_different_signs_are_different_items(tmp_path):
    codes = ids_file(tmp_path / "ids.parquet", pa.array([2**64 - 1, 2**64 - 2], pa.uint64()))
    with pytest.raises(UserError, match="has no item of"):
        match_items(codes, items_file(tmp_path / "items.parquet", [-1, -2]))
    large = items_file(tmp_path / "large.parquet", pa.array([2**64 - 2, 2**64 - 1], pa.uint64()))
    assert match_items(codes, large).order.tolist() == [1, 0]
