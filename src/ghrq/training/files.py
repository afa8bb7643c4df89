"""Files that are there whole or not at all, whatever happens while they are written."""

import json
import math
import os
from pathlib import Path
from typing import Any

from ghrq.errors import UserError


def write(path: Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8) under a temporary name, see it safely on the disk, then give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """:func:`write` a value as JSON that any reader takes: NaN and infinite numbers become ``null``."""
    write(path, json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read what :func:`write_json` wrote of a table; ``remedy`` ends the error if that is not what is there."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # neither JSON nor, perhaps, text
        raise UserError(f"{path} is damaged, it is not valid JSON ({error}): {remedy}") from error
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged, it does not hold a table: {remedy}")
    return value


def step_folders(folder: Path) -> list[Path]:
    """The folders ``step-<number>`` in ``folder``, the one of the highest number first."""
    found = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdigit()]
    return sorted(found, key=step_number, reverse=True)


def step_number(path: Path) -> int:
    """The step of a folder ``step-<number>``."""
    return int(path.name.removeprefix("step-"))


def plain(value: Any) -> Any:
    """The same value in JSON's types; numbers of torch and numpy become Python's, NaN and infinity ``None``."""
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


def sync_folder(folder: Path) -> None:
    """Make new and renamed entries of a folder durable, where the system has a way to ask for it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
