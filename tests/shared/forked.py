"""Fork runs of one warm process, for whoever kills them (killing.py): what a program for that has in common."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["serve", "speaker"]


def speaker(said: int, pause: int) -> Callable[[str], None]:
    """Return what writes lines to the pipe ``said``, and stops this process after line number ``pause``."""
    lines = itertools.count(1)

    def say(name: str) -> None:
        os.write(said, f"{name}\n".encode())
        if next(lines) == pause:
            os.kill(os.getpid(), signal.SIGSTOP)

    return say


def serve(run: Callable[..., None]) -> None:
    """Fork a run for each line of stdin, a JSON object with its arguments, and print the child's pid."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are never waited for
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where the pids go, and a framework may warn there
            status = 1
            try:
                run(**json.loads(line))
                status = 0
            finally:
                os._exit(status)
        print(child, flush=True)
