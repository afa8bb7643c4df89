"""Freed memory stays with the process: no step pays for it twice."""

import os
import platform
import subprocess
import sys

import pytest

from ghrq.system.errors import UserError
from ghrq.system.memory import check_room, free_bytes
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_does_not_fit_is_refused():
    free = free_bytes()
    assert 2**20 < free < 2**60
    check_room(free // 2, "x", "y")
    with pytest.raises(
        UserError, match=r"^the codes would take 1,048,576.0 GiB of memory, [0-9.,]+ are free: use less$"
    ):
        check_room(2**50, "the codes", "use less")
