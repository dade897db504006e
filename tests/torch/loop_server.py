"""Run loops of loops.py, each in a fork of one warm process: `python loop_server.py FOLDER`, a JSON list per line.

A line is [name, words]: the words of a command line; those that begin with "run" are of ``probe run``. What it prints
goes to FOLDER/name.out and FOLDER/name.err; the answer is its exit code.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import probe_torch  # noqa: F401
import torch  # noqa: F401
from probe_runtime.auto import command, script

folder = Path(sys.argv[1])
for line in sys.stdin:
    name, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for fd, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{end}", os.O_CREAT | os.O_WRONLY), fd)
        if words[0] == "run":
            sys.exit(command.main(words[1:]))
        script.run(script.script(words[0]), words[1:])
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
