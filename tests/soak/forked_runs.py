"""A server that forks runs whose system calls fail (see failing_calls.c): one warm parent, a child for each fault.

Reads one JSON request a line: {"said": fd, "pause": 0, "folder": path, "out": path, "mode": text, "fault": [kinds, nth,
code, lasting]}. Forks; the child writes to the pipe `said`, one line each, what it acknowledged before a call failed,
and at its end "ended", the result of the run, the call that failed and how many calls of each kind there were. What it
prints goes to the file `out`. Prints the child's pid.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

__all__ = ["Refused", "Run", "serve"]

#: Takes the folder to write below, a mode, and a function that takes what is acknowledged; returns what it computed.
Run = Callable[[Path, str, Callable[[str], None]], bytes]
KINDS = 13


class Refused(Exception):
    """The run was told in words of ours that it cannot begin, or that what it asked for was not written."""


def nothing(folder: Path, mode: str) -> None:
    """A run that reads nothing needs nothing."""


def serve(run: Run, *modes: str, prepare: Callable[[Path, str], None] = nothing) -> None:
    """Fork runs until stdin ends.

    modes: of whole runs that nobody looks at, so that nothing is left to import. prepare: writes what the run reads,
    before any call fails.
    """
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.hit.restype = ctypes.c_char_p
    shim.counted.restype = ctypes.c_long
    shim.arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for mode in modes:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Refused):
            prepare(Path(folder), mode)
            run(Path(folder), mode, lambda line: None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are never waited for
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                prepare(Path(request["folder"]), request["mode"])
                _child(run, shim, **request)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        print(child, file=answers, flush=True)


def _child(
    run: Run, shim: ctypes.CDLL, said: int, folder: str, out: str, mode: str, fault: list[int], pause: int
) -> None:
    printed = os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    warnings.simplefilter("always")

    def say(line: str) -> None:
        if not shim.hit():
            os.write(said, f"{line}\n".encode())

    shim.arm(folder.encode(), *fault)
    try:
        result = run(Path(folder), mode, say).hex()
    except Refused as error:
        result = "refused"
        print(error, flush=True)
    sys.stdout.flush()
    hit, counts = shim.hit().decode(), [shim.counted(kind) for kind in range(KINDS)]
    shim.arm(b"", 0, 0, 0, 0)
    os.write(said, f"ended {json.dumps([result, hit, counts])}\nclosed\n".encode())
    os._exit(0)
