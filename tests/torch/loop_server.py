"""Run loops of loops.py, each in a fork of one warm process: `python loop_server.py FOLDER [MODULE ...]`.

A line is a JSON list, [name, words]: the words of a command line; those that begin with "run" are of ``probe run``.
What it prints goes to FOLDER/name.out and FOLDER/name.err; the answer is its exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sys
from pathlib import Path

from probe_runtime.auto import command, script
from probe_torch import PrecisionDebugger

folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
with PrecisionDebugger(dump_path=folder / "warm", level="L1") as debugger:  # a second in each run otherwise
    debugger.start()
    debugger.stop()
gc.freeze()  # the children need not look at what is here
for line in sys.stdin:
    name, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for fd, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{end}", os.O_CREAT | os.O_WRONLY), fd)
        code = 0
        try:
            if words[0] == "run":
                code = command.main(words[1:])
            else:
                script.run(script.script(words[0]), words[1:])
        except SystemExit as e:
            code = int(e.code or 0)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)  # without clearing all modules of this process, which takes longer than the run
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
