"""Small files that claim or hold more than the memory: each is refused in a line, before it is unpacked."""

import gzip
import io
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from ghrq.data.images import load, mnist, read_image
from ghrq.system import unpacking
from ghrq.system.errors import UserError

# What reading them may take, in MiB: a little more than is unpacked freely.
MOST = 300


def png_of_zeros(path: Path, width: int, height: int) -> None:
    """A black PNG, written without holding its pixels in memory."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(1)
    row = b"\0" + bytes(3 * width)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def idx_of_zeros(path: Path, count: int) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 28, 28))
        for _ in range(0, count, 10_000):
            file.write(bytes(784 * 10_000))


def pickle_of(*steps: bytes) -> bytes:
    return b"\x80\x02" + b"".join(steps)


def shared_lists() -> bytes:
    """A list of ten times a list of ten times …: few bytes, 10⁹ numbers for NumPy."""
    value = list(range(10))
    for _ in range(8):
        value = [value] * 10
    return pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "fine_labels": value, "coarse_labels": [0]}, 2)


PICKLES = {
    "long_binput": pickle_of(b"]", b"r" + struct.pack("<I", 2**29), b"."),
    "long_bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"abc.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"abc.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"abc.",
    "marks": pickle_of(b"(" * 30_000_000),
    "lists": pickle_of(b"]" * 30_000_000),
    "sets": b"\x80\x04" + b"\x8f" * 30_000_000,
    "shared": shared_lists(),
}

READER = """
    import sys
    from ghrq.data.images import load, read_image
    from ghrq.system.errors import UserError

    def peak():
        return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

    before = peak()
    for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
        try:
            read_image(path, None, 3) if kind == "image" else load(kind, split="train", source=path)
        except UserError as error:
            print(peak() - before, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory")
def test_a_picture_a_data_set_and_pickles_take_no_gigabytes(tmp_path: Path) -> None:
    png_of_zeros(tmp_path / "large.png", 13_000, 13_000)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + b"\0")
    idx_of_zeros(tmp_path / "train-images-idx3-ubyte.gz", 700_000)
    arguments = ["image", tmp_path / "large.png", "mnist", tmp_path]
    for name, content in PICKLES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train").write_bytes(content)
        arguments += ["cifar100", tmp_path / name]
    command = [sys.executable, "-c", textwrap.dedent(READER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2 + len(PICKLES), "one line each"
    for line, named in zip(lines, ["large.png", "train-images-idx3-ubyte.gz", *PICKLES], strict=True):
        assert f"{tmp_path / named}" in line
        assert int(line.split()[0]) < MOST, line
    assert "would unpack to 645 MiB or more" in lines[0]
    assert "would unpack to 523 MiB or more" in lines[1]


def test_a_picture_is_refused_by_its_header(tmp_path: Path) -> None:
    Pillow.new("1", (9000, 9000)).save(tmp_path / "large.png")
    with pytest.raises(UserError, match=r"large\.png would unpack to 309 MiB or more, [\d,]+ times its size") as told:
        read_image(tmp_path / "large.png", 8, 1)
    assert "\n" not in str(told.value)
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes((tmp_path / "large.png").read_bytes())
    with pytest.raises(UserError, match=r"2 more cannot be read: b\.png, large\.png"):
        load("folder", split="test", source=str(tmp_path), size=8)


@pytest.mark.slow
def test_what_a_camera_makes_is_read(tmp_path: Path) -> None:
    """More than the limit in pixels, but in a file of a size that fits them."""
    Pillow.new("RGB", (8300, 8200)).save(tmp_path / "photo.bmp")  # not packed at all
    assert read_image(tmp_path / "photo.bmp", 8, 3).shape == (3, 8, 8)


def test_a_shape_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 2**31) + bytes(100))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + b"\0")
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte would unpack to [\d,]+ MiB or more"):
        load("mnist", split="train", source=str(tmp_path))


def test_a_wheel_within_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle of MNIST's wheel is gzip in a zip: the unpacked bytes are counted, not the claimed ones."""
    monkeypatch.setattr(unpacking, "FREELY", 2**20)
    packed = gzip.compress(pickle.dumps((np.zeros(2**23, np.uint8), np.zeros(1, np.uint8)), 2))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", packed)
    (tmp_path / mnist.WHEEL.file).write_bytes(written.getvalue())
    with pytest.raises(UserError, match=r"would unpack to \d+ MiB or more.*1 MiB is the limit"):
        load("mnist", split="train", source=str(tmp_path))
    with zipfile.ZipFile(tmp_path / mnist.WHEEL.file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", bytes(2**23))
    with pytest.raises(UserError, match="would unpack to 8 MiB or more"):
        load("mnist", split="train", source=str(tmp_path))
    parts = [["ab" * 9, "cd"], (np.zeros((1, 784)), [7]), (np.zeros((1, 784)), [7])]
    with zipfile.ZipFile(tmp_path / mnist.WHEEL.file, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(parts, 2)))
    with pytest.raises(UserError, match="its parts are not pairs of arrays"):
        load("mnist", split="train", source=str(tmp_path))
