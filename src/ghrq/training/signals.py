"""A polite end: SIGINT and SIGTERM are noted, and the loop stops when its step is done."""

import signal
import threading
from types import FrameType
from typing import Any


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
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and self._twice and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
