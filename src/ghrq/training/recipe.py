"""Recipes: all settings of a run in one TOML file, checked before anything starts.

With ``extends = "other.toml"`` (relative to the file) or ``extends = "wordnet/cpu"`` (a shipped recipe) a file needs to
have only the keys that differ. ``name`` is not inherited; by default it is made from the file's name.
"""

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from ghrq.recipes import shipped
from ghrq.system import files
from ghrq.system.errors import UserError, did_you_mean
from ghrq.system.settings import Precision, Section
from ghrq.training.task import task_class

Tracker = Literal["tensorboard", "wandb", "mlflow"]

Place = tuple[str | int, ...]
"""Of a value in a recipe: the names of the tables around it and its own, and its number in a list."""

_NAME = r"^[^/\\]+$"

# Of names in a key, and of recipes that extend each other.
_DEEPEST = 20

# Stands for None where a recipe is shown.
_NOT_SET = "<not set>"


class Training(Section):
    """Settings of the training loop."""

    log_every: Annotated[int, Field(ge=1)] = 50
    """Steps between lines of metrics.jsonl; each has the means since the line before."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 1000
    """Steps between checkpoints, at most."""
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds between checkpoints, at most; ``inf`` leaves it to ``checkpoint_every``."""
    clip: Annotated[float, Field(gt=0)] = math.inf
    """Largest norm of the gradient of all parameters; ``inf`` does not clip. A stage may have its own."""
    precision: Precision = "fp32"
    """``bf16`` trains under autocast; parameters stay float32. A stage may have its own."""
    trackers: tuple[Tracker, ...] = ("tensorboard",) if find_spec("tensorboard") else ()
    """Where metrics go besides metrics.jsonl."""


