"""Tables are written whole or not at all, read back as they were, and neither takes memory for the whole."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ghrq.data.tables import check_output, open_codes, open_table, open_writer
from ghrq.data.tables.write import Layout, replacing
from ghrq.system.errors import UserError

# --- writing -------------------------------------------------------------------------------------------------

AWKWARD = ['a "quoted" one', "back\\slash", "new\nline, tab\t\x01", "é → 日本", "", "42"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".npy"])
@pytest.mark.parametrize("ids", [AWKWARD, [3, 1, -4, 10**17, 5, 9]])
def test_what_is_written_reads_back(suffix, ids, tmp_path):
    path = tmp_path / f"ids{suffix}"
    codes = np.arange(18, dtype=np.int32).reshape(6, 3)
    with open_writer(path, Layout('the "id"', "codes", 3, np.int32, 6)) as writer:
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
        with open_writer(path, Layout("id", "codes", 2, np.int32, 4)) as writer:
            writer.write(pa.array([1, 2]), np.zeros((2, 2), np.int32))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        stop_half_way()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_is_one_line(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("/dev/full is Linux's")

    def write():
        with replacing(tmp_path / "ids.npy"), open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    with pytest.raises(UserError, match=r"cannot write .*ids.npy .*No space left"):
        write()


@pytest.mark.skipif(sys.platform == "win32", reason="has no signal to ask with")
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    """Drafts of the same name whose process is dead; all others stay."""
    script = """
        import os, signal, sys
        from pathlib import Path
        from ghrq.data.tables import replacing

        names = map(Path, ("o.parquet", "p.parquet", "f"))
        with replacing(next(names)) as draft, replacing(next(names)) as other, replacing(next(names)) as folder:
            draft.write_text("half")
            other.write_text("half")
            folder.mkdir()
            (folder / "file").write_text("half")
            if sys.argv[1] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            print("ready", flush=True)
            input()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run([*command, "die"], cwd=tmp_path, check=False)
    dead = {entry.name for entry in tmp_path.iterdir()}
    assert len(dead) == 3
    (tmp_path / ".o.parquet.elsewhere.99999999.tmp").write_text("of another machine")
    (tmp_path / ".o.parquet.tmp").write_text("of something else")
    with subprocess.Popen([*command, "wait"], cwd=tmp_path, stdin=-1, stdout=-1, text=True) as living:
        assert living.stdout.readline() == "ready\n"
        kept = {entry.name for entry in tmp_path.iterdir()}
        assert not kept & dead
        assert len(kept) == 5
        with replacing(tmp_path / "o.parquet") as draft:
            draft.write_text("whole")
        assert {entry.name for entry in tmp_path.iterdir()} == {*kept, "o.parquet"}
        living.communicate("\n")
    assert (tmp_path / "o.parquet").read_text() == "half"


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    out = tmp_path / "tok"
    for text in ("first", "second"):
        with replacing(out) as temporary:
            temporary.mkdir()
            (temporary / "file").write_text(text)
        assert (out / "file").read_text() == text
        assert [entry.name for entry in tmp_path.iterdir()] == ["tok"]


def test_outputs_are_checked_before_the_work(tmp_path):
    items = tmp_path / "items.parquet"
    items.write_text("")
    check_output(tmp_path / "ids.parquet", inputs=[items])
    for path, match in [
        (tmp_path / "ids.xlsx", "ends in .parquet, .csv, .jsonl, .npy"),
        (tmp_path / "gone" / "ids.parquet", "there is no folder .*gone: create it first"),
        (items / "ids.parquet", "items.parquet is a file, not a folder"),
        (tmp_path / "sub" / ".." / "items.parquet", "would overwrite the input"),
    ]:
        with pytest.raises(UserError, match=match):
            check_output(path, inputs=[items])
    (tmp_path / "is.parquet").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        check_output(tmp_path / "is.parquet")
    with pytest.raises(UserError, match="would overwrite the input"):
        check_output(tmp_path, None, [items])
    if sys.platform.startswith("linux"):
        with pytest.raises(UserError, match=r"cannot write /proc/ids.parquet"):
            check_output(type(tmp_path)("/proc/ids.parquet"))


# --- memory --------------------------------------------------------------------------------------------------


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
