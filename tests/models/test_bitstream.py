"""The .ghrq file: every damaged byte and every cut is one clear line; stages and seconds can be taken out of it."""

import struct
import zlib

import pytest
import torch

from ghrq.models.bitstream import HEADER_BYTES, Header, header_of, reading, trim, writing
from ghrq.system.errors import UserError
from small_codec import small_codec


@pytest.fixture(scope="module")
def codec():
    return small_codec()


@pytest.fixture
def stereo(codec, tmp_path):
    """A file of 21 frames in chunks of 8, its codes ``(2, 21, 4)``, and what it says of itself."""
    codes = torch.randint(64, (2, 21, 4))
    codes[1, 8:] = codes[0, 8:]
    path = tmp_path / "a.ghrq"
    header = write(path, codec, codes, length=21 * 80 - 37, rate=16_000)  # the codec has 8 kHz, and a hop of 40
    return path, codes, header


def write(path, codec, codes, length, rate, chunk=8):
    header = header_of(codec, codes.shape[2], codes.shape[0], rate)._replace(chunk=chunk)
    with writing(path, header, codec.tables) as writer:
        for part in codes.split(5, dim=1):
            writer.write(part)
        return writer.finish(length)


def read(path, codec, check=True, **where):
    with reading(path) as file:
        if check:
            file.check_made_by(codec)
        return torch.cat(list(file.codes(codec.tables, **where)), dim=1)


def test_codes_come_back(stereo, codec):
    path, codes, header = stereo
    with reading(path) as file:
        assert file.header == header
        assert (header.frames, header.chunks, header.length) == (21, 3, 1643)
        assert header.nominal_bytes == 2 * 21 * 4 * 6 / 8
    assert torch.equal(read(path, codec), codes)
    assert torch.equal(read(path, codec, depth=2), codes[:, :, :2])


def test_any_part_is_read_without_the_chunks_before(stereo, codec):
    path, codes, _ = stereo
    for start in range(0, 21):
        for stop in range(start + 1, 22):
            assert torch.equal(read(path, codec, check=False, start=start, stop=stop), codes[:, start:stop])
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 4 + 2 * 2 * 4 + 3] ^= 255  # of the first chunk, after its lengths
    path.write_bytes(content)
    assert torch.equal(read(path, codec, start=8), codes[:, 8:])
    with pytest.raises(UserError, match="checksum of chunk 1 of 3 is wrong"):
        read(path, codec)


@pytest.mark.parametrize("frames", [0, 1, 8, 9])
def test_short_files(codec, tmp_path, frames):
    codes = torch.randint(64, (1, frames, 4))
    write(tmp_path / "a.ghrq", codec, codes, length=40 * frames, rate=8000)
    with reading(tmp_path / "a.ghrq") as file:
        assert torch.equal(torch.cat([codes[:, :0], *file.codes(codec.tables)], dim=1), codes)
    with (tmp_path / "a.ghrq").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="1 bytes follow"):
        read(tmp_path / "a.ghrq", codec)


def test_dropping_stages_is_what_decoding_fewer_gives(stereo, codec, tmp_path):
    path, codes, header = stereo
    for stages in range(1, 5):
        out = tmp_path / f"{stages}.ghrq"
        assert trim(path, out, stages) == header._replace(stages=stages)
        assert torch.equal(read(out, codec), codes[:, :, :stages])
    assert (tmp_path / "4.ghrq").read_bytes() == path.read_bytes()
    assert (tmp_path / "1.ghrq").stat().st_size < 0.6 * path.stat().st_size
    trim(tmp_path / "3.ghrq", tmp_path / "2b.ghrq", 2)
    assert (tmp_path / "2b.ghrq").read_bytes() == (tmp_path / "2.ghrq").read_bytes()
    with pytest.raises(UserError, match=r"--stages 5: expected 1 to 4, the stages of .*a\.ghrq"):
        trim(path, tmp_path / "x.ghrq", 5)


def test_every_changed_byte_is_noticed(stereo, codec):
    path, _, _ = stereo
    content = path.read_bytes()
    for place in range(len(content)):
        for change in (1, 128, 255):
            wrong = bytearray(content)
            wrong[place] ^= change
            path.write_bytes(wrong)
            with pytest.raises(UserError, match=r"^[^\n]*a\.ghrq[^\n]*$"):
                read(path, codec, check=False)


def test_every_cut_is_noticed(stereo, codec):
    path, _, _ = stereo
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match=r"^[^\n]*a\.ghrq[^\n]*$"):
            read(path, codec, check=False)


