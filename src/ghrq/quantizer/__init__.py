"""Residual quantization on the Poincaré ball."""

from ghrq.quantizer.config import QuantizerConfig, ball_units, kmeans_start
from ghrq.quantizer.depth import DepthDropout
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.quantizer.kinds import KINDS
from ghrq.quantizer.quantized import Quantized, QuantizedDetails
from ghrq.quantizer.residual import ResidualQuantizer

__all__ = [
    "KINDS",
    "DepthDropout",
    "Diagnosis",
    "Quantized",
    "QuantizedDetails",
    "QuantizerConfig",
    "ResidualQuantizer",
    "ball_units",
    "kmeans_start",
]
