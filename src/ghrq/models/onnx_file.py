"""A module as an ONNX file."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ghrq.system import files
from ghrq.system.errors import require


def write_onnx(module: nn.Module, given: dict[str, Tensor], shapes: tuple[Any, ...], output: str, path: Path) -> None:
    """Write ``module``, in eval mode, to ``path``.

    ``given`` are examples of its arguments by their names in the file, ``shapes`` the dimensions of each that may vary,
    as :func:`torch.export.export` takes them, ``output`` the name of what it gives.
    """
    require("onnxscript", "export")
    with torch.no_grad():
        program = torch.export.export(module, tuple(given.values()), dynamic_shapes=shapes)
    made = torch.onnx.export(
        program, dynamo=True, input_names=list(given), output_names=[output], optimize=True, verbose=False
    )
    assert made is not None
    files.write(path, made.model_proto.SerializeToString())
