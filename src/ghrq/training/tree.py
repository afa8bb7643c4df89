"""Split nested Python values into tensors, for safetensors, and the rest, for JSON; and join them again, exactly."""

from typing import Any

from torch import Tensor

# Types that JSON does not have are written as an object with one of these keys.
_TENSOR, _TUPLE, _ITEMS = "__tensor__", "__tuple__", "__items__"


def split(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` in JSON's types. Its tensors are added to ``tensors``, under names that begin with ``name``."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Tensor():
            tensors[name] = value
            return {_TENSOR: name}
        case list():
            return [split(inner, f"{name}.{i}", tensors) for i, inner in enumerate(value)]
        case tuple():
            return {_TUPLE: [split(inner, f"{name}.{i}", tensors) for i, inner in enumerate(value)]}
        case dict() if all(isinstance(key, str) for key in value):
            return {key: split(inner, f"{name}.{key}", tensors) for key, inner in value.items()}
        case dict():  # JSON would turn the keys into strings
            return {_ITEMS: [[key, split(inner, f"{name}.{key}", tensors)] for key, inner in value.items()]}
    raise TypeError(f"{name} is of type {type(value).__name__}: a checkpoint holds tensors, numbers, strings and nests")


def join(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`split`."""
    match value:
        case list():
            return [join(inner, tensors) for inner in value]
        case {"__tensor__": name}:
            return tensors[name]
        case {"__tuple__": inner}:
            return tuple(join(inner, tensors))
        case {"__items__": items}:
            return {key: join(inner, tensors) for key, inner in items}
        case dict():
            return {key: join(inner, tensors) for key, inner in value.items()}
    return value
