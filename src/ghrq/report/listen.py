"""A page to hear what a codec does: the original and every depth side by side, spectrograms, and a blind test."""

import base64
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ghrq.data.audio import files as audio_files
from ghrq.data.audio.files import AudioFile, Samples
from ghrq.data.audio.resample import Resampler
from ghrq.models import bitstream
from ghrq.models.audio_codec import AudioCodec
from ghrq.models.audio_files import decode_file, encode_file
from ghrq.report.page import Page, PageSection
from ghrq.report.template import render
from ghrq.system import files
from ghrq.system.errors import UserError, require
from ghrq.system.progress import Progress

DEPTHS = (1, 2, 4, 8, 12)
"""Numbers of stages to hear, as far as the model has so many; all stages are always among them."""

# Of the spectrograms: seconds of a window and between windows, decibels below the loudest point, and the colours.
_WINDOW, _STEP, _RANGE, _COLOURS = 0.032, 0.01, 80.0, "magma"

# More seconds than any recording has.
_LONGEST = 1e9

# A browser plays two channels, in FLAC files. A rate that these cannot have is brought to this one.
_CHANNELS, _RATE = 2, 48_000


class Version(NamedTuple):
    """The sound at one depth, or the original."""

    name: str
    sound: bytes
    """A FLAC file."""
    picture: bytes
    """Its spectrogram, a PNG file."""
    nominal: str
    """Bitrate of plain codes; of the original, what it has itself."""
    real: str
    """Bitrate of the ``.ghrq`` file."""

    @property
    def sound_address(self) -> str:
        """A data: address."""
        return "data:audio/flac;base64," + base64.b64encode(self.sound).decode()

    @property
    def picture_address(self) -> str:
        """A data: address."""
        return "data:image/png;base64," + base64.b64encode(self.picture).decode()


@dataclass(frozen=True)
class _Player:
    """The versions with their buttons, or the blind test on them."""

    template: str
    versions: Sequence[Version]
    top: str
    """The highest frequency of the spectrograms."""

    def html(self) -> str:
        return render(self.template, versions=self.versions, top=self.top)


@dataclass(frozen=True)
class _Script:
    """What makes the buttons work."""

    def html(self) -> str:
        return render("listen_script")


class Heard(NamedTuple):
    """What a page was made of."""

    seconds: float
    versions: Sequence[Version]


def write_page(
    codec: AudioCodec,
    sound: Path,
    out: Path,
    progress: Progress,
    *,
    start: float = 0.0,
    seconds: float = 20.0,
    beam: int = 1,
) -> Heard:
    """Write ``out``, one HTML file that holds all it shows and plays; returns what is on it.

    Args:
        codec: the model.
        sound: an audio file; of more than two channels the first two are heard.
        out: the page.
        progress: for the bars.
        start: where in the file to begin, in seconds.
        seconds: how much to take, at most.
        beam: as in :meth:`AudioCodec.encode`.

    """
    wave, rate = _clip(sound, start, seconds)
    depths = sorted({depth for depth in DEPTHS if depth < codec.quantizer.num_stages} | {codec.quantizer.num_stages})
    length, top = len(wave) / rate, min(rate, codec.config.sample_rate) / 2
    loudest = _spectrum(wave, rate, top).max()
    versions = list[Version]()
    with tempfile.TemporaryDirectory() as name, progress.patient_bar("decoding", len(depths), "depths") as bar:
        clip, whole = Path(name) / "clip.flac", Path(name) / "whole.ghrq"
        _write(clip, wave, rate)
        plain = f"{clip.stat().st_size * 8e-3 / length:,.0f} kbit/s as FLAC"
        versions.append(Version("original", clip.read_bytes(), _picture(wave, rate, top, loudest), plain, ""))
        encode_file(codec, clip, whole, Progress(), beam=beam)
        for depth in depths:
            small, heard = Path(name) / f"{depth}.ghrq", Path(name) / f"{depth}.flac"
            header = bitstream.trim(whole, small, depth)
            decode_file(codec, small, heard, Progress())
            with AudioFile(heard) as audio:
                decoded = audio.read()
            rates = [8e-3 * size / length for size in (header.nominal_bytes, small.stat().st_size)]
            pictures = _picture(decoded, rate, top, loudest)
            label = f"{depth} stage{'s' if depth > 1 else ''}"
            nominal, real = (f"{each:.2f} kbit/s" for each in rates)
            versions.append(Version(label, heard.read_bytes(), pictures, nominal, real))
            bar.advance()
    page = _page(sound.name, versions, length, top, codec)
    with files.telling(out):
        files.write(out, page.html())
    return Heard(length, versions)


