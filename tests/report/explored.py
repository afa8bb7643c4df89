"""Codes for the tests of the explorer."""

import numpy as np
import torch

import ghrq
from ghrq.report.explorer_page import Explored


def small_codes(kind="ghrq", items=400, codes=8, stages=3, name="tok"):
    """Codes of points around a few centres."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    x = random.standard_normal((12, 5))[random.integers(12, size=items)] + 0.4 * random.standard_normal((items, 5))
    z = torch.from_numpy(x.astype(np.float32))
    quantizer = ghrq.ResidualQuantizer(5, codes, stages, kind=kind, scale_control=True)
    quantizer.initialize(z)
    return Explored(name, quantizer.encode(z).numpy(), quantizer.eval())
