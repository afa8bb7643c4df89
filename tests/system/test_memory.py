"""Freed memory stays with the process: no step pays for it twice."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ghrq import ResidualQuantizer, Tokenizer, cli
from ghrq.system import memory
from ghrq.system.errors import UserError
from ghrq.training.run import Run
from ghrq.training.train import evaluate, train

# What a step does, seen by malloc: blocks of many sizes, all alive together, all freed. glibc by itself maps those of
# more than 32 MiB anew each time.
MIB = (1, 12, 48, 3, 24, 5, 8, 40)
PAGES = sum(MIB) * 256
STEPS = f"""
import ctypes, resource, torch
from ghrq.system.memory import keep_freed

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: else a page may be 512
kept = %s
def step():
    blocks = [torch.ones(size * 2**18) for size in {MIB}]
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(int(kept), (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""

recent_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 36),
    reason="other C libraries cannot be asked, older ones keep smaller blocks only",
)


def _pages(keep: str, **variables: str) -> tuple[bool, int]:
    """Whether memory is kept, and the pages that a step has to get from the system."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", STEPS % keep], env=outside | variables, capture_output=True, text=True, check=True
    )
    kept, pages = map(int, done.stdout.split())
    return bool(kept), pages


@pytest.mark.slow
@recent_glibc
def test_a_step_gets_hardly_any_pages_from_the_system() -> None:
    assert _pages("False")[1] > PAGES / 4
    kept, pages = _pages("keep_freed()")
    assert kept
    assert pages < PAGES / 10


@pytest.mark.slow
@recent_glibc
def test_the_users_own_settings_stay() -> None:
    kept, pages = _pages("keep_freed()", MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept
    assert pages > PAGES / 2


def test_training_and_evaluation_ask_for_it(tiny, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("ghrq.system.memory.keep_freed", lambda: asked.append(True))
    train(tiny(), tmp_path / "run")
    evaluate(Run.open(tmp_path / "run"))
    assert len(asked) == 2


def test_what_does_not_fit_is_told_with_both_sizes() -> None:
    there = memory.available()
    assert there is not None
    assert there > 2**20
    memory.check_room(2**20, "codes", "lower one")
    with pytest.raises(UserError, match=r"^codes would take [\d,]+ TB of memory, [\d.]+ GB are free: lower one$"):
        memory.check_room(10**15, "codes", "lower one")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResidualQuantizer(4, num_stages=10**9),
        lambda: ResidualQuantizer(4, codebook_size=10**12),
        lambda: ResidualQuantizer(10**12),
        lambda: ResidualQuantizer(4, codebook_dim=10**12, codebook_update="ema"),
        lambda: Tokenizer(num_stages=10**9, codebook_size=4).fit(np.eye(8)),
        lambda: Tokenizer(engine="autoencoder", codebook_size=4, latent_dim=10**10).fit(np.eye(8)),
        lambda: Tokenizer(engine="autoencoder", codebook_size=4, hidden=(10**12,)).fit(np.eye(8)),
    ],
)
def test_absurd_sizes_are_a_value_error(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"would take [\d,.]+ .B of memory, [\d.]+ GB are free: lower one of them"):
        make()


def test_an_allocator_without_memory_is_one_line(ghrq, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (
        MemoryError(),
        *map(RuntimeError, ("DefaultCPUAllocator: can't allocate memory: 1 bytes\nstack", "std::bad_alloc")),
    ):
        monkeypatch.setattr("ghrq.recipes.shipped", lambda error=error: (_ for _ in ()).throw(error))
        code, _, err = ghrq("recipes")
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith("error: not enough memory (")
    monkeypatch.setattr("ghrq.recipes.shipped", lambda: {}[1])
    with pytest.raises(KeyError):
        cli.main(["recipes"])