def _page(name: str, versions: Sequence[Version], seconds: float, top: float, codec: AudioCodec) -> Page:
    rate = codec.config.sample_rate
    lead = [
        "Press a button to play; press another one to go on with that version **at the same place**. A click into a "
        "spectrogram goes there. Keys: 0 is the original, 1, 2, … the versions after it, space pauses.",
        f"The codec works at {rate / 1000:g} kHz, so nothing above {rate / 2000:g} kHz comes back. *Nominal* is the "
        "bitrate of plain codes, *file* that of the .ghrq file with all it holds.",
    ]
    shown = f"{top / 1000:g} kHz"
    sections = [
        PageSection("Listen", [_Player("listen_versions", versions, shown)]),
        PageSection(
            "Blind test",
            [_Player("listen_blind", versions, shown), _Script()],
            ["One of A and B is the original, the other the version you choose. Which it is is drawn anew each time."],
        ),
    ]
    clean = name.encode("utf-8", "replace").decode()
    return Page("Hear the codec", f"{clean}, {seconds:.1f} s", lead, sections)


def _clip(sound: Path, start: float, seconds: float) -> tuple[Samples, int]:
    """The samples to hear, at full scale at most."""
    with AudioFile(sound) as audio:
        first, count = (round(min(time, _LONGEST) * audio.rate) for time in (start, seconds))  # they may be infinite
        parts, done = list[Samples](), 0
        for block in audio.blocks():
            parts.append(block[max(0, first - done) : max(0, first + count - done), :_CHANNELS])
            done += len(block)
            if done >= first + count:
                break
        wave = np.concatenate([np.zeros((0, min(audio.channels, _CHANNELS)), np.float32), *parts])
        if not len(wave):
            raise UserError(f"{sound} has no sound from second {start:g} on: it has {done / audio.rate:.2f} s")
        rate = audio.rate
        if not audio_files.flac_holds(rate):
            wave, rate = Resampler(rate, _RATE, wave.shape[1]).push(wave, last=True), _RATE
        return np.clip(wave, -1.0, 1.0), rate


def _write(path: Path, wave: Samples, rate: int) -> None:
    with audio_files.writing(path, rate, wave.shape[1], len(wave)) as write:
        write(wave)


def _spectrum(wave: Samples, rate: int, top: float) -> npt.NDArray[np.float64]:
    """Decibels ``(frequencies up to top, windows)`` of the mean of the channels."""
    size, step = max(16, round(_WINDOW * rate)), max(1, round(_STEP * rate))
    mono = np.pad(wave.mean(axis=1), (size // 2, size))
    windows = np.lib.stride_tricks.sliding_window_view(mono, size)[: len(wave) + 1 : step]
    power = np.abs(np.fft.rfft(windows * np.hanning(size), axis=1)) ** 2
    kept = max(2, round(power.shape[1] * top / (rate / 2)))
    found: npt.NDArray[np.float64] = 10.0 * np.log10(power[:, :kept].T + 1e-10)
    return found


def _picture(wave: Samples, rate: int, top: float, loudest: float) -> bytes:
    """A PNG file of the spectrogram, low frequencies at the bottom."""
    written = io.BytesIO()
    image = require("matplotlib.image", "train")
    levels = _spectrum(wave, rate, top)[::-1]
    image.imsave(written, levels, cmap=_COLOURS, vmin=loudest - _RANGE, vmax=loudest, format="png")
    return written.getvalue()
