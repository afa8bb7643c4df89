"""Atomic writes: a file is complete or not there, whatever happens while it is written."""

import ctypes
import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
import sys
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ghrq.system.errors import UserError

# Of JSON and TOML that is not trusted: tables in tables, bits of an integer, dots in TOML (tomllib needs a time that
# grows with the square of the dots of a key).
_DEEPEST, _LARGEST, _DOTS = 100, 1000, 5000


@contextmanager
def draft(path: Path, replace: bool = True) -> Iterator[Path]:
    """A temporary path beside ``path``, for a file or a folder, which replaces ``path`` unless an error occurs.

    A symbolic link stays: what it leads to is replaced. With ``replace=False`` a folder that is not empty is an error.
    """
    path = link_target(path)
    check_not_current(path)
    restore(path)
    for leftover in _leftovers(path):
        _remove(leftover)
    temporary = path.with_name(_temporary_name(path, "tmp"))
    try:
        yield temporary
        try:
            os.replace(temporary, path)
        except OSError:  # only an empty folder can be replaced like this
            if not (replace and temporary.is_dir() and path.is_dir()):
                raise
            _replace_folder(path, temporary)
        sync(path.parent)
    finally:
        _remove(temporary)


def link_target(path: Path) -> Path:
    """What a write to ``path`` replaces: ``path``, or the file or folder that it leads to as a symbolic link."""
    with telling(path, "name another"):  # a name that is too long
        target = Path(os.path.realpath(path)) if path.is_symlink() or path.name in ("", "..") else path
        if target.is_symlink():
            raise UserError(f"{path} is a symbolic link that leads to itself: remove it, or name another")
        if target.exists() and not target.is_dir() and not target.is_file():
            raise UserError(f"{path} is neither a file nor a folder, but a device or pipe: name another")
    return target


def check_not_current(path: Path) -> None:
    """Raise an error if ``path`` is the current folder or above it: replaced, it would be gone for the user's shell."""
    if path.is_dir() and Path.cwd().is_relative_to(os.path.realpath(path)):
        raise UserError(f"{path} is the current folder, or one above it, and cannot be replaced: name another folder")


def restore(path: Path) -> None:
    """Bring back the folder ``path`` if a process was killed while it replaced it; see :func:`_replace_folder`."""
    path = Path(os.path.realpath(path))
    with suppress(OSError):  # another process was faster
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            for old in (entry for entry in _leftovers(path) if entry.suffix == ".old"):
                os.rename(old, path)
                return


def write(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a file (text as UTF-8, bytes, or pieces of bytes) atomically, and flush it to the disk."""
    if isinstance(content, str | bytes):
        content = [content.encode() if isinstance(content, str) else content]
    with draft(path) as temporary, temporary.open("wb") as file:
        for piece in content:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def telling(path: Path | str, remedy: str = "make room, or choose another") -> Iterator[None]:
    """Turn an ``OSError`` into a message that names ``path``, what could not be written, and the ``remedy``."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}): {remedy}") from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> None:
    """:func:`write` a value as standard JSON: NaN and infinite numbers become ``null``."""
    write(path, json_text(value))


def json_text(value: Any) -> str:
    """A value as standard JSON: NaN and infinite numbers become ``null``."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object; if the file is damaged, the message ends with ``remedy``."""
    try:
        value = parse_json(read_text(path))
    except ValueError as error:  # not JSON, or not UTF-8
        raise UserError(f"{path} is damaged, it is not valid JSON ({error}): {remedy}") from error
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged, it does not hold a table: {remedy}")
    return value


def read_text(path: Path) -> str:
    """The text of a regular file in UTF-8. Anything else is an ``OSError``: a pipe would block."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_text("utf-8")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text that is not trusted: whatever is wrong with it is a ``ValueError``."""
    return _parse(json.loads, text)


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text that is not trusted: whatever is wrong with it is a ``ValueError``."""
    if text.count(".") > _DOTS:
        raise ValueError(f"it has more than {_DOTS:,} dots, too many for settings")
    table: dict[str, Any] = _parse(tomllib.loads, text)
    return table


def _parse(loads: Callable[[Any], Any], text: str | bytes) -> Any:
    """``loads(text)``, no deeper than recursive functions can follow, and with integers that fit into a float."""
    try:
        value = loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST):
        if any(isinstance(each, int) and each.bit_length() > _LARGEST for each in level):
            raise ValueError("it has an integer of more than 300 digits")
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [item for items in inner for item in items]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def plain(value: Any) -> Any:
    """``value`` in JSON's types: tensors and arrays become lists, NaN and infinity ``None``."""
    match value:
        case dict():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case float():
            return float(value) if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case Path():
            return value.as_posix()
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return plain(value.tolist())
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as JSON")


def sync(path: Path) -> None:
    """Flush a file, or the new and renamed entries of a folder, to the disk, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_folder(path: Path, new: Path) -> None:
    """Put the folder ``new`` in the place of the folder ``path``, in one step where the system can.

    Elsewhere in two; if the process ends between them, :func:`restore` brings the old folder back.
    """
    if _exchange(path, new):  # the old one has the temporary name now
        return
    old = path.with_name(_temporary_name(path, "old"))
    try:
        os.rename(path, old)
        os.rename(new, path)
    finally:
        if path.exists():
            _remove(old)
        else:
            os.rename(old, path)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; returns whether the system could."""
    paths, here, exchange = (os.fsencode(one), os.fsencode(other)), -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "renameat2"):
        return bool(library.renameat2(here, paths[0], here, paths[1], exchange) == 0)
    if sys.platform == "darwin" and hasattr(library := ctypes.CDLL(None), "renamex_np"):
        return bool(library.renamex_np(*paths, exchange) == 0)
    return False


def _temporary_name(path: Path, suffix: str) -> str:
    """With the name of the machine, as another one that shares the disk may have a process of the same number.

    And with the thread: two of one process may write the same file.
    """
    return f".{path.name}.{_machine()}.{os.getpid()}-{threading.get_native_id()}.{suffix}"


def _machine() -> str:
    return re.sub("[^A-Za-z0-9-]", "-", platform.node())


def _leftovers(path: Path) -> list[Path]:
    """Drafts of ``path`` (``.tmp``) and replaced folders (``.old``) that killed processes of this machine left.

    The newest comes first. A draft may have been of another draft; names without a machine are those of ghrq 0.1.0.
    """
    ending = rf"\.(?:{re.escape(_machine())}\.)?(\d+)(?:-\d+)?\.(?:tmp|old)"
    name = re.compile(rf"\.+{re.escape(path.name)}(?:{ending})+")
    with suppress(OSError):  # another user's folder, or none
        matches = [(entry, name.fullmatch(entry.name)) for entry in path.parent.iterdir()]
        dead = [entry for entry, match in matches if match and _is_dead(int(match[1]))]
        return sorted(dead, key=lambda entry: entry.lstat().st_ctime, reverse=True)
    return []


def _is_dead(process: int) -> bool:
    if os.name == "nt":  # where signal 0 ends a process
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # another user's process; not a process number
        pass
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # the next draft removes what is left
    else:
        path.unlink(missing_ok=True)
