"""Weights in one byte each, for small models: rows of integers from -127 to 127, and a scale for each row."""

import torch
from torch import Tensor

_ROWS, _SCALE = ".int8", ".scale"

# Smaller tensors, such as biases, stay as they are.
_FEW = 1024


def compact(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as ``NAME.int8`` and ``NAME.scale``, a scale for the last dimension; the rest unchanged.

    The error of a number is at most half a 127th of the largest of its row.
    """
    found = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.numel() < _FEW:
            found[name] = tensor
            continue
        scale = tensor.detach().abs().amax(-1, keepdim=True).float() / 127.0
        found[name + _ROWS] = (tensor.detach() / scale.clamp(min=1e-30)).round().to(torch.int8)
        found[name + _SCALE] = scale
    return found


def expand(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`compact`: float32, the same bits on every machine. Other weights stay as they are."""
    found = {name: tensor for name, tensor in weights.items() if not name.endswith((_ROWS, _SCALE))}
    for name, rows in weights.items():
        if name.endswith(_ROWS):
            name = name.removesuffix(_ROWS)
            if name + _SCALE not in weights:
                raise ValueError(f"'{name}{_SCALE}' is missing")
            found[name] = rows.float() * weights[name + _SCALE]
    return found
