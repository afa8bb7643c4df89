"""``ghrq`` in a process of its own. A module of its own, so that the process finds it by name: conftest is many."""

import os
import signal


def run_command(arguments, error_file, die_after, file_limit):
    """Runs ``ghrq`` in a fresh process; ``die_after`` kills it at that fsync or rename."""
    import resource

    import torch

    from ghrq.cli import main

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background is deaf to it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what nohup starts to this one
    stream = os.open(error_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 2)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if die_after is not None:
        left = die_after

        def deadly(function):
            def wrapped(*args):
                nonlocal left
                left -= 1
                if left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args)

            return wrapped

        for name in ("fsync", "rename", "replace"):
            setattr(os, name, deadly(getattr(os, name)))
    main([str(argument) for argument in arguments])
