"""Outputs are checked before the work, and are there whole or not at all."""

import subprocess
import sys
import textwrap

import pytest

from ghrq.data.outputs import check_output, check_page, replacing
from ghrq.data.tables import FORMATS
from ghrq.report.page import Page
from ghrq.system.errors import UserError


def test_a_full_disk_is_one_line(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("/dev/full is Linux's")

    def write():
        with replacing(tmp_path / "ids.npy"), open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    with pytest.raises(UserError, match=r"cannot write .*ids.npy .*No space left"):
        write()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no signal to ask with")
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    """Drafts of the same name whose process is dead; all others stay."""
    script = """
        import os, signal, sys
        from pathlib import Path
        from ghrq.data.outputs import replacing

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
    check_output(tmp_path / "ids.parquet", FORMATS, [items])
    for path, match in [
        (tmp_path / "ids.xlsx", "ends in .parquet, .csv, .jsonl, .npy"),
        (tmp_path / "gone" / "ids.parquet", "there is no folder .*gone: create it first"),
        (items / "ids.parquet", "items.parquet is a file, not a folder"),
        (tmp_path / "sub" / ".." / "items.parquet", "would overwrite the input"),
    ]:
        with pytest.raises(UserError, match=match):
            check_output(path, FORMATS, [items])
    (tmp_path / "is.parquet").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        check_output(tmp_path / "is.parquet", FORMATS)
    with pytest.raises(UserError, match="would overwrite the input"):
        check_output(tmp_path, None, [items])
    with pytest.raises(UserError, match=r"items.parquet is a file: give --out the name of a folder"):
        check_output(items, None)
    if sys.platform.startswith("linux"):
        with pytest.raises(UserError, match=r"cannot write /proc/ids.parquet"):
            check_output(type(tmp_path)("/proc/ids.parquet"), FORMATS)


def test_a_page_replaces_a_page_of_ghrq_only(tmp_path):
    own, other = tmp_path / "own.html", tmp_path / "other.html"
    own.write_text(Page("Mine", "", [], []).html())
    check_page(own)
    other.write_text("<html>somebody's work</html>")
    with pytest.raises(UserError, match=r"other.html is there already, and is no page of ghrq: name another file"):
        check_page(other)
    assert other.read_text() == "<html>somebody's work</html>"
