"""Output files and folders of commands: checked before the work, then written atomically."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from ghrq.system import files
from ghrq.system.errors import UserError
from ghrq.system.inputs import InputFile
from ghrq.system.progress import Progress

# What pages of ghrq have among their first bytes.
_GENERATOR, _HEAD = b'<meta name="generator" content="ghrq">', 400


def check_output(path: Path, formats: Sequence[str] | None, inputs: Sequence[Path] = (), replace: bool = True) -> None:
    """Raise an error if ``path`` cannot be written.

    ``formats`` are the extensions it may have, ``None`` if it is a folder; ``inputs`` are files that it must not
    overwrite. Without ``replace``, a file that is there is an error.
    """
    if formats is not None and path.suffix.lower() not in formats:
        raise UserError(f"cannot tell the format of {path}: expected a name that ends in {', '.join(formats)}")
    target = files.link_target(path)
    check_not_input(path, inputs)
    if formats is not None and path.is_dir():
        raise UserError(f"{path} is a folder: give the output the name of a file")
    if formats is None and path.is_file():
        raise UserError(f"{path} is a file: give --out the name of a folder")
    _check_parent(target)
    if not replace and path.exists():
        raise UserError(f"{path} is there already: name another file, or replace it with --force")
    try:
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): give --out a folder you may write to") from error


def check_not_input(path: Path, inputs: Sequence[Path]) -> None:
    """Raise an error if writing ``path`` would overwrite one of the ``inputs``: it is the same, or a folder around."""
    for given in inputs:
        if Path(os.path.realpath(given)).is_relative_to(os.path.realpath(path)):
            raise UserError(f"{path} would overwrite the input {given}: give the output another name")


def check_page(path: Path, inputs: Sequence[Path] = ()) -> None:
    """:func:`check_output` for a page: one that ghrq wrote is replaced, no other file is."""
    check_output(path, (".html", ".htm"), inputs)
    check_own_page(path)


def check_own_page(path: Path) -> None:
    """Raise an error if there is a file at ``path`` that is no page of ghrq."""
    if path.exists():
        with InputFile(path).reading("a page", "name another file"), path.open("rb") as file:
            if _GENERATOR not in file.read(_HEAD):
                raise UserError(f"{path} is there already, and is no page of ghrq: name another file")


@contextmanager
def replacing(path: Path, replace: bool = True) -> Iterator[Path]:
    """:func:`ghrq.system.files.draft`, with errors that tell the user what to do."""
    _check_parent(files.link_target(path))
    with files.telling(path), files.draft(path, replace) as temporary:
        yield temporary


def lock_file(path: Path) -> Path:
    """The lock of ``path``, beside it."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Only one process at a time changes ``path``; another one says so and waits. The lock of a killed one is free."""
    target = files.link_target(path)
    _check_parent(target)
    lock = filelock.FileLock(lock_file(target))
    with files.telling(lock_file(target), "choose a folder you may write to"):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            progress.note(f"note: another process is changing {path}: waiting for it")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_parent(path: Path) -> None:
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"cannot write {path}: {path.parent} is a file, not a folder: name another place")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {path.parent}: create it first")
