"""The random states of a process, saved and restored together: torch, its GPU, numpy, Python."""

import hashlib
import random
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int, purpose: str) -> None:
    """Seed everything for one purpose, independent of how many numbers other purposes have drawn."""
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    mixed = int.from_bytes(digest[:8], "big") >> 1  # torch takes 63 bits
    torch.manual_seed(mixed)
    np.random.seed(mixed % 2**32)
    random.seed(mixed)


def random_state() -> dict[str, Any]:
    """The current states, for :func:`set_random_state`."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "numpy": [name, np.asarray(keys).tolist(), *rest],
        "python": random.getstate(),
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restore what :func:`random_state` returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    np.random.set_state(tuple(state["numpy"]))
    random.setstate(state["python"])
