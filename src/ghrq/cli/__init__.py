"""The command line: ``ghrq COMMAND``. Each command is thin, and torch is imported only by those that need it."""

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from ghrq import __version__
from ghrq.cli import advise, catalogue, codec, experiments, explore, image, items, recommend, report, search
from ghrq.system import memory, processes
from ghrq.system.errors import StoppedError, UserError, user_frame
from ghrq.system.signals import exit_code, termination_raises

app = typer.Typer(
    help="Hyperbolic residual quantization: train, evaluate and reproduce experiments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_debug = bool(os.environ.get("GHRQ_DEBUG"))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ghrq {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (also GHRQ_DEBUG=1).")] = False,
) -> None:
    global _debug
    _debug = _debug or debug


experiments.register(app)
report.register(app)
items.register(app)
advise.register(app)
catalogue.register(app)
search.register(app)
explore.register(app)
recommend.register(app)
app.add_typer(image.app, name="image")
app.add_typer(codec.app, name="codec")


def main(arguments: list[str] | None = None) -> None:
    """Run a command. A user's mistake is one message and exit code 2, without a traceback."""
    try:
        with termination_raises():
            app(args=arguments, prog_name="ghrq")
    except SystemExit as end:
        cause: BaseException | None = end
        while cause is not None and not isinstance(cause, KeyboardInterrupt):  # typer turns it into a silent exit
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            _print_error("stopped")
        _exit(end.code if cause is None else exit_code(cause))
    except KeyboardInterrupt as error:  # before typer has begun to look for one
        _print_error("stopped")
        _exit(exit_code(error))
    except (UserError, StoppedError) as error:
        if _debug:
            raise
        _print_error(str(error))
        _exit(error.exit_code)
    except (MemoryError, RuntimeError) as error:
        if _debug or not memory.is_exhausted(error):
            raise
        reason = (str(error).splitlines() or ["none is left"])[0]
        _print_error(f"not enough memory ({reason}): give it less, or use a larger machine")
        _exit(1)
    except (ValueError, OSError) as error:
        # ValueError: a check of the library, most likely about a value in the recipe; the run's status.json has the
        # traceback. OSError: one that no command explains better, such as a standard output on a full disk.
        if _debug:
            raise
        _print_error(f"{user_frame(error)}{error}\n('ghrq --debug' shows where this came from)")
        _exit(2 if isinstance(error, ValueError) else 1)


def _print_error(message: str) -> None:
    with suppress(OSError):  # the terminal may be closed; the exit code remains
        print(f"error: {message}" if processes.is_main() else f"process {processes.rank()}: {message}", file=sys.stderr)


def _exit(code: Any) -> None:
    """Exit with ``code``. With several processes without Python's clean-up, which the threads of gloo would abort."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if code in (0, None) and not isinstance(error, BrokenPipeError):  # a reader that closed its pipe knows it
            _print_error(f"cannot write to the standard output ({error.strerror})")
        code = code or 1
        # Python flushes again at its exit, and would print its own message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if processes.world_size() > 1:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)
