"""A polite end: SIGINT, SIGTERM and SIGHUP are noted, and the loop stops when its step is done.

Outside the loop there is nothing to finish: there they end what is going on at once.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ghrq.system import processes


def _endings() -> list[signal.Signals]:
    """SIGTERM, and SIGHUP, which a terminal sends when it is closed; not on Windows, nor under ``nohup``."""
    hangup = getattr(signal, "SIGHUP", None)
    return [signal.SIGTERM, *([hangup] if hangup and signal.getsignal(hangup) != signal.SIG_IGN else [])]


class StopSignals:
    """While inside, ``received`` is the number of the first signal that asked to stop, or 0.

    A second Ctrl-C, with ``twice``, does not wait any longer. Outside the main thread Python delivers no signals, and
    nothing changes.
    """

    def __init__(self, twice: bool) -> None:
        self.received, self._twice = 0, twice
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_endings()):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and self._twice and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number


class Terminated(KeyboardInterrupt):
    """What SIGTERM and SIGHUP raise within :func:`termination_raises`, as Ctrl-C raises its ``KeyboardInterrupt``."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def termination_raises() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise :class:`Terminated` instead of ending Python without a word.

    Not where processes work together: one that waits for another is deaf to Python's handlers, and would hold up the
    launcher that ends them all.
    """
    if threading.current_thread() is not threading.main_thread() or processes.world_size() > 1:
        yield
        return
    owner = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked worker has the handler too, and is ended like any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            raise Terminated(number)

    before = {number: signal.signal(number, terminate) for number in _endings()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(error: KeyboardInterrupt) -> int:
    """What a shell calls an end by the signal that raised ``error``."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)
