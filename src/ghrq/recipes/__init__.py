"""The recipes that ship with the package: ``wordnet/demo`` is the file ``wordnet/demo.toml`` of this folder."""

from importlib.resources import files
from pathlib import Path

# Recipes are read as ordinary files, so that one may extend another by a relative path.
FOLDER = Path(str(files(__name__)))


def shipped() -> dict[str, Path]:
    """Every shipped recipe by its name, in alphabetical order."""
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in sorted(FOLDER.rglob("*.toml"))}


def summary(path: Path) -> str:
    """The first comment line of a recipe, which says what it is for."""
    first = path.read_text("utf-8").partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else ""
