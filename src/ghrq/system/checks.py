"""Checks of arguments, with clear messages.

Values are checked in eager mode on the CPU only, so that a compiled or GPU step does not wait.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ghrq.system.errors import did_you_mean
from ghrq.system.settings import DEFAULT_STAGES

Choice = TypeVar("Choice", bound=str)
Function = TypeVar("Function", bound=Callable[..., Any])


def known_arguments(elsewhere: Mapping[str, str]) -> Callable[[Function], Function]:
    """Decorate a function: a keyword that it does not have raises a TypeError that names the right one.

    ``elsewhere``: names that other libraries use, and what to write here instead.
    """

    def decorate(function: Function) -> Function:
        names = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() - names:
                hint = f"use {elsewhere[name]}" if name in elsewhere else did_you_mean(name, names, "see help()")
                raise TypeError(f"unknown argument {name}={kwargs[name]!r}: {hint}")
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def one_of(name: str, value: Choice, choices: tuple[Choice, ...]) -> Choice:
    """``value`` if it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def at_least(name: str, value: float, least: int, whole: bool = False) -> None:
    """``value`` must be a finite number of at least ``least``, and a whole one if ``whole``."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise ValueError(f"{name} must be a {'whole ' if whole else ''}number, got {value!r}")
    if not least <= value < math.inf:
        raise ValueError(f"{name} must be {'0 or above' if least == 0 else f'at least {least}'}, got {value}")


def from_to(name: str, value: float, low: float, high: float) -> None:
    """``value`` must be a number from ``low`` to below ``high``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not low <= value < high:
        raise ValueError(f"{name} must be from {low} to below {high}, got {value}")


def inside(name: str, value: float, low: float, high: float) -> None:
    """``value`` must be a number above ``low`` and below ``high``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low < value < high:
        raise ValueError(f"{name} must be a number above {low:g} and below {high:g}, got {value!r}")


def is_tensor(name: str, value: object) -> None:
    """``value`` must be a tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"expected {name} as a torch tensor, got {type(value).__name__}: torch.as_tensor makes one")


def is_bool(name: str, value: object) -> None:
    """``value`` must be True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_vectors(z: Tensor, dim: int, mask: Tensor | None) -> None:
    """``z`` must be ``(..., dim)``, floating point and finite where ``mask (...)`` is true."""
    is_tensor("vectors", z)
    if z.dim() == 0 or z.shape[-1] != dim:
        raise ValueError(f"expected vectors of shape (..., {dim}), got shape {tuple(z.shape)}")
    if not z.dtype.is_floating_point:
        raise ValueError(f"expected floating point vectors, got {z.dtype}")
    if mask is not None:
        is_tensor("a mask", mask)
    if mask is not None and (mask.shape != z.shape[:-1] or mask.dtype != torch.bool):
        raise ValueError(
            f"expected a boolean mask of shape {tuple(z.shape[:-1])}, got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    # A sum is one fast pass, and finite if all values are; it may also overflow, so a second check follows.
    if not has_values(z) or math.isfinite(z.sum().item()):
        return
    bad = ~z.isfinite().all(-1)
    bad = bad if mask is None else bad & mask
    if bad.any():
        first = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"z has NaN or infinite values in {int(bad.sum())} of {bad.numel()} vectors, the first at index {first}: "
            "expected finite numbers"
        )


def count_stages(codebook_size: int | Sequence[int], num_stages: int | None = None) -> int:
    """The number of stages: ``num_stages``, which must fit, or by default as many as there are sizes, or 4.

    ``codebook_size`` is the number of codes of all stages, or one for each.
    """
    if not isinstance(codebook_size, Sequence):
        at_least("codebook_size", codebook_size, 1, whole=True)
        stages = DEFAULT_STAGES if num_stages is None else num_stages
        at_least("num_stages", stages, 1, whole=True)
        return stages
    for size in codebook_size:
        at_least("each size of codebook_size", size, 2, whole=True)
    stages = len(codebook_size) if num_stages is None else num_stages
    at_least("num_stages", stages, 1, whole=True)
    if len(codebook_size) != stages:
        given = list(codebook_size)
        raise ValueError(f"codebook_size={given} has {len(given)} sizes for num_stages={stages}: give one a stage")
    return stages


def stage_sizes(codebook_size: int | Sequence[int], num_stages: int | None = None) -> tuple[int, ...]:
    """The number of codes of each stage; arguments as in :func:`count_stages`."""
    stages = count_stages(codebook_size, num_stages)
    return tuple(codebook_size) if isinstance(codebook_size, Sequence) else (codebook_size,) * stages


def largest_size(codebook_size: int | Sequence[int]) -> int:
    """The most codes that a stage has."""
    return max(codebook_size) if isinstance(codebook_size, Sequence) else codebook_size


def are_integers(name: str, value: Any) -> Tensor:
    """``value``, a tensor, an array or a list, must hold integers, or nothing: it is returned as an int64 tensor."""
    value = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    if value.numel() and (value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool):
        raise ValueError(f"expected integer {name}, got {value.dtype}")
    return value.long()


def check_codes(codes: Tensor, num_stages: int, codebook_size: int | Sequence[int], unused: bool = False) -> None:
    """``codes`` must be integers ``(..., depth)``, ``1 ≤ depth ≤ num_stages``, from 0 to below ``codebook_size``.

    ``codebook_size`` is that of all stages, or one for each. If ``unused``, -1 is allowed and stands for a stage that
    is not used.
    """
    is_tensor("codes", codes)
    if codes.dim() == 0 or not 1 <= codes.shape[-1] <= num_stages:
        raise ValueError(
            f"expected codes of shape (..., depth), depth 1 to {num_stages}, got shape {tuple(codes.shape)}"
        )
    are_integers("codes", codes)
    if not has_values(codes) or not codes.numel():
        return
    least, also = (-1, ", or -1 for a stage that is not used") if unused else (0, "")
    parts: list[tuple[str, Tensor, int]]
    sizes = codebook_size if isinstance(codebook_size, Sequence) else (codebook_size,)
    if len(set(sizes)) == 1:
        parts = [("", codes, sizes[0])]
    else:
        columns = zip(codes.unbind(-1), sizes, strict=False)
        parts = [(f" of stage {stage}", column, size) for stage, (column, size) in enumerate(columns, start=1)]
    for where, part, size in parts:
        low, high = (int(value) for value in part.long().aminmax())
        if low < least or high >= size:
            wrong = low if low < least else high
            raise ValueError(f"codes{where} must be from 0 to {size - 1} (codebook_size={size}){also}, got {wrong}")


def has_values(tensor: Tensor) -> bool:
    """Whether the values can be looked at without waiting: in eager mode on the CPU, outside torch.func."""
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return False
    # Inside torch.func transforms there are no values.
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
