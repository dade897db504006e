"""Run msprobe's command line many times in one process's image: run by msprobe's own python, a line of JSON a command.

Importing msprobe takes six seconds of CPU and a comparison a quarter of one. Here it is imported once; each command is
a child of this process and calls the `main` that the `msprobe` script calls, so no command sees what another left.
A line is {"args": [...], "script": FILE or "", "cwd": PATH, "output": FILE}, where a script runs in place of msprobe's
command line; the answer is the exit status, as a line.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import traceback
from typing import Any


def run(order: dict[str, Any]) -> int:
    """Run one command in a child. Return its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        signal.alarm(300)  # a command that hangs ends as one that failed
        os.chdir(order["cwd"])
        os.environ["HOME"] = order["cwd"]
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.argv = [order["script"] or "msprobe", *order["args"]]
        if order["script"]:
            runpy.run_path(order["script"], run_name="__main__")
            sys.exit()
        sys.exit(main())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
main = importlib.import_module("msprobe.msprobe").main
if importlib.util.find_spec(
    "torch"
):  # what the commands import once they know the framework; MindSpore would not fork
    importlib.import_module("msprobe.pytorch.dump")
for line in sys.stdin:
    print(run(json.loads(line)), file=answers, flush=True)
