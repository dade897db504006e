"""A process that dumps steps as a certain rank (used by contract_processes.py).

Takes the module that makes the framework, a folder to dump to, a number that its inputs have, and a JSON object of keys
of the configuration. Reads commands: ``start``, ``stop``, ``step``, ``close`` (all
descriptors, and open files of its own), ``exit``; says ``done`` when it is ready, and after
each.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from framework import Framework


def run(framework: Framework, dump: str, number: float, keys: dict[str, object]) -> None:
    net = framework.sequence(framework.linear(2, 2))
    debugger = framework.debugger(dump_path=dump, **{"level": "mix", "task": "tensor", **keys})
    folder = Path(dump).parent
    print("done", flush=True)
    for command in map(str.strip, sys.stdin):
        if command == "start":
            debugger.start(net)
            x = framework.ones(3, 2) * number
            framework.train(net, debugger.save(x, "x"))
        elif command == "close":
            os.closerange(3, 1000)
            for i in range(50):
                os.open(folder / f"own{i}", os.O_RDWR | os.O_CREAT)
        elif command == "exit":
            assert not any(path.stat().st_size for path in folder.glob("own*")), (
                "the run's own files have content"
            )
            os._exit(0)
        else:
            getattr(debugger, command)()
        print("done", flush=True)


if __name__ == "__main__":
    home, dump, number, keys = sys.argv[1:]
    run(importlib.import_module(home).FRAMEWORK, dump, float(number), json.loads(keys))
