"""Residual quantization on the Poincaré ball."""

from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.quantizer.residual import KINDS, Quantized, ResidualQuantizer

__all__ = ["KINDS", "Diagnosis", "Quantized", "ResidualQuantizer"]
