"""Hyperbolic residual quantization that recomposes exactly."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghrq import models, search
    from ghrq.geometry import ball
    from ghrq.quantizer import ResidualQuantizer
    from ghrq.tokenizer import Tokenizer

__version__ = "0.2.0.dev0"
__all__ = ["ResidualQuantizer", "Tokenizer", "ball", "models", "search"]

# Imported when they are first asked for: `ghrq --help` need not wait for torch.
_PACKAGES = {"ball": "ghrq.geometry.ball", "models": "ghrq.models", "search": "ghrq.search"}
_HOMES = {"ResidualQuantizer": "ghrq.quantizer", "Tokenizer": "ghrq.tokenizer"}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(_PACKAGES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'ghrq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
