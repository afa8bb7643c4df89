"""The file ``.ghrq``: the codes of a sound, entropy-coded, with checksums; ``docs/audio-format.md`` has every byte.

A header, then chunks of some seconds. A chunk has a section for each stage of each channel, so that later stages can be
dropped without decoding (:func:`trim`), and says how long they are, so that a reader can go to any second without
reading the rest. Nothing in a file is trusted: at most one chunk is in memory, and what does not fit is an error.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio.files import check_format
from ghrq.data.audio.resample import resampled_length
from ghrq.data.outputs import check_not_input, replacing
from ghrq.models.audio_codec import MOST_STAGES, AudioCodec
from ghrq.models.code_tables import Codes, CodeTables
from ghrq.models.range_coder import STATE_WORDS
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile

MAGIC, VERSION = b"GHRQ", 1

CHUNK = 500
"""Frames of a chunk: 10 s at 50 frames a second, of which lengths and checksum are 0.4 %."""

FINGERPRINT_BYTES = 8
_MOST_FRAMES, _LONGEST = 4096, 2**48

# magic, version, stages, channels, rate, length, rate of the codec, hop, codes, chunk, fingerprint; then the checksum
_HEADER = struct.Struct(f"<4sBBHIQIHHH{FINGERPRINT_BYTES}s")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_AGAIN = "copy it again, or encode the sound again"


class Header(NamedTuple):
    """What a file says of its sound. All lengths follow from it."""

    stages: int
    channels: int
    rate: int
    """Of the sound, in Hz."""
    length: int
    """In samples of one channel at that rate."""
    codec_rate: int
    """The rate at which the codec works."""
    hop: int
    """Samples of a frame at the codec's rate."""
    codes: int
    """The size of a codebook."""
    fingerprint: bytes
    """The beginning of the codec's fingerprint."""
    chunk: int = CHUNK
    """Frames of a chunk; the last chunk may have fewer."""

    @property
    def seconds(self) -> float:
        """The length of the sound."""
        return self.length / self.rate

    @property
    def codec_length(self) -> int:
        """In samples at the codec's rate."""
        return resampled_length(self.length, self.rate, self.codec_rate)

    @property
    def frames(self) -> int:
        """Of each channel."""
        return -(-self.codec_length // self.hop)

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-self.frames // self.chunk)

    @property
    def nominal_bytes(self) -> float:
        """The size of the codes as plain bits."""
        return self.frames * self.channels * self.stages * (self.codes - 1).bit_length() / 8

    def frames_of(self, chunk: int) -> int:
        """Frames of the chunk with this number."""
        return min(self.chunk, self.frames - chunk * self.chunk)

    def pack(self) -> bytes:
        """As it stands in a file."""
        fields = (self.rate, self.length, self.codec_rate, self.hop, self.codes - 1, self.chunk, self.fingerprint)
        content = _HEADER.pack(MAGIC, VERSION, self.stages, self.channels, *fields)
        return content + _CHECKSUM.pack(zlib.crc32(content))


def header_of(codec: AudioCodec, stages: int, channels: int, rate: int) -> Header:
    """The header of a sound for this codec, with the length still 0."""
    config = codec.config
    return Header(stages, channels, rate, 0, config.sample_rate, codec.hop, config.codes, _named(codec))


class BitstreamWriter:
    """Writes codes to an open file; :func:`writing` makes one."""

    def __init__(self, file: BinaryIO, header: Header, tables: CodeTables) -> None:
        self._file, self._header, self._tables = file, header, tables
        self._kept = torch.zeros(header.channels, 0, header.stages, dtype=torch.int64)
        self._chunks = 0
        file.write(bytes(HEADER_BYTES))

    def write(self, codes: Tensor) -> None:
        """Codes ``(channels, n, stages)`` of the next frames."""
        self._kept = torch.cat((self._kept, codes), dim=1)
        while self._kept.shape[1] >= self._header.chunk:
            self._write_chunk(self._kept[:, : self._header.chunk])
            self._kept = self._kept[:, self._header.chunk :]

    def finish(self, length: int) -> Header:
        """Write the last chunk and the header of a sound of ``length`` samples."""
        if self._kept.shape[1]:
            self._write_chunk(self._kept)
        header = self._header._replace(length=length)
        assert header.chunks == self._chunks, f"{self._chunks} chunks for {header}"
        self._file.seek(0)
        self._file.write(header.pack())
        return header

    def _write_chunk(self, codes: Tensor) -> None:
        streams = [self._tables.encode(channel) for channel in codes.numpy()]
        chunk = _Chunk([sizes for _, sizes in streams], [words.astype("<u2").tobytes() for words, _ in streams])
        self._file.write(chunk.pack(self._chunks))
        self._chunks += 1


@contextmanager
def writing(path: Path, header: Header, tables: CodeTables) -> Iterator[BitstreamWriter]:
    """A writer to a new file, which is complete or not there. Call its ``finish``."""
    with _writing(path) as file:
        yield BitstreamWriter(file, header, tables)


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    with replacing(path) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


class _Chunk(NamedTuple):
    """A chunk as it stands in a file."""

    sizes: list[list[int]]
    """Words of the section of each stage, of each channel."""
    streams: list[bytes]
    """State and sections of each channel."""

    def pack(self, number: int) -> bytes:
        sizes = np.array(self.sizes, dtype="<u2").tobytes()
        content = b"".join((sizes, *self.streams))
        return _CHECKSUM.pack(zlib.crc32(content, number)) + content


class BitstreamReader:
    """An open file; :func:`reading` makes one. All errors are lines that name the file."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.size, self._file = path, size, file
        self.header = self._read_header()
        self._offset, self._next = HEADER_BYTES, 0

    def check_made_by(self, codec: AudioCodec) -> None:
        """Raise an error if another codec encoded the file."""
        named, own = self.header.fingerprint, _named(codec)
        if named != own:
            raise UserError(
                f"{self.path} was encoded by another model ({named.hex()}), this is {own.hex()}: "
                "give the one that encoded it with --model, or encode the sound again with this one"
            )
        expected = header_of(codec, *self.header[:3])._replace(length=self.header.length, chunk=self.header.chunk)
        if self.header != expected:
            raise self._damaged("its header does not fit its model")
        if self.header.stages > codec.config.quantizer.num_stages:
            raise self._damaged(f"it has {self.header.stages} stages, its model {codec.config.quantizer.num_stages}")

    def codes(
        self, tables: CodeTables, start: int = 0, stop: int | None = None, depth: int | None = None
    ) -> Iterator[Tensor]:
        """The first ``depth`` codes of frames from ``start`` to ``stop`` in pieces ``(channels, n, depth)`` int64.

        Chunks in which there are none are not read.
        """
        header = self.header
        stop = header.frames if stop is None else min(stop, header.frames)
        depth = header.stages if depth is None else depth
        for number in range(start // header.chunk, -(-stop // header.chunk)):
            first, frames = number * header.chunk, header.frames_of(number)
            chunk = self._read_chunk(number)
            channels = [
                self._decoded(tables, sizes[:depth], stream, frames, number)
                for sizes, stream in zip(chunk.sizes, chunk.streams, strict=True)
            ]
            yield torch.from_numpy(np.stack(channels))[:, max(0, start - first) : stop - first]

    def raw_chunks(self) -> Iterator[_Chunk]:
        """All chunks, checked but not decoded."""
        for number in range(self.header.chunks):
            yield self._read_chunk(number)

    def _decoded(self, tables: CodeTables, sizes: list[int], stream: bytes, frames: int, number: int) -> Codes:
        words = np.frombuffer(stream, dtype="<u2")[: STATE_WORDS + sum(sizes)].astype(np.uint16)
        try:
            return tables.decode(words, sizes, frames)
        except ValueError as error:
            raise self._damaged(f"{error} in chunk {number + 1} of {self.header.chunks}") from error

    def _read_header(self) -> Header:
        content = self._file.read(HEADER_BYTES)
        if content[:4] != MAGIC[: len(content)] or not content:
            raise UserError(f"{self.path} is not a .ghrq file: it begins otherwise; 'ghrq codec encode' makes one")
        if len(content) > len(MAGIC) and content[len(MAGIC)] > VERSION:  # its header and checksum may be others
            raise UserError(
                f"{self.path} has version {content[len(MAGIC)]} of the format, this ghrq reads {VERSION}: update ghrq "
                "(or it is damaged: copy it again)"
            )
        if len(content) < HEADER_BYTES:
            raise self._damaged("it ends within its header")
        fields = content[: _HEADER.size]
        if zlib.crc32(fields) != _CHECKSUM.unpack(content[_HEADER.size :])[0]:
            raise self._damaged("the checksum of its header is wrong")
        _, version, stages, channels, rate, length, codec_rate, hop, codes, chunk, named = _HEADER.unpack(fields)
        if version != VERSION:
            raise self._damaged(f"there is no version {version} of the format")
        header = Header(stages, channels, rate, length, codec_rate, hop, codes + 1, named, chunk)
        check_format(str(self.path), rate, channels)
        check_format(f"the codec of {self.path}", codec_rate, 1)
        if not (1 <= stages <= MOST_STAGES and 1 <= chunk <= _MOST_FRAMES and hop >= 1 and length < _LONGEST):
            raise self._damaged(f"{stages} stages, chunks of {chunk} frames of {hop}, {length:,} samples: out of range")
        least = HEADER_BYTES + header.chunks * (_CHECKSUM.size + channels * 2 * (stages + STATE_WORDS))
        if self.size < least:
            raise self._damaged(f"{length:,} samples take at least {least:,} bytes, it has {self.size:,}")
        return header

    def _read_chunk(self, number: int) -> _Chunk:
        """The chunk with this number. Those before are passed over by their sizes."""
        if number < self._next:
            self._offset, self._next = HEADER_BYTES, 0
        while self._next < number:
            self._offset += self._chunk_bytes(self._next)[0]
            self._next += 1
        size, sizes = self._chunk_bytes(number)
        self._file.seek(self._offset)
        content = self._file.read(size)
        where = f"chunk {number + 1} of {self.header.chunks}"
        if len(content) < size:
            raise self._damaged(f"it ends within {where}")
        if zlib.crc32(content[_CHECKSUM.size :], number) != _CHECKSUM.unpack(content[: _CHECKSUM.size])[0]:
            raise self._damaged(f"the checksum of {where} is wrong")
        if number + 1 == self.header.chunks and self._offset + size != self.size:
            raise self._damaged(f"{self.size - self._offset - size:,} bytes follow its last chunk")
        streams, place = list[bytes](), _CHECKSUM.size + 2 * self.header.channels * self.header.stages
        for channel in sizes:
            length = 2 * (STATE_WORDS + sum(channel))
            streams.append(content[place : place + length])
            place += length
        return _Chunk(sizes, streams)

    def _chunk_bytes(self, number: int) -> tuple[int, list[list[int]]]:
        """The size of the chunk at the current offset, and the words of its sections."""
        header, where = self.header, f"chunk {number + 1} of {self.header.chunks}"
        count = 2 * header.channels * header.stages
        self._file.seek(self._offset + _CHECKSUM.size)
        content = self._file.read(count)
        if len(content) < count:
            raise self._damaged(f"it ends within {where}")
        sizes = np.frombuffer(content, dtype="<u2").reshape(header.channels, header.stages)
        if sizes.max() > header.frames_of(number):
            raise self._damaged(f"{where} has a section longer than its codes")
        words = int(sizes.sum()) + STATE_WORDS * header.channels
        return _CHECKSUM.size + count + 2 * words, sizes.tolist()

    def _damaged(self, how: str) -> UserError:
        return UserError(f"{self.path} is damaged or cut off: {how}; {_AGAIN}")


@contextmanager
def reading(path: Path) -> Iterator[BitstreamReader]:
    """A reader of a file."""
    given = InputFile(path)
    with given.reading("a .ghrq file"):
        file = path.open("rb")
    with file:
        reader = BitstreamReader(path, file, os.fstat(file.fileno()).st_size)
        if not reader.header.chunks and reader.size != HEADER_BYTES:
            raise reader._damaged(f"{reader.size - HEADER_BYTES:,} bytes follow its header")
        yield reader
        given.check_unchanged()


def trim(path: Path, out: Path, stages: int, advance: Callable[[], None] = lambda: None) -> Header:
    """Write the file with only its first ``stages``: no codec is needed, and what is kept is not encoded again."""
    check_not_input(out, [path])
    with reading(path) as reader:
        if not 1 <= stages <= reader.header.stages:
            raise UserError(f"--stages {stages}: expected 1 to {reader.header.stages}, the stages of {path}")
        header = reader.header._replace(stages=stages)
        with _writing(out) as file:
            file.write(header.pack())
            for number, chunk in enumerate(reader.raw_chunks()):
                sizes = [channel[:stages] for channel in chunk.sizes]
                kept = [2 * (STATE_WORDS + sum(channel)) for channel in sizes]
                streams = [stream[:size] for stream, size in zip(chunk.streams, kept, strict=True)]
                file.write(_Chunk(sizes, streams).pack(number))
                advance()
    return header


def _named(codec: AudioCodec) -> bytes:
    return bytes.fromhex(codec.fingerprint)[:FINGERPRINT_BYTES]
