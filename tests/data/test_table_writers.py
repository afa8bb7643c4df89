"""Tables are written whole or not at all, read back as they were, and neither takes memory for the whole."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq.data.tables import TableLayout, manifest, open_codes, open_table, open_writer
from ghrq.system.errors import UserError

# --- writing -------------------------------------------------------------------------------------------------

AWKWARD = ['a "quoted" one', "back\\slash", "new\nline, tab\t\x01", "é → 日本", "", "42"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy"])
@pytest.mark.parametrize("ids", [AWKWARD, [3, 1, -4, 10**17, 5, 9]])
def test_what_is_written_reads_back(suffix, ids, tmp_path):
    path = tmp_path / f"ids{suffix}"
    codes = np.arange(18, dtype=np.int32).reshape(6, 3)
    with open_writer(path, TableLayout('the "id"', "codes", 3, np.int32, 6)) as writer:
        writer.write(pa.array(ids[:4]), codes[:4])
        assert not path.exists()
        writer.write(pa.array(ids[4:]), codes[4:])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    column = {".csv": "code_*", ".npy": None}.get(suffix, "codes")
    table = open_table(path, column, None if suffix == ".npy" else 'the "id"', dtype=np.int32)
    (batch,) = table.batches(100)
    np.testing.assert_array_equal(batch.vectors, codes)
    assert batch.ids.to_pylist() == (list(range(6)) if suffix == ".npy" else ids)
    again = open_codes(path)
    assert (again.id_name, again.rows, again.dim) == (table.id_name, 6, 3)
    np.testing.assert_array_equal(next(again.batches(6)).vectors, codes)
    if suffix == ".jsonl":
        first = json.loads(path.read_text().splitlines()[0])
        assert first == {'the "id"': ids[0], "codes": [0, 1, 2]}
    if suffix == ".parquet":
        assert pq.read_schema(path).field("codes").type == pa.list_(pa.int32(), 3)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy"])
def test_a_failure_leaves_nothing_and_keeps_the_old(suffix, tmp_path):
    path = tmp_path / f"ids{suffix}"
    path.write_text("old")

    def stop_half_way():
        with open_writer(path, TableLayout("id", "codes", 2, np.int32, 4)) as writer:
            writer.write(pa.array([1, 2]), np.zeros((2, 2), np.int32))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        stop_half_way()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize(
    "name", ["codes", "code_1", "code_9", "code_x", "embedding", "values", "row", "new\nline", "a,b"]
)
def test_ids_of_any_name_read_back(name, suffix, tmp_path):
    """A name that is also that of the codes becomes ``id``."""
    path, codes, ids = tmp_path / f"ids{suffix}", np.arange(12, dtype=np.int32).reshape(4, 3), ["a", "b", "c", "d"]
    with open_writer(path, TableLayout(name, "codes", 3, np.int32, 4)) as writer:
        writer.write(pa.array(ids), codes)
    table = open_codes(path)
    assert table.id_name == ("id" if name == "codes" or (name, suffix) == ("code_1", ".csv") else name)
    (batch,) = table.batches(100)
    assert batch.ids.to_pylist() == ids
    np.testing.assert_array_equal(batch.vectors, codes)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_ids_above_the_signed_numbers_read_back(suffix, tmp_path):
    path, ids = tmp_path / f"ids{suffix}", [2**64 - 1, 5]
    with open_writer(path, TableLayout("id", "codes", 1, np.int32, 2)) as writer:
        writer.write(pa.array(ids, pa.uint64()), np.zeros((2, 1), np.int32))
    assert [int(name) for name in next(open_codes(path).ids(2)).to_pylist()] == ids


def test_parquet_says_what_it_is(tmp_path):
    about = manifest.describe("abc", "none", [1])
    for suffix, expected in ((".parquet", about), (".csv", {}), (".jsonl", {}), (".npy", {})):
        path = tmp_path / f"ids{suffix}"
        with open_writer(path, TableLayout("id", "codes", 1, np.int32, 1, about)) as writer:
            writer.write(pa.array([1]), np.zeros((1, 1), np.int32))
        found = open_codes(path).manifest
        assert {key: found[key] for key in about if found} == expected
    table = pq.read_table(tmp_path / "ids.parquet")
    for damaged in (b"{", b"[]", b"\xff", b"[" * 100_000):
        pq.write_table(table.replace_schema_metadata({b"ghrq": damaged}), tmp_path / "ids.parquet")
        with pytest.raises(UserError, match=r"ids.parquet: its manifest is damaged.*: fetch the file again"):
            open_codes(tmp_path / "ids.parquet")


def test_parts_of_two_tokenizers_are_no_table(tmp_path):
    for part in ("a", "b"):
        layout = TableLayout("id", "codes", 1, np.int32, 1, manifest.describe(part, "none", [1]))
        with open_writer(tmp_path / f"{part}.parquet", layout) as writer:
            writer.write(pa.array([1]), np.zeros((1, 1), np.int32))
    with pytest.raises(UserError, match=r"b.parquet was made by another tokenizer than .*a.parquet"):
        open_codes(tmp_path)


# --- memory --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_memory_does_not_grow_with_the_table(suffix, tmp_path):
    """A single row group, or one array: 50 MB more on the disk are next to none in memory."""
    script = f"""
        import re
        from ghrq.data.tables import open_table

        for batch in open_table("t.{suffix}").batches(16384):
            pass
        # ru_maxrss would begin with the memory of the process that started this one
        print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
    """
    peaks = []
    for rows in (100_000, 300_000):
        vectors = np.arange(rows * 64, dtype=np.float32).reshape(-1, 64)
        if suffix == "npy":
            np.save(tmp_path / "t.npy", vectors)
        else:
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64)
            pq.write_table(pa.table({"v": flat}), tmp_path / "t.parquet", row_group_size=rows, use_dictionary=False)
        command = [sys.executable, "-c", textwrap.dedent(script)]
        peaks.append(int(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] - peaks[0] < 10_000
