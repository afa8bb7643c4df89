"""Random damage to the files of a run, for tests that no damage ends in a traceback."""

import copy
import hashlib
import json
import os
import random
import shutil
import tomllib
from pathlib import Path

import tomli_w

VALUES = [
    None, True, 0, -1, 3, 10**400, 2**63, 1e308, -0.5, float("nan"), "", "x", "\ud800", "\x1b[2J\n", "9" * 50,
    [], [1], [[]], {}, {"x": 1}, {"state": {"x": 1}}, {"__tensor__": []}, {"__tuple__": 3}, {"__items__": [[[], 1]]},
]  # fmt: skip
TEXTS = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"a = " + b"[" * 5000,
    b"\xff\xfe\x00",
    b"a." * 9000,
]


def damage(path: Path, chance: random.Random) -> str:
    """Damage one file, and tell how."""
    ways = [cut, flip, other_text, no_file]
    structured = {".json": json_value, ".toml": toml_value, ".jsonl": jsonl_value}.get(path.suffix)
    way = structured if structured is not None and chance.random() < 0.7 else chance.choice(ways)
    told = f"{path.name}: {way.__name__} {way(path, chance)}"
    if path.name == "state.json" and path.is_file() and chance.random() < 0.7:
        sums = path.with_name("SHA256SUMS")
        if sums.is_file():  # as somebody would who means harm
            new = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  state.json"
            sums.write_text(
                "\n".join(
                    new if "state.json" in line else line for line in sums.read_text("utf-8", "replace").splitlines()
                )
            )
            told += " under its right checksum"
    return told


def cut(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])
    return ""


def flip(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 1, 5, 50])):
        if content:
            content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)
    return ""


def other_text(path: Path, chance: random.Random) -> str:
    content = chance.choice(TEXTS)
    path.write_bytes(content)
    return repr(content[:20])


def no_file(path: Path, chance: random.Random) -> str:
    path.unlink()
    kind = chance.choice(["missing", "folder", "pipe", "broken link", "loop"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("broken link", "loop"):
        path.symlink_to(path.name if kind == "loop" else "nowhere")
    return kind


def json_value(path: Path, chance: random.Random) -> str:
    value, told = changed(json.loads(path.read_text()), chance)
    path.write_text(json.dumps(value))
    return told


def jsonl_value(path: Path, chance: random.Random) -> str:
    lines = path.read_text().splitlines()
    place = chance.randrange(len(lines))
    value, told = changed(json.loads(lines[place]), chance)
    lines[place] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n")
    return told


def toml_value(path: Path, chance: random.Random) -> str:
    value, told = changed(tomllib.loads(path.read_text()), chance)
    try:
        path.write_text(tomli_w.dumps(value))
    except (AttributeError, RecursionError, TypeError, ValueError):  # no TOML: cut it instead
        return cut(path, chance)
    return told


def changed(value, chance: random.Random):
    """``value`` with one of its parts replaced, removed or added, and what was done."""
    places = list(_places(value, ()))
    place = chance.choice(places)
    if not place:
        new = copy.deepcopy(chance.choice(VALUES))
        return new, f"all = {new!r:.60}"
    inside = value
    for key in place[:-1]:
        inside = inside[key]
    new, way = copy.deepcopy(chance.choice(VALUES)), chance.choice(["set", "set", "set", "remove", "nest"])
    if way == "remove":
        del inside[place[-1]]
    else:
        inside[place[-1]] = _nested(chance.choice([3, 150, 300])) if way == "nest" else new
    return value, f"{'.'.join(map(str, place))} {way} {new!r:.60}"


def _nested(depth: int):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def _places(value, path):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


def damaged_copy(run: Path, to: Path, chance: random.Random) -> str:
    """A copy of the run's folder with one to three of its files damaged; what was done to them."""
    shutil.copytree(run, to)
    files = sorted(path for path in to.rglob("*") if path.is_file() and "events" not in path.name)
    # The small files hold most of the meaning.
    weights = [1 if path.suffix in (".safetensors", ".png") else 3 for path in files]
    chosen = dict.fromkeys(chance.choices(files, weights, k=chance.choice([1, 1, 2, 3])))
    return "; ".join(damage(path, chance) for path in chosen if path.is_file())
