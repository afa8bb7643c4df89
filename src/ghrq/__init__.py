"""Hyperbolic residual quantization that recomposes exactly."""

from ghrq import ball

__version__ = "0.1.0"
__all__ = ["ball"]
