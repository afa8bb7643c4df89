"""What the user sees while it runs: bars on a terminal, a plain line now and then anywhere else."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO, TypeVar

from ghrq.system import processes

Item = TypeVar("Item")

SECONDS_BETWEEN_LINES = 30.0
PATIENCE_SECONDS = 2.0


class Bar:
    """One piece of work under way. This one shows nothing."""

    def advance(self, amount: int = 1, text: str = "") -> None:
        """``amount`` more is done; ``text`` is shown along with it, such as the loss."""


class Progress:
    """The interface, and the silence that all processes but the first keep."""

    def note(self, text: str) -> None:
        """Tell the user something, once."""

    @contextmanager
    def bar(self, label: str, total: int | None, done: int = 0, unit: str = "") -> Iterator[Bar]:
        """A bar for ``total`` of ``unit`` (``None`` if unknown how many), ``done`` of which were done before."""
        yield Bar()

    @contextmanager
    def patient_bar(self, label: str, total: int, unit: str = "") -> Iterator[Bar]:
        """:meth:`bar`, which appears only when the work has taken two seconds."""
        with ExitStack() as stack:
            yield _PatientBar(lambda done: stack.enter_context(self.bar(label, total, done, unit)))

    def track(self, iterable: Iterable[Item], total: int | None = None, label: str = "") -> Iterator[Item]:
        """Go through ``iterable`` under a bar; ``total`` is its length where it has none itself."""
        total = len(iterable) if total is None and isinstance(iterable, Sized) else total
        with self.bar(label, total) as bar:
            for item in iterable:
                yield item
                bar.advance()


class _PatientBar(Bar):
    def __init__(self, show: Callable[[int], Bar]) -> None:
        self._show, self._start, self._done = show, time.monotonic(), 0
        self._bar: Bar | None = None

    def advance(self, amount: int = 1, text: str = "") -> None:
        self._done += amount
        if self._bar is not None:
            self._bar.advance(amount, text)
        elif time.monotonic() - self._start > PATIENCE_SECONDS:
            self._bar = self._show(self._done)


class SteadyBar(Bar):
    """Passes on what was done ten times a second, not at every step: to show it is dear in a tight loop."""

    def __init__(self, show: Callable[[int, str], object]) -> None:
        self._show, self._pending, self._text, self._shown = show, 0, "", time.monotonic()

    def advance(self, amount: int = 1, text: str = "") -> None:
        """See :class:`Bar`."""
        self._pending += amount
        self._text = text
        if time.monotonic() - self._shown >= 0.1:
            self.catch_up()

    def catch_up(self) -> None:
        """Pass on what is left."""
        self._show(self._pending, self._text)
        self._pending, self._shown = 0, time.monotonic()


class PlainProgress(Progress):
    """Lines without control characters: for files, pipes and batch systems."""

    def __init__(self, stream: TextIO, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._stream, self._seconds = stream, seconds

    def note(self, text: str) -> None:
        """One line."""
        with suppress(OSError):  # a pipe or a terminal that is gone ends no run
            print(text, file=self._stream, flush=True)

    @contextmanager
    def bar(self, label: str, total: int | None, done: int = 0, unit: str = "") -> Iterator[Bar]:
        """A line every ``seconds``, and a last one for work that took that long."""
        bar = _PlainBar(self, label, total, done, f" {unit}/s" if unit else "/s", self._seconds)
        yield bar
        if bar.spoke:
            bar.speak()


class _PlainBar(Bar):
    def __init__(self, progress: Progress, label: str, total: int | None, done: int, unit: str, seconds: float) -> None:
        self.spoke = False
        self._progress, self._label, self._total, self._done = progress, label, total, done
        self._unit, self._seconds = unit, seconds
        self._start, self._first = time.monotonic(), done
        self._spoken, self._text = self._start, ""

    def advance(self, amount: int = 1, text: str = "") -> None:
        self._done += amount
        self._text = text
        if time.monotonic() - self._spoken >= self._seconds:
            self.speak()

    def speak(self) -> None:
        self.spoke, self._spoken = True, time.monotonic()
        rate = (self._done - self._first) / max(self._spoken - self._start, 1e-9)
        parts = [self._label, f"{self._done:,}" if self._total is None else f"{self._done:,}/{self._total:,}"]
        parts += [self._text, (f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}") + self._unit]
        if self._total is not None and rate > 0.0:
            parts.append(f"{_duration((self._total - self._done) / rate)} left")
        self._progress.note("  ".join(part for part in parts if part))


class TerminalProgress(Progress):
    """Bars by rich, with rate and time left."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class RateColumn(ProgressColumn):
            def render(self, task: Any) -> Text:
                return Text(
                    f"{task.speed:,.1f}{task.fields['unit']}" if task.speed else "", style="progress.data.speed"
                )

        # Columns as far as a narrow terminal cuts them off from the right: what matters first.
        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            RateColumn(),
            TimeRemainingColumn(compact=True),
            console=Console(file=stream, force_terminal=True),
            expand=True,
            transient=True,
        )
        self._open = 0

    def note(self, text: str) -> None:
        """One line, above the bars."""
        with suppress(OSError):  # a terminal that is gone ends no run
            self._rich.console.print(text, markup=False, highlight=False)

    @contextmanager
    def bar(self, label: str, total: int | None, done: int = 0, unit: str = "") -> Iterator[Bar]:
        """A bar that stays on the screen when it is done, above those that are not."""
        task = self._rich.add_task(label, total=total, completed=done, text="", unit=f" {unit}/s" if unit else "/s")
        self._open += 1
        if self._open == 1:
            with suppress(OSError):
                self._rich.start()
        bar = SteadyBar(lambda amount, text: self._rich.update(task, advance=amount, text=text))
        try:
            yield bar
        finally:
            bar.catch_up()
            last = self._rich.make_tasks_table([shown for shown in self._rich.tasks if shown.id == task])
            self._rich.remove_task(task)
            self._open -= 1
            with suppress(OSError):
                self._rich.console.print(last)
            if self._open == 0:
                with suppress(OSError):
                    self._rich.stop()


def make_progress(stream: TextIO | None = None) -> Progress:
    """The progress that suits where this process writes to, by default its standard error."""
    stream = sys.stderr if stream is None else stream
    if not processes.is_main():
        return Progress()
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return TerminalProgress(stream)
    return PlainProgress(stream)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
