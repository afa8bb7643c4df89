"""Progress of a child process, shown by its parent: the child writes one JSON object a line to its standard error."""

import json
import os
import signal
from typing import Any, TextIO

from ghrq.system.progress import Bar, Progress


class JsonProgress(Progress):
    """The child's side; :class:`Relay` is the parent's."""

    delay, interval = 0.0, 0.1

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        """See :class:`Progress`."""
        self._write({"note": text})

    def show(self, bar: Bar, last: bool) -> None:
        """See :class:`Progress`."""
        self._write({"bar": [bar.label, bar.total, bar.done, bar.unit], "text": bar.text, "last": last})

    def _write(self, message: dict[str, Any]) -> None:
        try:
            print(json.dumps(message), file=self._stream, flush=True)
        except OSError:  # the parent was killed: shut down gracefully, which saves a checkpoint
            os.kill(os.getpid(), signal.SIGTERM)


class Relay:
    """Shows what a child process writes, each bar and note with the child's ``name``."""

    def __init__(self, name: str, progress: Progress) -> None:
        self._name, self._progress, self._bars = name, progress, dict[str, Bar]()
        self.other_lines: list[str] = []
        """What the child wrote besides its progress: warnings, and the error that ended it."""

    def read(self, line: str) -> None:
        """Show one line of the child's standard error."""
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        match message:
            case {"note": str(text)}:
                self._progress.note(text if self._name in text else f"{self._name}: {text}")
            case {"bar": [str(label), total, int(done), str(unit)], "text": str(text), "last": last}:
                if label not in self._bars:
                    self._bars[label] = self._progress.bar(f"{self._name}: {label}", total, done, unit)
                self._bars[label].advance(done - self._bars[label].done, text)
                if last:
                    self._bars.pop(label).close()
            case _:
                self.other_lines.append(line.rstrip())

    def close(self) -> None:
        """Close the bars of a child that has ended."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()
