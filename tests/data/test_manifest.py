"""What a file of IDs says of itself is checked when it is read: against itself, the rows, and their content."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq import __version__
from ghrq.data.tables import TableLayout, manifest, open_codes, open_writer
from ghrq.system.errors import UserError

NAMES = ["apple", "", "pëar", "nail", "plum"]
CODES = np.array([[0, 1, 0], [0, 1, 1], [3, 3, 0], [0, 2, 0], [1, 2, 0]], np.int32)
ABOUT = manifest.describe("abc", "append", [4, 4, 2])


def write(path, retired=2, ids=NAMES, name="sku"):
    layout = TableLayout(name, "codes", 3, np.int32, len(ids) - retired, ABOUT, bool(retired))
    ids, live = pa.array(ids), len(ids) - retired
    with open_writer(path, layout) as writer:
        writer.write(ids[:live], CODES[:live])
        if retired:
            writer.write(ids[live:], CODES[live:], retired=True)
    return path


def rows(table):
    ids, codes = zip(*table.batches(2), strict=True)
    return pa.chunked_array(ids).to_pylist(), np.concatenate(codes)


@pytest.mark.parametrize("ids", [NAMES, [3, -1, 7, 2**60, 0]])
@pytest.mark.parametrize("name", ["sku", "retired", "codes"])
def test_items_in_use_and_retired_ones_read_back(ids, name, tmp_path):
    path = write(tmp_path / "ids.parquet", ids=ids, name=name)
    for retired, part in ((False, slice(3)), (True, slice(3, None))):
        table = open_codes(path, retired=retired)
        found, codes = rows(table)
        assert (table.rows, found) == (len(ids[part]), ids[part])
        np.testing.assert_array_equal(codes, CODES[part])
        assert [item for part in table.ids(2) for item in part.to_pylist()] == found
    about = open_codes(path).manifest
    assert about.items() >= {**ABOUT, "rows": 3, "retired": 2, "version": 1, "ghrq": __version__}.items()
    # Other readers see which is which.
    assert pq.read_table(path)["retired"].to_pylist()[-2:] == [True, True]
    assert pq.read_table(write(tmp_path / "all.parquet", 0, ids)).column_names == ["sku", "codes"]


@pytest.mark.parametrize("ids", [NAMES, [3, -1, 7, 2**60, 0]])
def test_the_checksum_is_of_the_rows_not_of_their_batches(ids):
    def digest(cuts, ids=ids, codes=CODES):
        content = manifest.Content()
        for start, stop in zip([0, *cuts], [*cuts, len(ids)], strict=True):
            content.add(pa.array(ids)[start:stop], codes[start:stop])
        return content.digest()

    assert digest([]) == digest([1, 2]) == digest([4])
    for other in ([*ids[1:], ids[0]], [ids[0], ids[1], ids[2], ids[4], ids[3]]):
        assert digest([], other) != digest([])
    assert digest([], codes=CODES[:, ::-1]) != digest([])
    assert digest([], ["applep", "", "ëar", "nail", "plum"], CODES) != digest([], NAMES, CODES)  # letters move over


def rewrite(path, change=lambda table: table, about=lambda content: content):
    table = pq.read_table(path)
    metadata = about(json.loads(pq.read_metadata(path).metadata[b"ghrq"]))
    changed = change(table).replace_schema_metadata(None if metadata is None else {b"ghrq": json.dumps(metadata)})
    pq.write_table(changed, path)


def edited(**changes):
    return lambda content: {**content, **changes}


@pytest.mark.parametrize(
    ("change", "about", "message"),
    [
        (None, lambda _: None, "has a column 'retired', but its manifest was cut off: another program rewrote it"),
        (None, edited(tokenizer="abd"), "its manifest was cut or edited"),
        (None, edited(rows=4, retired=1), "its manifest was cut or edited"),
        (None, lambda content: {"tokenizer": content["tokenizer"]}, "its manifest was cut or edited"),
        (None, lambda _: {}, "its manifest was cut or edited"),
        (
            None,
            edited(version=2),
            "has version 2 of the manifest, this ghrq reads version 1: use the ghrq",
        ),
        (lambda table: table[1:], None, "it has 4 rows, its manifest says 3 items and 2 retired ones"),
        (lambda table: table.drop_columns("retired"), None, "it has 5 rows, its manifest says 3 items and 2 retired"),
    ],
)
def test_a_cut_or_edited_manifest_is_an_error_with_a_remedy(change, about, message, tmp_path):
    path = write(tmp_path / "ids.parquet")
    rewrite(path, change or (lambda table: table), about or (lambda content: content))
    with pytest.raises(UserError, match=message) as error:
        open_codes(path)
    assert str(path) in str(error.value)
    assert "again" in str(error.value) or "newer" in str(error.value)


@pytest.mark.parametrize("retired", [False, True])
def test_edited_rows_are_found_after_the_last_one(retired, tmp_path):
    def swap(table):
        order = [0, 1, 2, 4, 3] if retired else [1, 0, 2, 3, 4]
        return table.set_column(0, "sku", table["sku"].take(order))

    path = write(tmp_path / "ids.parquet")
    rewrite(path)  # the same rows by another program
    rows(open_codes(path, retired=retired))
    rewrite(path, swap)
    rows(open_codes(path, retired=not retired))
    with pytest.raises(UserError, match=r"ids.parquet was edited: its rows have another checksum .*; fetch the file"):
        rows(open_codes(path, retired=retired))


def test_parts_of_a_table_share_the_tokenizer_only(tmp_path):
    write(tmp_path / "a.parquet", 0)
    write(tmp_path / "b.parquet", 0)
    table = open_codes(tmp_path)
    assert (table.rows, table.manifest) == (10, ABOUT)
    rows(table)
    for part in "ab":
        write(tmp_path / f"{part}.parquet", 2)
    with pytest.raises(UserError, match="has retired items, which a part of a table cannot have: name it alone"):
        open_codes(tmp_path)
