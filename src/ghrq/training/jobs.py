"""Several runs at a time, each in its own process (``ghrq train --resume FOLDER``) with its share of the cores.

Models that a CPU can train are too small for several cores: two runs at a time, with a core each, end long before two
runs one after the other on both cores.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from queue import SimpleQueue

from ghrq.system import processes
from ghrq.system.errors import DivergedError, StoppedError, UserError
from ghrq.system.progress import FORMAT_VARIABLE, Progress
from ghrq.system.relay import Relay
from ghrq.system.signals import exit_code
from ghrq.training.run import Run

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
        # Three runs on two cores start together: otherwise one core would be idle during the third run.
        asked = min(count if count <= 1.5 * cores else cores, MOST)
    return max(1, min(asked, count))


def complete_in_processes(runs: Iterable[Run], jobs: int, progress: Progress) -> dict[str, str]:
    """Train and evaluate ``runs``, ``jobs`` at a time; returns the messages of diverged runs by the folder's name.

    Any other error of a run stops the others, which save a checkpoint first, and is raised.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // jobs))  # the children's number, which a new run folder records
    waiting, children, diverged = iter(runs), list[_Child](), dict[str, str]()
    lines: SimpleQueue[tuple[_Child, str | None]] = SimpleQueue()
    try:
        while True:
            while len(children) < jobs and (run := next(waiting, None)) is not None:
                if run.results is None:
                    children.append(_Child(run, progress, lines))
                else:
                    progress.note(f"{run.folder} is finished")
            if not children:
                return diverged
            child, line = lines.get()
            if line is not None:
                child.relay.read(line)
                continue
            children.remove(child)
            message = child.end()
            if message:
                diverged[child.run.folder.name] = message
                progress.note(f"{child.run.folder.name}: {message}")
    except KeyboardInterrupt as error:
        raise StoppedError("stopped. To go on: the same reproduce command again", exit_code=exit_code(error)) from None
    finally:
        _stop(children)
        torch.set_num_threads(threads)


class _Child:
    """The process of one run. A thread puts the lines of its standard error into ``lines``, then ``None``."""

    def __init__(self, run: Run, progress: Progress, lines: "SimpleQueue[tuple[_Child, str | None]]") -> None:
        import torch

        variables = {
            FORMAT_VARIABLE: "json",
            "GHRQ_DEBUG": "",  # errors as one message; status.json has the traceback
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # to find the same task
        }
        self.run, self.relay, self._progress = run, Relay(run.folder.name, progress), progress
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ghrq", "train", "--resume", str(run.folder)],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: "SimpleQueue[tuple[_Child, str | None]]") -> None:
        for line in self.process.stderr or ():
            lines.put((self, line))
        lines.put((self, None))

    def end(self) -> str:
        """Wait for its end; returns the message of a run that diverged, and raises any other error."""
        code, name, lines = self.process.wait(), self.run.folder.name, self.relay.other_lines
        self.relay.close()
        if code == 0:
            for line in lines:
                self._progress.note(f"{name}: {line}")
            return ""
        message = "\n".join(["", *lines]).rpartition("\nerror: ")[2]
        if code == DivergedError.exit_code:
            return message
        if code < 0:
            raise StoppedError(
                f"the process of {name} has been killed ({signal.Signals(-code).name}). If memory was short: "
                "the same command again with --jobs 1 goes on"
            )
        message = f"{name}: {message.strip() or f'exit code {code}'}"
        cause = RuntimeError(self.run.status.get("traceback", ""))  # which --debug shows
        raise (UserError(message) if code == UserError.exit_code else StoppedError(message, code)) from cause


def _stop(children: list[_Child]) -> None:
    """Let the children save and end; a second Ctrl-C does not wait for that."""
    try:
        for child in children:
            child.process.terminate()
        for child in children:
            child.process.wait()
            child.relay.close()
    except KeyboardInterrupt:
        for child in children:
            child.process.kill()
        raise
