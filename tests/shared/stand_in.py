"""Ask what forks (forks.py) for a program; as a program, stand for one of Python's in the shell of a page.

`python -ISE stand_in.py ADDRESS REAL [WORD ...]` runs a script, `probe` and torch's launcher in a fork, and all else
as it is. It imports little, as it is run for each command.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import IO, Any

__all__ = ["ask"]

#: Programs that are a module of Python's.
PROGRAMS = {"probe": "probe_format", "torchrun": "torch.distributed.run"}


def ask(address: str, request: dict[str, Any], descriptors: Sequence[int]) -> IO[str]:
    """Ask for a fork; return where it is told, a line each: its number, and its exit code at its end.

    request: its words, env and cwd. descriptors: of its stdin, stdout and stderr.
    """
    told, tells = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(address)
        socket.send_fds(asking, [json.dumps(request).encode()], [*descriptors, tells])
    os.close(tells)
    return open(told)


def _forked(program: str, words: list[str]) -> list[str]:
    """Return what python is asked for in a fork; nothing for what is run as it is."""
    if program in PROGRAMS:
        return ["-m", PROGRAMS[program], *words]
    words = words[1:] if words[:1] == ["-u"] else words  # as the launcher starts each rank
    return words if words[:2] == ["-m", PROGRAMS["torchrun"]] or (words and words[0].endswith(".py")) else []


def main() -> None:
    """Run what stands behind the address of what forks and the real program."""
    address, real, *words = sys.argv[1:]
    words = _forked(os.path.basename(real), words) or os.execv(real, [real, *words])
    request = {"words": words, "env": dict(os.environ), "cwd": os.getcwd()}
    with ask(address, request, [0, 1, 2]) as told:
        told.readline()
        code = int(told.readline())
    raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
