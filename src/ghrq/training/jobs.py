"""Several runs at a time, each in a process of its own with its share of the cores.

Models that a CPU can train are too small to share one among cores: two runs side by side, a core each, are done long
before two runs on both cores one after the other.
"""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from ghrq.system import processes
from ghrq.system.errors import StoppedError, UserError
from ghrq.system.progress import Bar, Progress, SteadyBar
from ghrq.system.signals import exit_code

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 4  # by default: each has the data in memory


def how_many(asked: int | None, count: int) -> int:
    """How many of ``count`` runs to do at a time: as ``asked``, or what suits this machine."""
    import torch

    if processes.world_size() > 1:
        if asked not in (None, 1):
            raise UserError(f"--jobs {asked}: several processes work on each run already, leave the option out")
        return 1
    if asked is None and torch.accelerator.is_available():
        asked = 1
    elif asked is None:
        cores = torch.get_num_threads()
        # Three runs on two cores: all at once, or one core would be idle while the third run has the other.
        asked = min(count if count <= 1.5 * cores else cores, MOST)
    return max(1, min(asked, count))


def side_by_side(
    work: Callable[[Item, Progress], Result], items: Mapping[str, Item], jobs: int, progress: Progress
) -> dict[str, Result]:
    """``work(item, progress)`` for each of the items, ``jobs`` at a time; returns the results by name, in that order.

    ``work``, the items and the results travel between processes, so all of them can be pickled. The first error ends
    the others, which may save their state, and is raised.
    """
    waiting, results, workers = list(items.items()), dict[str, Result](), list[_Worker]()
    try:
        for _ in range(min(jobs, len(items))):
            workers.append(_Worker(work, jobs, progress))
            workers[-1].give(*waiting.pop(0))
        while busy := [worker for worker in workers if worker.name]:
            ready = wait([worker.connection for worker in busy])
            for worker in busy:
                if worker.connection not in ready or not worker.listen():
                    continue
                results[worker.name] = worker.result
                worker.name = ""
                if waiting:
                    worker.give(*waiting.pop(0))
    except KeyboardInterrupt as error:
        raise StoppedError("stopped. To go on: the same reproduce command again", exit_code=exit_code(error)) from None
    finally:
        _end(workers)
    return {name: results[name] for name in items}


def _end(workers: list["_Worker"]) -> None:
    """End all processes: those at work may save their state first; a second Ctrl-C does not wait for that."""
    try:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.drain()
            worker.process.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.process.kill()
        raise


class _Worker:
    """A process, what it works on (``name``, empty if it waits), and the bars that it wants to be shown."""

    def __init__(self, work: Callable[[Any, Progress], Any], jobs: int, progress: Progress) -> None:
        import torch

        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads, dead
        self.connection, theirs = context.Pipe()
        threads = max(1, torch.get_num_threads() // jobs)
        self.process = context.Process(target=_serve, args=(theirs, work, threads))
        self.process.start()
        theirs.close()
        self.name = ""
        self.result: Any = None
        self._progress, self._bars = progress, dict[int, tuple[ExitStack, Bar]]()

    def give(self, name: str, item: Any) -> None:
        self.name = name
        self.connection.send((item,))

    def listen(self) -> bool:
        """Receive a message; whether it was the last one of an item, whose ``result`` is there."""
        try:
            kind, *content = self.connection.recv()
        except EOFError:
            self.process.join()
            raise StoppedError(
                f"the process of {self.name} has been killed ({_how(self.process.exitcode)}). If memory was short: "
                "the same command again with --jobs 1 goes on"
            ) from None
        match kind:
            case "note":
                (text,) = content
                self._progress.note(text if self.name in text else f"{self.name}: {text}")
            case "open":
                number, label, *rest = content
                stack = ExitStack()
                bar = stack.enter_context(self._progress.bar(f"{self.name}: {label}", *rest))
                self._bars[number] = stack, bar
            case "advance":
                number, amount, text = content
                self._bars[number][1].advance(amount, text)
            case "close":
                self._bars.pop(content[0])[0].close()
            case "failed":
                error, trace = content
                raise error from RuntimeError(trace)  # which --debug shows
            case "done":
                self.result = content[0]
        return bool(kind == "done")

    def drain(self) -> None:
        """Let it speak until it has ended, as nobody can write into a full pipe."""
        for stack, _ in self._bars.values():
            stack.close()
        with suppress(EOFError, OSError), self.connection:
            self.connection.send(())  # if it was done in spite of the signal, and waits for more
            while True:
                self.connection.recv()


def _how(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


# --- in the other process ----------------------------------------------------------------------------------------


def _serve(connection: Connection, work: Callable[[Any, Progress], Any], threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    message: tuple[Any, ...]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one passes it on its way
    with suppress(EOFError, OSError):  # the first process is gone
        while items := connection.recv():
            try:
                (item,) = items
                message = ("done", work(item, _Relay(connection)))
            except BaseException as error:
                message = ("failed", _portable(error), "".join(traceback.format_exception(error)))
            connection.send(message)


def _portable(error: BaseException) -> Exception:
    """The error as one that can be pickled: those that the command tells in a line stay of that kind."""
    match error:
        case UserError():
            return UserError(str(error))
        case StoppedError():
            return StoppedError(str(error), error.exit_code)
        case ValueError():
            return ValueError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))


def _tell(connection: Connection, *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:  # the first process was killed: end as if by its signal, which saves what there is
        os.kill(os.getpid(), signal.SIGTERM)


class _Relay(Progress):
    """Hands everything on to the first process, which has the terminal."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count = connection, 0

    def note(self, text: str) -> None:
        _tell(self._connection, "note", text)

    @contextmanager
    def bar(self, label: str, total: int | None, done: int = 0, unit: str = "") -> Iterator[Bar]:
        self._count += 1
        number = self._count
        _tell(self._connection, "open", number, label, total, done, unit)
        bar = SteadyBar(lambda amount, text: _tell(self._connection, "advance", number, amount, text))
        try:
            yield bar
        finally:
            bar.catch_up()
            _tell(self._connection, "close", number)
