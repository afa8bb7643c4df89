"""Residual quantization on the Poincaré ball."""

from ghrq.quantizer.config import QuantizerConfig, ball_units, kmeans_start
from ghrq.quantizer.diagnosis import Diagnosis
from ghrq.quantizer.residual import KINDS, Quantized, ResidualQuantizer

__all__ = ["KINDS", "Diagnosis", "Quantized", "QuantizerConfig", "ResidualQuantizer", "ball_units", "kmeans_start"]
