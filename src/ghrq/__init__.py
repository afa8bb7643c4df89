"""Hyperbolic residual quantization that recomposes exactly."""

from ghrq import ball
from ghrq.quantizer import ResidualQuantizer

__version__ = "0.1.0"
__all__ = ["ResidualQuantizer", "ball"]