def test_chunks_in_another_order_are_noticed(codec, tmp_path):
    path = tmp_path / "a.ghrq"
    write(path, codec, torch.zeros(1, 16, 4, dtype=torch.int64), 16 * 40, 8000)
    content = path.read_bytes()
    size = (len(content) - HEADER_BYTES) // 2
    first, second = content[HEADER_BYTES : HEADER_BYTES + size], content[HEADER_BYTES + size :]
    assert first[4:] == second[4:]
    path.write_bytes(content[:HEADER_BYTES] + second + first)
    with pytest.raises(UserError, match="checksum of chunk 1 of 2"):
        read(path, codec)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"length": 2**63}, "out of range|at least"),
        ({"length": 2**47}, "at least"),
        ({"length": 2**64 - 1}, "out of range"),
        ({"channels": 0}, "0 channels"),
        ({"channels": 65_535}, "65,535 channels"),
        ({"rate": 0}, "rate of 0"),
        ({"rate": 2**32 - 1}, "rate of"),
        ({"codec_rate": 1}, "rate of 1 Hz"),
        ({"hop": 0}, "out of range"),
        ({"stages": 0}, "out of range"),
        ({"stages": 255}, "out of range"),
        ({"chunk": 65_535}, "out of range"),
        ({"chunk": 0}, "out of range"),
        ({"codes": 2}, "does not fit its model"),
        ({"stages": 5}, "chunk|stages"),
        ({"fingerprint": bytes(8)}, "another model"),
    ],
)
def test_a_forged_header_is_refused(stereo, codec, fields, told):
    path, _, header = stereo
    path.write_bytes(header._replace(**fields).pack() + path.read_bytes()[HEADER_BYTES:])
    with pytest.raises(UserError, match=told):
        read(path, codec)


def test_forged_sections_are_refused(stereo, codec):
    path, _, _ = stereo
    content = bytearray(path.read_bytes())
    start = HEADER_BYTES + 4
    content[start : start + 2] = struct.pack("<H", 9)  # of 8 frames
    path.write_bytes(content)
    with pytest.raises(UserError, match="section longer than its codes"):
        read(path, codec)


def test_sections_that_do_not_hold_the_codes_are_refused(codec, tmp_path):
    path = tmp_path / "a.ghrq"
    write(path, codec, torch.randint(64, (1, 8, 4)), 8 * 40, 8000)
    content = bytearray(path.read_bytes())
    place = HEADER_BYTES + 4
    first, second = struct.unpack("<HH", content[place : place + 4])
    content[place : place + 4] = struct.pack("<HH", first + 1, second - 1)
    content[HEADER_BYTES:place] = struct.pack("<I", zlib.crc32(content[place:], 0))  # as somebody who means harm
    path.write_bytes(content)
    with pytest.raises(UserError, match="do not end where their section ends in chunk 1 of 1"):
        read(path, codec)


def test_other_files_and_other_versions(codec, tmp_path, stereo):
    path = tmp_path / "b.ghrq"
    for content in (b"", b"GH", b"RIFF" + bytes(100), b"hello"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"b\.ghrq is (not a \.ghrq file|damaged)"):
            read(path, codec)
    with pytest.raises(UserError, match="no file"):
        read(tmp_path / "c.ghrq", codec)
    content = bytearray(stereo[0].read_bytes())
    content[4] = 2
    for newer in (content, content[:20]):  # whose header may be another one
        path.write_bytes(newer)
        with pytest.raises(UserError, match=r"version 2 of the format, this ghrq reads 1: update .* copy it again"):
            read(path, codec)
    content[4] = 0
    for checksum in (bytes(4), struct.pack("<I", zlib.crc32(content[: HEADER_BYTES - 4]))):
        content[HEADER_BYTES - 4 : HEADER_BYTES] = checksum
        path.write_bytes(content)
        with pytest.raises(UserError, match="is damaged"):
            read(path, codec)


def test_a_file_is_not_trimmed_onto_itself(stereo):
    path, _, _ = stereo
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"would overwrite the input .*a\.ghrq: give the output another name"):
        trim(path, path, 1)
    assert path.read_bytes() == before


def test_a_header_is_as_documented():
    header = Header(12, 2, 44_100, 123_456_789, 16_000, 320, 1024, bytes(range(8)))
    expected = (
        b"GHRQ\x01\x0c\x02\x00" + struct.pack("<IQIHHH", 44_100, 123_456_789, 16_000, 320, 1023, 500) + bytes(range(8))
    )
    assert header.pack() == expected + struct.pack("<I", zlib.crc32(expected))
    assert HEADER_BYTES == 42