class Transformer(Section):
    """Settings of a Transformer, for the sections of tasks that train one."""

    width: Annotated[int, Field(ge=1)] = 256
    heads: Annotated[int, Field(ge=1)] = 8
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    warmup: Annotated[int, Field(ge=0)] = 200
    """Steps of linear warm-up, before the cosine decay to 0."""

    @field_validator("heads")
    @classmethod
    def _heads_share_the_width(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("width", heads)
        if width % heads:
            raise PydanticCustomError("divisor", "a divisor of {other}", {"other": "width", "value": width})
        return heads


class Recipe(Section):
    """The keys of every recipe. Each task adds its own sections in a subclass."""

    task: str
    """A task of ghrq, or your own as ``module:Class``."""
    name: Annotated[str, Field(pattern=_NAME)]
    """Names the folder of a run, if no other is given."""
    seed: Annotated[int, Field(ge=0)] = 0
    axes: dict[str, str | int | float] = Field(default_factory=dict)
    """The labels of the run in a study, see :mod:`ghrq.training.study`. They do not change the training."""
    training: Training = Training()

    def toml(self) -> str:
        """The recipe as TOML, with all defaults."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def described(self) -> str:
        """:meth:`toml` for a reader: keys without a value are there too, as comments."""
        text = tomli_w.dumps(_marked(self.model_dump(mode="json")))
        return re.sub(rf'^(.+) = "{_NOT_SET}"$', r"# \1 is not set", text, flags=re.MULTILINE)

    def flat(self) -> dict[str, Any]:
        """The recipe as one table, ``{"quantizer.kind": "ghrq", …}``, with all defaults."""
        return flatten(self.model_dump(mode="json"))


def load_recipe(
    source: str | Path,
    overrides: Sequence[str] = (),
    keys: Mapping[str, Any] | None = None,
    *,
    import_task: bool = True,
) -> Recipe:
    """Read a recipe, follow what it extends, apply ``overrides``, and check all of it.

    Args:
        source: a TOML file, or the name of a shipped recipe such as ``"wordnet/demo"``.
        overrides: ``["quantizer.kind=naive"]``, the value in TOML or else a string.
        keys: the same of a study, ``{"quantizer.kind": "naive"}``.
        import_task: a recipe may name any module as its task, which is imported. ``False``, for recipes of unknown
            origin: that is an error, unless the module has been imported before.

    """
    path = _locate(source, Path())
    recipe = _Draft()
    for origin, table in _chain(path, ()):
        recipe.merge(table, origin)
    if "name" not in recipe.table:
        name = next((name for name, place in shipped().items() if place == path), path.stem)
        recipe.merge({"name": name.replace("/", "-")}, str(path))
    for key, value in (keys or {}).items():
        recipe.merge(_nested(key.split("."), value), "the study")
    for override in overrides:
        recipe.merge(_parse_override(override), f"--set {override}")
    if not isinstance(recipe.table.get("task"), str):
        raise UserError(f"{path}: the key 'task' is missing or no text: write for example task = \"wordnet\"")
    model = task_class(recipe.table["task"], recipe.origin(("task",), str(path)), import_task).Recipe
    try:
        # The strict rules of JSON fit TOML: a list for a tuple is right, a string for a number is not.
        return model.model_validate_json(json.dumps(recipe.table, default=str), strict=True)
    except ValidationError as error:
        raise UserError("\n".join(recipe.explain(error.errors(), model, str(path)))) from None


class _Draft:
    """The merged table of a recipe, and the file or option that each key came from."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self._origins: dict[Place, str] = {}
        self._order: list[str] = []

    def merge(self, table: dict[str, Any], origin: str) -> None:
        self._order.append(origin)
        self.table = self._merged(self.table, table, origin, ())

    def _merged(self, old: Any, new: Any, origin: str, path: tuple[str, ...]) -> Any:
        self._origins[path] = origin
        if not isinstance(new, dict):
            return new
        old = old if isinstance(old, dict) else {}
        return old | {key: self._merged(old.get(key), value, origin, (*path, key)) for key, value in new.items()}

    def origin(self, place: Place, default: str) -> str:
        """The file or option that last set ``place`` or the table around it."""
        around = (self._origins.get(place[:end]) for end in range(len(place), 0, -1))
        return next(filter(None, around), default)

    def explain(self, errors: Sequence[ErrorDetails], model: type[BaseModel], default: str) -> list[str]:
        """A line for each key that is wrong; pydantic has an error for each type that the key may have."""
        keys = set(_keys(model, ()))
        by_key: dict[Place, list[ErrorDetails]] = {}
        for details in errors:
            by_key.setdefault(self._key(details["loc"], keys), []).append(details)
        return [self._explain(place, details, model, default) for place, details in by_key.items()]

    def _key(self, loc: Place, keys: Set[Place]) -> Place:
        """The key that ``loc`` is about, with places in its list, and without the types that pydantic tried."""
        known = next(end for end in range(len(loc), -1, -1) if loc[:end] in keys or loc[:end] in self._origins)
        return *loc[:known], *takewhile(lambda part: isinstance(part, int), loc[known:])

    def _explain(self, place: Place, errors: Sequence[ErrorDetails], model: type[BaseModel], default: str) -> str:
        details = errors[0]
        origin, key = self.origin(place, default), ".".join(map(str, place))
        if details["type"] == "extra_forbidden":
            return f"{origin}: unknown key '{key}'; {_nearest(model, tuple(map(str, place)))}"
        if details["type"] == "missing":
            return f"{origin}: the key '{key}' is missing"
        if details["type"] == "value_error" and isinstance(details["input"], dict):  # a section, by a whole sentence
            return f"{origin}: {key}: {details['msg'].removeprefix('Value error, ')}"
        expected = ", or ".join(dict.fromkeys(map(_expected, errors)))
        if details["type"] == "model_type":
            inner = next(path for path in _keys(model, ()) if len(path) > len(place) and path[: len(place)] == place)
            expected = f"a table, for example {'.'.join(inner)}=..."
        elif details["type"] in ("divisor", "stages"):
            other = (*place[:-1], details["ctx"]["other"])
            origin = max(self.origin(other, default), origin, key=self._order.index)  # what was said last is new
            told = f"{'.'.join(map(str, other))} = {details['ctx']['value']}"
            if details["type"] == "divisor":
                expected = f"a divisor of {told}: change one of the two"
            else:
                right = details["ctx"]["right"]
                expected = f"{right}, one for each size of {told}: {_setting(origin, f'{key}={right}')}"
        elif details.get("ctx", {}).get("pattern") == _NAME:
            expected = "a name without / and \\"
        given = details["input"]
        shown = str(given) if isinstance(given, float) else json.dumps(given, default=str)  # inf, not Infinity
        return f"{origin}: {key} = {shown}: expected {expected}"


def _expected(details: ErrorDetails) -> str:
    if details["type"] == "too_short":
        least = details["ctx"]["min_length"]
        return f"at least {'one' if least == 1 else least}"
    return details["msg"].removeprefix("Input should be ").removeprefix("Value error, ")


def _setting(origin: str, setting: str) -> str:
    """What to do, where ``origin`` is, to have another setting as well."""
    return f"add --set {setting}" if origin.startswith("--set") else f"set {setting} there too"


def _chain(path: Path, seen: tuple[Path, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables to merge, from the last ancestor to ``path`` itself."""
    if len(seen) > _DEEPEST:
        raise UserError(f"{path}: more than {_DEEPEST} recipes extend each other: put them into one file")
    if path in seen:
        circle = " → ".join(map(str, (*seen[seen.index(path) :], path)))
        raise UserError(f"recipes extend each other in a circle: {circle}")
    try:
        table = files.parse_toml(files.read_text(path))
    except ValueError as error:  # not TOML, or not UTF-8
        raise UserError(f"{path} is not valid TOML: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read the recipe {path}: {error.strerror}") from error
    base = table.pop("extends", None)
    if base is not None:
        if not isinstance(base, str):
            raise UserError(f"{path}: extends = {base!r}: expected the path or name of one recipe, as a string")
        for origin, inherited in _chain(_locate(base, path.parent, f"{path}: "), (*seen, path)):
            yield origin, {key: value for key, value in inherited.items() if key != "name"}
    yield str(path), table


def _locate(source: str | Path, folder: Path, context: str = "") -> Path:
    """The file of ``source``: a path, relative to ``folder``, or the name of a shipped recipe."""
    path = folder / source
    if path.is_file():
        return path.resolve()
    recipes = shipped()
    if str(source) in recipes:
        return recipes[str(source)].resolve()
    if str(source).endswith(".toml"):
        raise UserError(
            f"{context}there is no recipe file {path}: check the path, or name a shipped recipe: "
            "'ghrq recipes' lists what is shipped"
        )
    hint = did_you_mean(str(source), recipes, "name a .toml file or a shipped recipe:", cutoff=0.4)
    raise UserError(f"{context}there is no recipe '{source}'; {hint} 'ghrq recipes' lists what is shipped")


def _parse_override(override: str) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts) or len(parts) > _DEEPEST:
        raise UserError(f"--set {override}: expected key=value, for example --set quantizer.kind=naive")
    try:
        table = files.parse_toml(f"value = {text}")
        value: Any = table["value"] if len(table) == 1 else text
    except ValueError:
        value = text.strip()
        if value.startswith(("[", "{")):  # most likely the shell removed its quotes
            raise UserError(
                f"--set {override}: the value is not valid TOML; quote all of it, so that the shell keeps its quotes: "
                f"--set '{_quoted(key, value)}'"
            ) from None
    return _nested(parts, value)


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """``{"a": {"b": value}}`` for the keys a and b."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, ``{"quantizer.kind": "ghrq", …}``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _marked(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with a mark where there is no value, which TOML cannot write."""
    return {
        key: _marked(value) if isinstance(value, dict) else _NOT_SET if value is None else value
        for key, value in table.items()
    }


def _quoted(key: str, value: str) -> str:
    """``key=value`` with quotes around the words of a list; a general example if that is not valid either."""
    words = re.sub(r"[A-Za-z_][\w./-]*", r'"\g<0>"', value)
    try:
        files.parse_toml(f"value = {words}")
    except ValueError:
        return 'training.trackers=["wandb"]'
    return f"{key}={words}"


def _nearest(model: type[BaseModel], place: tuple[str, ...]) -> str:
    """A hint at the right key: the closest in the same table, or one of a similar name in another table."""
    keys = list(_keys(model, ()))
    siblings = [key for key in keys if key[:-1] == place[:-1]]
    near = difflib.get_close_matches(place[-1], [key[-1] for key in siblings], n=1)
    if near:
        return f"did you mean '{'.'.join((*place[:-1], near[0]))}'?"
    elsewhere = [key for key in keys if difflib.get_close_matches(place[-1], [key[-1]], cutoff=0.8)]
    if elsewhere:
        return f"did you mean '{'.'.join(elsewhere[0])}'?"
    table = f"'{'.'.join(place[:-1])}'" if len(place) > 1 else "the recipe"
    return f"{table} has the keys {', '.join(key[-1] for key in siblings)}"


def _keys(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of every key of a recipe, tables included."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _keys(inner, (*path, name))
