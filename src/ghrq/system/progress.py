"""Progress of long work, on the standard error: bars on a terminal, a plain line every 30 seconds elsewhere."""

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from typing import TextIO, TypeVar

from ghrq.system import processes

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 30.0
PATIENCE_SECONDS = 2.0

# The environment variable of a process whose parent shows its progress: "json" chooses ghrq.system.relay.
FORMAT_VARIABLE = "GHRQ_PROGRESS"


class Bar:
    """One piece of work in progress: ``with progress.bar(…) as bar``. How it looks is up to its :class:`Progress`."""

    def __init__(
        self, progress: "Progress", label: str, total: int | None, done: int, unit: str, patience: float
    ) -> None:
        self.label, self.total, self.done, self.unit, self.text = label, total, done, unit, ""
        self.shown = False
        self._progress, self._before, self._start = progress, done, time.monotonic()
        self._due = self._start + max(patience, progress.delay)
        if patience == progress.delay == 0.0:
            self._show()

    def advance(self, amount: int = 1, text: str = "") -> None:
        """Count ``amount`` more as done; ``text`` is shown next to the counts, such as the loss."""
        self.done += amount
        self.text = text
        # To show every step would slow down a tight loop.
        if time.monotonic() >= self._due:
            self._show()

    def rate(self) -> float:
        """What was done a second, without what was done before."""
        return (self.done - self._before) / max(time.monotonic() - self._start, 1e-9)

    def close(self) -> None:
        """Show the last state, if any was shown."""
        if self.shown:
            self._show(last=True)

    def _show(self, last: bool = False) -> None:
        self._progress.show(self, last)
        self.shown = True
        self._due = time.monotonic() + self._progress.interval

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Progress:
    """The interface. This class shows nothing: all processes but the first use it."""

    delay = interval = math.inf
    """Seconds until a bar is shown, and between updates."""

    def note(self, text: str) -> None:
        """Show a message."""

    def show(self, bar: Bar, last: bool) -> None:
        """Show the state of a bar; ``last``: it will not change any more."""

    def bar(self, label: str, total: int | None, done: int = 0, unit: str = "") -> Bar:
        """A bar for ``total`` of ``unit`` (``None``: not known), of which ``done`` were done in an earlier process."""
        return Bar(self, label, total, done, unit, patience=0.0)

    def patient_bar(self, label: str, total: int, unit: str = "") -> Bar:
        """:meth:`bar` for work that is often short: shown only after two seconds."""
        return Bar(self, label, total, 0, unit, PATIENCE_SECONDS)

    def track(self, iterable: Iterable[Item], total: int | None = None, label: str = "") -> Iterator[Item]:
        """Iterate with a bar; ``total`` is for an iterable without a length."""
        total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        with self.bar(label, total) as bar:
            for item in iterable:
                yield item
                bar.advance()


class PlainProgress(Progress):
    """Lines without control characters, for files, pipes and batch systems: one every ``seconds``, and the last."""

    def __init__(self, stream: TextIO, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._stream, self.delay, self.interval = stream, seconds, seconds

    def note(self, text: str) -> None:
        """One line."""
        with suppress(OSError):  # a closed pipe or terminal does not stop the work
            print(text, file=self._stream, flush=True)

    def show(self, bar: Bar, last: bool) -> None:
        """``encoder  1,060/1,200  loss 3.81  2 steps/s  1 min 10 s left``"""
        rate = bar.rate()
        parts = [bar.label, f"{bar.done:,}" if bar.total is None else f"{bar.done:,}/{bar.total:,}", bar.text]
        parts.append((f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}") + _per_second(bar))
        if bar.total is not None and rate > 0.0:
            parts.append(f"{_duration((bar.total - bar.done) / rate)} left")
        self.note("  ".join(part for part in parts if part))


class TerminalProgress(Progress):
    """Bars by rich, with rate and time left."""

    delay, interval = 0.0, 0.1

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        # A narrow terminal cuts columns off from the right, so the important ones come first.
        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TextColumn("{task.fields[rate]}", style="progress.data.speed", markup=False),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream, force_terminal=True),
            expand=True,
            transient=True,
        )
        self._tasks: dict[Bar, TaskID] = {}

    def note(self, text: str) -> None:
        """One line, above the bars."""
        with suppress(OSError):  # a closed terminal does not stop the work
            self._rich.console.print(text, markup=False, highlight=False)

    def show(self, bar: Bar, last: bool) -> None:
        """A bar; the last state stays on the screen, above the bars that are still open."""
        if bar not in self._tasks:
            self._tasks[bar] = self._rich.add_task(bar.label, total=bar.total, completed=bar.done, text="", rate="")
            if len(self._tasks) == 1:
                with suppress(OSError):
                    self._rich.start()
        task, rate = self._tasks[bar], bar.rate()
        shown_rate = f"{rate:,.1f}{_per_second(bar)}" if rate else ""
        self._rich.update(task, completed=bar.done, text=bar.text, rate=shown_rate)
        if last:
            final = self._rich.make_tasks_table([each for each in self._rich.tasks if each.id == task])
            self._rich.remove_task(self._tasks.pop(bar))
            with suppress(OSError):
                self._rich.console.print(final)
            if not self._tasks:
                with suppress(OSError):
                    self._rich.stop()


def make_progress(stream: TextIO | None = None) -> Progress:
    """The progress that suits ``stream``, by default the standard error."""
    stream = sys.stderr if stream is None else stream
    if not processes.is_main():
        return Progress()
    if os.environ.get(FORMAT_VARIABLE) == "json":
        from ghrq.system.relay import JsonProgress

        return JsonProgress(stream)
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return TerminalProgress(stream)
    return PlainProgress(stream)


def _per_second(bar: Bar) -> str:
    return f" {bar.unit}/s" if bar.unit else "/s"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
