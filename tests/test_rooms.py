"""The packages of ``ghrq`` are in a strict order: each imports only from those before it, lazy imports included."""

import ast
from pathlib import Path

import pytest

import ghrq

ORDER = (
    "recipes",
    "system",
    "geometry",
    "optim",
    "quantizer",
    "data",
    "ids",
    "nets",
    "models",
    "metrics",
    "training",
    "tokenizer",
    "search",
    "report",
    "tasks",
    "cli",
)
ROOT = Path(ghrq.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem == "optim")


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path):
    """The rooms of all imports in a module, whether at its top, in a function or for type checking only."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "ghrq" and not rest.startswith("__"):
                yield rest.partition(".")[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_rooms_before_it(path):
    wrong = [other for other in imported_rooms(path) if ORDER.index(other) > ORDER.index(room(path))]
    assert not wrong, f"{room(path)} comes before {', '.join(wrong)}"


def test_every_module_is_in_a_room():
    assert {room(path) for path in MODULES} <= set(ORDER)
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "optim.py"}
