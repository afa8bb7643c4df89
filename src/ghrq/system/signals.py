"""Graceful shutdown: on SIGINT, SIGTERM and SIGHUP the training loop stops after its step.

Outside the loop they raise an exception at once.
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
    """SIGTERM, and SIGHUP, which a closed terminal sends; Windows has none, and ``nohup`` ignores it."""
    hangup = getattr(signal, "SIGHUP", None)
    return [signal.SIGTERM, *([hangup] if hangup and signal.getsignal(hangup) != signal.SIG_IGN else [])]


class StopSignals:
    """Inside the context, ``received`` is the number of the first signal, or 0.

    With ``twice``, a second Ctrl-C raises ``KeyboardInterrupt``. Outside the main thread, where Python delivers no
    signals, it does nothing.
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
    """Raised by SIGTERM and SIGHUP within :func:`termination_raises`, as Ctrl-C raises ``KeyboardInterrupt``."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def termination_raises() -> Iterator[None]:
    """Inside the context, SIGTERM and SIGHUP raise :class:`Terminated` instead of killing the process.

    Not with several processes: Python's handlers do not run while one waits for another, so the launcher would wait.
    """
    if threading.current_thread() is not threading.main_thread() or processes.world_size() > 1:
        yield
        return
    owner = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked worker inherits the handler
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
    """128 + the number of the signal that raised ``error``, as in shells."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)
