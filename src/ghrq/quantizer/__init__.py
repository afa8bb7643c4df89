"""Residual quantization on the Poincaré ball."""

from ghrq.quantizer.config import QuantizerConfig, ball_units, kmeans_start
from ghrq.quantizer.depth import DepthDropout
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.quantizer.kinds import KINDS
from ghrq.quantizer.residual import Quantized, ResidualQuantizer

__all__ = [
    "KINDS",
    "DepthDropout",
    "Diagnosis",
    "Quantized",
    "QuantizerConfig",
    "ResidualQuantizer",
    "ball_units",
    "kmeans_start",
]
