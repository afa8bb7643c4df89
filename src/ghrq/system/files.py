"""Atomic writes: a file is complete or not there, whatever happens while it is written."""

import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
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
def draft(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, for a file or a folder, which is renamed to ``path`` unless an error occurs."""
    _remove_orphans(path)
    temporary = path.with_name(_draft_name(path, str(os.getpid())))
    try:
        yield temporary
        if path.is_dir() and temporary.is_dir():  # two steps: a folder cannot replace another
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
        sync(path.parent)
    finally:
        _remove(temporary)


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
    write(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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


def _draft_name(path: Path, process: str) -> str:
    """With the name of the machine, as another one that shares the disk may have a process of the same number."""
    return f".{path.name}.{re.sub('[^A-Za-z0-9-]', '-', platform.node())}.{process}.tmp"


def _remove_orphans(path: Path) -> None:
    """Remove drafts of ``path`` that processes of this machine left when they were killed."""
    with suppress(OSError):  # another user's folder
        for entry in path.parent.iterdir():
            process = entry.suffixes[-2].removeprefix(".") if len(entry.suffixes) > 1 else ""
            if process.isdecimal() and entry.name == _draft_name(path, process) and _is_dead(int(process)):
                _remove(entry)


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
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
