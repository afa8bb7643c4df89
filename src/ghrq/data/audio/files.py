"""Audio files of any format that libsndfile knows, in blocks: a file of any length takes little memory."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ghrq.data.outputs import replacing
from ghrq.system.errors import UserError, require
from ghrq.system.inputs import InputFile

Samples = npt.NDArray[np.float32]
"""``(n, channels)`` float32; full scale is from -1 to 1."""

WRITTEN = (".wav", ".flac")
"""Extensions of files that are written."""

# What is accepted. Outside of it a file is damaged, or no sound.
LOWEST_RATE, HIGHEST_RATE, MOST_CHANNELS = 1_000, 768_000, 64

# Numbers of floating-point files may be above full scale by this much: 24 dB.
LOUDEST = 16.0

# Samples of all channels that are read at a time.
_BLOCK = 2**17

# A plain WAV file has 32 bits for its size.
_LARGEST_WAV = 2**32 - 2**12

_REMEDY = "it is damaged or no audio file; convert it to WAV or FLAC first"

# Formats of which the length is estimated from the size of the file.
_ESTIMATED = ("MP3", "MPEG")

# How libsndfile tells that a file is shorter than its header says, in WAV, AIFF, AU, W64 and RF64.
_SHORTER = re.compile(r"^ *(?:data|SSND|Data Size|riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)

# Programs that write to a pipe claim 2³¹ bytes or more.
_UNKNOWN = 2**31 - 2**16

# Of Ogg: what libsndfile says if a page is not whole. A page is a header of 27 bytes, then so many sizes as the last of
# them says, then parts of these sizes: 65,307 bytes at most. Byte 5 has a flag of the last page of a stream.
_UNEXPECTED_END, _PAGE, _PAGE_HEADER, _TAIL = "Ogg: Junk after the last page", b"OggS", 27, 2**17
_FLAGS, _LAST = 5, 4


class AudioFile:
    """An audio file, open for reading: ``with AudioFile(path) as audio``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._input = InputFile(path)
        with self._input.reading("audio", _REMEDY):
            self._file: Any = require("soundfile", "audio").SoundFile(os.fspath(path))
        self.rate, self.channels = int(self._file.samplerate), int(self._file.channels)
        self.frames = int(self._file.frames)
        """Its length in samples of one channel, as its header says."""
        try:
            check_format(str(path), self.rate, self.channels)
            self._check_whole()
        except UserError:
            self._file.close()
            raise

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.frames / self.rate

    def blocks(self) -> Iterator[Samples]:
        """All samples in order. A NaN, an infinite number, one far above full scale and a cut file are errors."""
        size, done = max(1, _BLOCK // self.channels), 0
        while True:
            with self._input.reading("audio", _REMEDY):
                block: Samples = self._file.read(size, dtype="float32", always_2d=True)
            if not len(block):
                break
            self._check(block, done)
            done += len(block)
            yield block
        if done < self.frames and self._file.format not in _ESTIMATED:
            raise self._cut(f"{done:,} of {self.frames:,} samples are there")

    def read(self) -> Samples:
        """The whole file."""
        return np.concatenate([np.zeros((0, self.channels), np.float32), *self.blocks()])

    def _check_whole(self) -> None:
        """Raise an error if libsndfile found less than the header claims: it goes on with what there is."""
        told = str(self._file.extra_info)
        for claimed, there in _SHORTER.findall(told):
            if int(there) < int(claimed) < _UNKNOWN:
                raise self._cut(f"{int(there):,} of {int(claimed):,} bytes are there")
        if _UNEXPECTED_END in told or (self._file.format == "OGG" and not self._ends()):
            raise self._cut("its end is missing")

    def _ends(self) -> bool:
        """Whether the last page of an Ogg file is whole, and the last one of its stream."""
        with self._input.reading("audio", _REMEDY), Path(self.path).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            tail = file.read()
        page = tail[max(0, tail.rfind(_PAGE)) :]
        if len(page) < _PAGE_HEADER:
            return False
        first = _PAGE_HEADER + page[_PAGE_HEADER - 1]
        return len(page) >= first + sum(page[_PAGE_HEADER:first]) and bool(page[_FLAGS] & _LAST)

    def _cut(self, how: str) -> UserError:
        return UserError(f"{self.path} is cut off ({how}): copy it again, or convert what there is to a new file")

    def _check(self, block: Samples, start: int) -> None:
        peak = np.abs(block).max()
        if peak <= LOUDEST:  # not so for NaN
            return
        place, channel = (int(i) for i in np.argwhere(~(np.abs(block) <= LOUDEST))[0])
        where = f"sample {start + place:,} ({(start + place) / self.rate:.3f} s) of channel {channel + 1}"
        value = block[place, channel]
        expected = "expected numbers from -1 to 1: scale or repair the file first"
        raise UserError(f"{self.path}: {where} is {value:g}; {expected}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_format(what: str, rate: int, channels: int) -> None:
    """Raise an error if ``what`` has a sample rate or a number of channels that no sound has."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise UserError(f"{what} has a rate of {rate:,} Hz, expected {LOWEST_RATE:,} to {HIGHEST_RATE:,}: resample it")
    if not 1 <= channels <= MOST_CHANNELS:
        raise UserError(f"{what} has {channels:,} channels, expected 1 to {MOST_CHANNELS}: split it into several files")


def check_writable(path: Path, rate: int, channels: int, frames: int) -> None:
    """Raise an error if a file with the extension of ``path`` is not written, or cannot hold such a sound."""
    if path.suffix.lower() not in WRITTEN:
        raise UserError(f"{path} cannot be written: expected a name that ends in {', '.join(WRITTEN)}")
    if path.suffix.lower() == ".flac" and not flac_holds(rate):
        raise UserError(f"{path}: a FLAC file cannot have the rate {rate:,} Hz of the sound: name a .wav file")
    if path.suffix.lower() == ".flac" and channels > 8:
        raise UserError(f"{path}: a FLAC file has at most 8 channels, the sound has {channels}: name a .wav file")
    if path.suffix.lower() == ".flac" and not frames:  # libsndfile would write nothing at all
        raise UserError(f"{path}: a FLAC file has at least one sample, the sound has none: name a .wav file")


def flac_holds(rate: int) -> bool:
    """Whether a FLAC file can have this sample rate."""
    return rate < 2**16 or (rate % 10 == 0 and rate < 10 * 2**16)


@contextmanager
def writing(path: Path, rate: int, channels: int, frames: int) -> Iterator[Callable[[Samples], int]]:
    """A function that writes samples to a new WAV or FLAC file of 16 bits, about ``frames`` long in all.

    It returns how many samples were above full scale, and are cut to it. The file is complete or not there.
    """
    soundfile: Any = require("soundfile", "audio")
    check_writable(path, rate, channels, frames)
    form = path.suffix[1:].upper()
    if form == "WAV" and 2 * frames * channels > _LARGEST_WAV:
        form = "RF64"

    def write(block: Samples) -> int:
        file.write(np.clip(block, -1.0, 1.0))
        return int((np.abs(block) > 1.0).sum())

    with replacing(path) as temporary:
        try:
            with soundfile.SoundFile(os.fspath(temporary), "w", rate, channels, "PCM_16", format=form) as file:
                yield write
        except soundfile.SoundFileError as error:  # a full disk, or a rate that the format does not have
            raise UserError(f"cannot write {path} ({error}): make room, or name a .wav file") from error
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
