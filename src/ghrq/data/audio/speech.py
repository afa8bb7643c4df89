"""Folders of recordings, and which of them are for training, validation and test: never a speaker in two of these.

Known layouts:

- LibriSpeech and LibriTTS, ``SUBSET/SPEAKER/CHAPTER/FILE``: a file ``speakers.json`` in the folder names the speakers
  of each split, ``{"train": ["84", …], "validation": […], "test": […]}``; without it the subsets ``train-…``, ``dev-…``
  and ``test-…`` are the splits.
- ``train/``, ``validation/`` and ``test/``, each with any files inside.
- Any other folder: its direct subfolders are the speakers, or each file counts as one. A tenth of them, at least one,
  is for validation and another tenth for test. That depends on their names only.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from ghrq.data.audio.files import AudioFile
from ghrq.data.audio.resample import Resampler
from ghrq.data.wheels import data_folder
from ghrq.system import files
from ghrq.system.errors import UserError, counted
from ghrq.system.progress import make_progress

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

SPEAKERS = "speakers.json"
DEFAULT = "speech/LibriSpeech"
"""Where in ``GHRQ_DATA`` recordings are looked for."""

_EXTENSIONS = (".flac", ".wav", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".w64", ".caf")
_SUBSETS: dict[Split, str] = {"train": "train-", "validation": "dev-", "test": "test-"}
_HELD_OUT = 0.1


class Recording(NamedTuple):
    """A file, and how long it is."""

    path: Path
    rate: int
    frames: int
    """Samples of one channel."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.frames / self.rate


class Speech(NamedTuple):
    """The recordings of each split, in the order of their paths."""

    train: Sequence[Recording]
    validation: Sequence[Recording]
    test: Sequence[Recording]


def load_speech(source: str = "") -> Speech:
    """The recordings in the folder ``source``, by default ``speech/LibriSpeech`` in ``GHRQ_DATA``; see the module.

    Empty ones are left out, with a note. Only the headers are read: :func:`check_recordings` reads all.
    """
    root = _root(source)
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in _EXTENSIONS and path.is_file())
    if not paths:
        raise UserError(f"{root} has no audio files ({', '.join(_EXTENSIONS)}): name a folder with recordings")
    parts = _splits(root, paths)
    for split, part in parts.items():
        if not part:
            raise UserError(f"{root} has no recordings for {split}: add speakers, or a file {SPEAKERS} that names them")
    progress = make_progress()
    with progress.patient_bar(f"reading {root.name}", sum(map(len, parts.values())), unit="files") as bar:

        def recording(path: Path) -> Recording:
            with _wanted(), AudioFile(path) as audio:
                bar.advance()
                return Recording(path, audio.rate, audio.frames)

        found = Speech(*([recording(path) for path in parts[split]] for split in SPLITS))
    empty = [one.path for part in found for one in part if not one.frames]
    if empty:
        progress.note(f"note: {counted(len(empty), 'empty recording')} left out: {empty[0]}{' …' * (len(empty) > 1)}")
    speech = Speech(*([one for one in part if one.frames] for part in found))
    for split, there, kept in zip(SPLITS, found, speech, strict=True):
        if not kept:
            raise UserError(f"{root} has only empty recordings for {split}, such as {there[0].path}: replace them")
    return speech


def check_recordings(speech: Speech) -> None:
    """Read every recording once: an error names one that is damaged, or has samples that are no sound."""
    recordings = [one for part in speech for one in part]
    with make_progress().patient_bar("checking recordings", len(recordings), "files") as bar:
        for recording in recordings:
            with _wanted(), AudioFile(recording.path) as audio:
                for _ in audio.blocks():
                    pass
            bar.advance()


@contextmanager
def _wanted() -> Iterator[None]:
    """Around code that opens or reads one of the recordings: errors say what that means for training."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}; replace or remove this recording before training") from error


def read(recording: Recording, rate: int, seconds: float | None = None) -> Tensor:
    """The first ``seconds``, or all, of a recording at ``rate``, channels averaged: ``(T,)`` float32."""
    blocks, left = [], None if seconds is None else round(seconds * recording.rate)
    with AudioFile(recording.path) as audio:
        resampler = Resampler(audio.rate, rate, 1)
        for block in audio.blocks():
            mono = block.mean(1, keepdims=True)[:left]
            blocks.append(resampler.push(mono))
            left = None if left is None else left - len(mono)
            if left == 0:
                break
        blocks.append(resampler.push(np.zeros((0, 1), np.float32), last=True))
    return torch.cat([torch.from_numpy(block[:, 0]) for block in blocks])


def _root(source: str) -> Path:
    if source:
        root = Path(source).expanduser()
        if not root.is_dir():
            raise UserError(f"there is no folder {source}: name one with recordings as data.source")
        return root
    data = data_folder()
    if data is None or not (data / DEFAULT).is_dir():
        raise UserError(
            f"no recordings: name their folder, --set data.source=FOLDER, or put LibriSpeech into {DEFAULT} "
            "of the folder that GHRQ_DATA names"
        )
    return data / DEFAULT


def _splits(root: Path, paths: Sequence[Path]) -> dict[Split, list[Path]]:
    named = root / SPEAKERS
    if named.is_file():
        return _by_speakers_file(named, paths)
    tops = {path.relative_to(root).parts[0] for path in paths}
    if set(SPLITS) <= tops:
        return {split: [path for path in paths if path.relative_to(root).parts[0] == split] for split in SPLITS}
    if all(any(top.startswith(prefix) for top in tops) for prefix in _SUBSETS.values()):
        return {
            split: [path for path in paths if path.relative_to(root).parts[0].startswith(prefix)]
            for split, prefix in _SUBSETS.items()
        }
    return _by_chance(root, paths)


def _by_speakers_file(named: Path, paths: Sequence[Path]) -> dict[Split, list[Path]]:
    remedy = 'expected {"train": ["84", …], "validation": […], "test": […]}, no speaker in two'
    table = files.read_json(named, remedy)
    lists = {split: table.get(split) for split in SPLITS}
    if not all(isinstance(names, list) for names in lists.values()):
        raise UserError(f"{named} does not name the speakers of all splits: {remedy}")
    owner: dict[str, Split] = {}
    for split, names in lists.items():
        for name in names or ():
            if owner.setdefault(str(name), split) != split:
                raise UserError(f"{named} has speaker {name} in {owner[str(name)]} and {split}: {remedy}")
    parts: dict[Split, list[Path]] = {split: [] for split in SPLITS}
    for path in paths:
        speaker = next((part for part in path.relative_to(named.parent).parts[:-1] if part in owner), None)
        if speaker is not None:
            parts[owner[speaker]].append(path)
    return parts


def _by_chance(root: Path, paths: Sequence[Path]) -> dict[Split, list[Path]]:
    def speaker(path: Path) -> str:
        return path.relative_to(root).parts[0]

    names = _shuffled({speaker(path) for path in paths})
    if len(names) < len(SPLITS):
        raise UserError(
            f"{root} has {len(names)} speakers (subfolders, or files without one): three are needed, for training, "
            "validation and test"
        )
    held = max(1, int(_HELD_OUT * len(names)))
    chosen = {"validation": names[:held], "test": names[held : 2 * held], "train": names[2 * held :]}
    return {split: [path for path in paths if speaker(path) in set(chosen[split])] for split in SPLITS}


def _shuffled(names: Iterable[str]) -> list[str]:
    """In an order that depends on each name only: a new one changes the place of few others."""
    return sorted(names, key=lambda name: (hashlib.sha256(name.encode()).hexdigest(), name))
