"""A run in which Probe has much to warn of (used by contract_warnings.py).

Takes the module that makes the framework, and a folder to dump to; without one it runs without Probe. Prints the loss
of each step.
"""

from __future__ import annotations

import importlib
import resource
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from faults import broken
from framework import Framework
from probe_runtime.collect.walk import Part
from probe_runtime.session.step import DumpingStep

#: What Probe says of its first four steps; of the fifth nothing.
SAID = (
    "start() was called twice", "save() saves at level debug", "step() was called before stop()",
    "'nosuch' matched nothing", "faults while recording", "step1 is a file, not a directory",
    "stopped collecting this step", "ended in stop(): it is a fault of its own",
)  # fmt: skip


class Unwatched:
    """What stands for the debugger in a run without Probe."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def run(framework: Framework, debugger: Any, dump: Path) -> None:
    def compute(_: Any, x: Any) -> Any:
        return framework.functions.gelu(x * x)

    net = framework.sequence(framework.module_of("N\x1b[31mt", compute))
    x = framework.ones(2, 2)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step in range(5):
        debugger.start(net)
        if step == 0:
            debugger.start(net)
            debugger.save(x, "x")
        if step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, most))  # a full disk
        with broken(Part, "arguments") if step == 0 else nullcontext():
            print(float(framework.array(net(x)).sum()))
            x = x - 0.1 * framework.gradient(net, x)
        with broken(DumpingStep, "write_files") if step == 3 else nullcontext():
            if step:
                debugger.stop()
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        debugger.step()
        if step == 0 and dump.is_dir():
            (dump / "step1").write_text("a file where a folder should be")


if __name__ == "__main__":
    found: Framework = importlib.import_module(sys.argv[1]).FRAMEWORK
    place = sys.argv[2]
    watched = {"dump_path": place, "level": "mix", "task": "statistics", "list": ["gelu", "31mt", "nosuch"]}
    run(found, found.debugger(**watched) if place else Unwatched(), Path(place or "nowhere"))
