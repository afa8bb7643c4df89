"""Vectors that the tests of the tokenizer share."""

import numpy as np
import pytest

ENGINES = ["kmeans", pytest.param("autoencoder", marks=pytest.mark.slow)]
KINDS = ("ghrq", "naive", "euclidean", "hra-only", "dhste-only")
NETWORK = {"engine": "autoencoder", "hidden": (16,), "latent_dim": 4, "batch_size": 200}


def clustered(rows: int = 600, dim: int = 8, groups: int = 12, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    """Vectors ``(rows, dim)`` in a few groups, away from the origin."""
    random = np.random.default_rng(seed)
    centres = 3.0 + 2.0 * np.random.default_rng(99).standard_normal((groups, dim))
    return (centres[random.integers(0, groups, rows)] + 0.4 * random.standard_normal((rows, dim))).astype(dtype)


def error(tokenizer, x: np.ndarray, depth: int | None = None) -> float:
    """Mean squared error of what comes back, as a share of the variance."""
    back = tokenizer.decode(tokenizer.encode(x, depth))
    return float(np.square(back - x).mean() / x.var(axis=0).mean())
