"""Audio files to ``.ghrq`` files and back: any length, rate and number of channels, a block at a time."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio import files
from ghrq.data.audio.files import AudioFile, Samples
from ghrq.data.audio.resample import Resampler
from ghrq.data.outputs import check_not_input
from ghrq.models import bitstream
from ghrq.models.audio_codec import AudioCodec
from ghrq.models.audio_stream import BLOCK, DecodeStream, EncodeStream
from ghrq.models.bitstream import BitstreamReader, Header
from ghrq.system.errors import UserError
from ghrq.system.progress import Progress

FilePath = str | os.PathLike[str]

# Frames computed at a time, at the least: with many channels each has fewer.
_LEAST_BLOCK = 32

# Seconds around a part that a resampler may look at.
_MARGIN = 0.1


class Part(NamedTuple):
    """A part of a sound, in seconds."""

    start: float = 0.0
    stop: float = math.inf


class Decoded(NamedTuple):
    """What was written."""

    header: Header
    samples: int
    """Of one channel."""
    clipped: int
    """Samples above full scale, of all channels."""


def encode_file(
    codec: AudioCodec, path: FilePath, out: FilePath, progress: Progress, *, stages: int | None = None, beam: int = 1
) -> Header:
    """Write the codes of an audio file to ``out``; ``stages`` and ``beam`` as in :meth:`AudioCodec.encode`.

    A file that is there is replaced, but not the sound itself.
    """
    path, out = Path(path), Path(out)
    check_not_input(out, [path])
    stages = _checked(stages, codec.quantizer.num_stages, "the model")
    with AudioFile(path) as audio:
        header = bitstream.header_of(codec, stages, audio.channels, audio.rate)
        resampler = Resampler(audio.rate, header.codec_rate, audio.channels)
        stream = EncodeStream(codec, audio.channels, stages=stages, beam=beam, block=_block(audio.channels))
        length = 0
        with (
            bitstream.writing(out, header, codec.tables) as writer,
            progress.patient_bar("encoding", math.ceil(audio.seconds), "s") as bar,
        ):
            for block in audio.blocks():
                writer.write(stream.push(_wave(resampler.push(block))))
                bar.advance((length + len(block)) // audio.rate - length // audio.rate)
                length += len(block)
            writer.write(stream.push(_wave(resampler.push(np.zeros((0, audio.channels), np.float32), last=True))))
            writer.write(stream.finish())
            return writer.finish(length)


def decode_file(
    codec: AudioCodec,
    path: FilePath,
    out: FilePath,
    progress: Progress,
    *,
    stages: int | None = None,
    part: Part | None = None,
) -> Decoded:
    """Write the sound of a ``.ghrq`` file to ``out``, at its own rate and length; or a ``part`` of it.

    A file that is there is replaced, but not the one with the codes.
    """
    path, out = Path(path), Path(out)
    check_not_input(out, [path])
    with bitstream.reading(path) as reader:
        header = reader.header
        start, stop = _range(header, part or Part(), path)
        files.check_writable(out, header.rate, header.channels, stop - start)
        done = clipped = 0
        with (
            files.writing(out, header.rate, header.channels, stop - start) as write,
            progress.patient_bar("decoding", math.ceil((stop - start) / header.rate), "s") as bar,
        ):
            for block in decoded_blocks(codec, reader, start, stop, stages):
                clipped += write(block)
                bar.advance((done + len(block)) // header.rate - done // header.rate)
                done += len(block)
    return Decoded(header, done, clipped)


def decoded_blocks(
    codec: AudioCodec, reader: BitstreamReader, start: int, stop: int, stages: int | None = None
) -> Iterator[Samples]:
    """The samples from ``start`` to ``stop`` at the rate of the sound. Only the chunks that are needed are read."""
    header = reader.header
    reader.check_made_by(codec)
    stages = _checked(stages, header.stages, str(reader.path))
    frames = _needed(codec, header, start, stop)
    stream = DecodeStream(codec, header.channels, depth=stages, block=_block(header.channels))
    resampler = Resampler(header.codec_rate, header.rate, header.channels)
    place = frames.start * header.hop * header.rate // header.codec_rate  # of the next sample, exactly
    left = header.codec_length - frames.start * header.hop  # the last frame may be longer than the sound

    def pieces() -> Iterator[Tensor]:
        for codes in reader.codes(codec.tables, frames.start, frames.stop, stages):
            yield stream.push(codes)
        yield stream.finish()

    for wave in pieces():
        kept = wave[:, :left]
        left -= kept.shape[1]
        block = resampler.push(np.ascontiguousarray(kept.T.numpy()))
        yield block[max(0, start - place) : max(0, stop - place)]
        place += len(block)
    block = resampler.push(np.zeros((0, header.channels), np.float32), last=True)
    yield block[max(0, start - place) : max(0, stop - place)]


def _needed(codec: AudioCodec, header: Header, start: int, stop: int) -> range:
    """The frames that samples from ``start`` to ``stop`` depend on. The first begins at a sample of both rates."""
    (left, right), per_second = codec.context, header.codec_rate / header.hop
    step = math.lcm(codec.alignment, header.codec_rate // math.gcd(header.codec_rate, header.hop * header.rate))
    margin = 0.0 if header.rate == header.codec_rate else _MARGIN
    first = math.floor((start / header.rate - margin) * per_second) - left
    last = math.ceil((stop / header.rate + margin) * per_second) + right
    return range(max(0, first) // step * step, min(header.frames, last))


def _range(header: Header, part: Part, path: Path) -> tuple[int, int]:
    """The samples of a part."""
    end = "" if math.isinf(part.stop) else f" and --to {part.stop:g}"
    if not 0.0 <= part.start < part.stop:
        raise UserError(f"--from {part.start:g}{end}: expected seconds, the first one before the second")
    if part.start > header.seconds or (part.start == header.seconds and header.length):
        raise UserError(f"--from {part.start:g}: {path} has {header.seconds:.2f} s: name an earlier second")
    start, stop = round(part.start * header.rate), round(min(part.stop, header.seconds) * header.rate)
    if start == stop and header.length:
        raise UserError(f"--from {part.start:g}{end}: {path} has no sample there: name seconds that are farther apart")
    return start, min(header.length, stop)


def _checked(stages: int | None, most: int, whose: str) -> int:
    if stages is not None and not 1 <= stages <= most:
        raise UserError(f"--stages {stages}: expected 1 to {most}, the stages of {whose}")
    return most if stages is None else stages


def _wave(block: Samples) -> Tensor:
    """Samples ``(n, channels)`` as ``(channels, n)``."""
    return torch.from_numpy(np.ascontiguousarray(block.T))


def _block(channels: int) -> int:
    return max(_LEAST_BLOCK, BLOCK // channels)
