"""Atomic writes: whatever ends the process, the old or the new content is there whole."""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ghrq.system import files
from ghrq.system.errors import UserError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no fork, and no links for everybody")


def make(folder: Path, text: str) -> None:
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(text)


def content(folder: Path) -> set[str]:
    assert {path.name for path in folder.iterdir()} == {"one", "two"}
    return {path.read_text() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def replace(path: Path, text: str = "new") -> None:
    with files.draft(path) as draft:
        make(draft, text)


# --- the process ends while a folder is replaced -------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that can exchange two folders, and one that cannot."""
    if not request.param:
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    elif sys.platform != "linux":
        pytest.skip("known to work on Linux")


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int, action: Callable[[], Any]) -> None:
    """Call ``action`` before (even ``at``) or after (odd) one of the calls that rename, exchange or remove."""
    count = itertools.count()

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **options: Any) -> Any:
            if next(count) == at:
                action()
            result = function(*given, **options)
            if next(count) == at:
                action()
            return result

        return wrapped

    for owner, name in ((os, "replace"), (os, "rename"), (files, "_exchange"), (files.shutil, "rmtree")):
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


@pytest.mark.usefixtures("system")
def test_killed_anywhere_a_folder_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    found, at, done = [], 0, False
    while not done:
        place = tmp_path / str(at)
        place.mkdir()
        make(place / "tok", "old")
        child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                interrupt(patch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
                replace(place / "tok")
                os._exit(0)
        done = os.waitpid(child, 0)[1] == 0
        files.restore(place / "tok")
        found.append(content(place / "tok"))
        replace(place / "tok", "third")
        assert content(place / "tok") == {"third"}
        assert names(place) == ["tok"]
        at += 1
    assert found[0] == {"old"}
    assert found[-1] == {"new"}
    assert all(each in ({"old"}, {"new"}) for each in found)
    assert at > 5


@pytest.mark.usefixtures("system")
def test_interrupted_anywhere_nothing_is_lost(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    found, at, done = [], 0, False
    while not done:
        place = tmp_path / str(at)
        place.mkdir()
        make(place / "tok", "old")
        with pytest.MonkeyPatch.context() as patch:
            interrupt(patch, at, stop)
            try:
                replace(place / "tok")
                done = True
            except KeyboardInterrupt:
                pass
        found.append(content(place / "tok"))
        at += 1
    assert found[0] == {"old"}
    assert found[-1] == {"new"}
    assert all(each in ({"old"}, {"new"}) for each in found)


def test_a_failed_second_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "tok", "old")
    rename = os.rename

    def broken(source: Path, target: Path) -> None:
        if source.suffix == ".tmp":
            raise OSError("broken")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(OSError, match="broken"):
        replace(tmp_path / "tok")
    assert content(tmp_path / "tok") == {"old"}
    assert names(tmp_path) == ["tok"]


def dead_process() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def test_a_draft_of_a_draft_is_removed_too(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with files.draft(tmp_path / "tok") as outer, files.draft(outer) as inner:
            make(inner, "half")
            os._exit(0)
    os.waitpid(child, 0)
    assert len(names(tmp_path)) == 1
    replace(tmp_path / "other")
    assert len(names(tmp_path)) == 2
    replace(tmp_path / "tok")
    assert names(tmp_path) == ["other", "tok"]


@pytest.mark.parametrize("empty", [False, True])
def test_what_version_0_1_left_is_restored(empty: bool, tmp_path: Path) -> None:
    """Also into an empty folder, which the user may have made in its place."""
    make(tmp_path / f".tok.{dead_process()}.old", "old")
    make(tmp_path / f".tok.{os.getppid()}.old", "of a process that is at it")
    make(tmp_path / f".token.{dead_process()}.old", "of another")
    if empty:
        (tmp_path / "tok").mkdir()
    files.restore(tmp_path / "tok")
    assert content(tmp_path / "tok") == {"old"}
    assert len(names(tmp_path)) == 3
    files.restore(tmp_path / "tok")
    assert content(tmp_path / "tok") == {"old"}


def test_a_folder_that_is_not_to_be_replaced_stays(tmp_path: Path) -> None:
    def write() -> None:
        with files.draft(tmp_path / "tok", replace=False) as draft:
            make(draft, "new")
            make(tmp_path / "tok", "of another process, which was faster")

    with pytest.raises(OSError, match="not empty"):
        write()
    assert content(tmp_path / "tok") == {"of another process, which was faster"}
    assert names(tmp_path) == ["tok"]
    (tmp_path / "empty").mkdir()
    with files.draft(tmp_path / "empty", replace=False) as draft:
        make(draft, "new")
    assert content(tmp_path / "empty") == {"new"}


# --- symbolic links, devices, the current folder --------------------------------------------------------------------


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    for kind, there in (("folder", True), ("folder", False), ("file", True), ("file", False)):
        link, target = tmp_path / f"{kind}-{there}", tmp_path / "far" / f"{kind}-{there}"
        link.symlink_to(Path("far") / target.name)
        if there and kind == "folder":
            make(target, "old")
        elif there:
            target.write_text("old")
        if kind == "folder":
            replace(link)
            assert content(target) == {"new"}
        else:
            files.write(link, "new")
            assert target.read_text() == "new"
        assert link.is_symlink()
    assert names(tmp_path) == ["far", "file-False", "file-True", "folder-False", "folder-True"]
    assert len(names(tmp_path / "far")) == 4


def test_what_cannot_be_replaced_is_told_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name, match in (("loop", "leads to itself"), ("pipe", "a device or pipe"), ("null", "a device or pipe")):
        with pytest.raises(UserError, match=match):
            files.write(tmp_path / name, "new")
    assert (tmp_path / "loop").is_symlink()
    assert (tmp_path / "pipe").is_fifo()
    assert not Path("/dev/null").is_file()
    make(tmp_path / "tok", "old")
    (tmp_path / "tok" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "tok" / "inner")
    for name in (".", "..", tmp_path / "tok"):
        with pytest.raises(UserError, match="is the current folder, or one above it"):
            replace(Path(name))
    assert (tmp_path / "tok" / "one").read_text() == "old"


def test_threads_that_write_one_file_leave_a_whole_one(tmp_path: Path) -> None:
    path, pieces = tmp_path / "file", [bytes([letter]) * 2**16 for letter in b"ab"]

    def write(piece: bytes) -> None:
        for _ in range(20):
            files.write(path, iter([piece] * 8))
            assert len(set(path.read_bytes())) == 1
            assert path.stat().st_size == 8 * 2**16

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, pieces))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
