"""IDX files, whole and damaged."""

import gzip
import struct

import pytest
import torch

from ghrq.data.images import idx
from ghrq.system.errors import UserError

VALUES = torch.arange(2 * 3 * 4, dtype=torch.uint8).view(2, 3, 4)
CONTENT = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2, 3, 4) + bytes(range(24))
PACKED = gzip.compress(CONTENT, mtime=0)  # a time of day would be in the names of tests


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_plain_and_gzip(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PACKED if name.endswith(".gz") else CONTENT)
    assert torch.equal(idx.read(path, 3), VALUES)


def test_a_file_that_a_browser_unpacked_but_did_not_rename(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(CONTENT)
    assert torch.equal(idx.read(path, 3), VALUES)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (PACKED[:-12], "cannot be read"),
        (PACKED[:20] + b"\xff\xff" + PACKED[22:], "cannot be read"),
        (b"", "begins with ''"),
        (b"\x89PNG" + CONTENT[4:], "begins with '89504e47'.*'00000803'"),
        (bytes((0, 0, 8, 1)) + CONTENT[4:], "begins with '00000801'"),
        (bytes((0, 0, 13, 3)) + CONTENT[4:], "begins with '00000d03'"),
        (CONTENT[:10], "ends within its header"),
        (CONTENT[:-1], r"23 bytes of data, its shape \(2, 3, 4\) needs 24"),
        (CONTENT + b"\0", "25 bytes of data"),
        (bytes((0, 0, 8, 3)) + struct.pack(">3I", 0, 3, 4), "nothing in it"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, content, complaint):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"damaged .*{complaint}.*get it again") as caught:
        idx.read(path, 3)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        idx.read(tmp_path / "nowhere", 3)
