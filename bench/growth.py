"""How a step grows: `python -m bench.growth` writes steps of 10^3 to 10^6 recorded calls through the journal.

Each size runs in a process of its own, so that its peak memory is its own. A recorded call is that of a linear layer:
its begin, its end and two events of gradients, with seven tensors. Nothing of a framework takes part: what is measured
is what Probe keeps and writes per record, in CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .machine import own_peak
from .tables import table

SIZES = (1_000, 10_000, 100_000, 1_000_000)
HEAD = [
    "recorded calls", "step us/call", "stop us/call", "step MiB", "stop MiB", "stop bytes/call", "dump.json MB",
]  # fmt: skip
TENSOR = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 16], "Max": 1.095278263092041,
    "Min": -1.1334176063537598, "Mean": 0.06492696661734954, "Norm": 4.352866290443542, "requires_grad": True,
}  # fmt: skip
MODULE = "Module.layers.0.mlp.Linear"


def step(count: int, level: str, folder: Path) -> dict[str, Any]:
    """Write one step; return what it cost."""
    from probe_format import jsonio
    from probe_format.journal import events
    from probe_format.write import RankWriter

    tensor = jsonio.dumps(TENSOR)
    deep = None if level == "L1" else f"{MODULE}.forward.0"
    below = None if level == "L1" else f"{MODULE}.backward.0"
    writer = RankWriter(folder, {"task": "statistics", "level": level, "dump_data_dir": None})
    writer.append(events.frames(0, ["File train.py, line 3, in step"]))
    if deep is not None:
        writer.append(events.enter(deep, None))
    peaks, times = [own_peak()], [time.process_time()]
    for i in range(count):
        name = f"Functional.linear.{i}.forward"
        arguments = b"[%b]" % b",".join([tensor] * 3)
        writer.append(events.enter(name, deep, "aw", (arguments, b"{}"), stack=0))
        writer.append(events.exit(name, output=b"[%b]" % tensor))
    for i in reversed(range(count)):
        name = f"Functional.linear.{i}.backward"
        form = 1, 3
        slots = ("i", 0), ("o", 2), ("o", 0)
        waiting = (("o", 1),)
        writer.append(
            events.back(name, 0, below, form=form, slots=slots, values=[tensor] * 3, waiting=waiting)
        )
        writer.append(events.back(name, 0, below, form=form, slots=waiting, values=[tensor]))
    writer.append(events.over())
    peaks.append(own_peak())
    times.append(time.process_time())
    writer.append(events.tally({"summary": {"norms": [], "first_non_finite": None}}))
    report = writer.finish(final=True)
    peaks.append(own_peak())
    times.append(time.process_time())
    return {
        "count": count,
        "step": (times[1] - times[0]) / count,
        "stop": (times[2] - times[1]) / count,
        "step_bytes": peaks[1] - peaks[0],
        "stop_bytes": peaks[2] - peaks[1],
        "file_bytes": report["files"]["dump.json"]["bytes"],
        "records": report["records"],
    }


def measure(sizes: Sequence[int], level: str, where: Path) -> list[dict[str, Any]]:
    """Write a step of each size, in fresh processes."""
    found = []
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=where, prefix="probe-growth-") as folder:
            command = [
                sys.executable,
                "-m",
                "bench.growth",
                "--one",
                str(size),
                "--level",
                level,
                "--where",
                folder,
            ]
            done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    return found


def rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The rows of the table."""
    return [
        [
            f"{r['count']:,}",
            *(f"{r[key] * 1e6:.1f}" for key in ("step", "stop")),
            *(f"{r[key] / 2**20:.0f}" for key in ("step_bytes", "stop_bytes")),
            f"{r['stop_bytes'] / r['count']:.0f}",
            f"{r['file_bytes'] / 1e6:.0f}",
        ]
        for r in results
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--level", default="mix", choices=("L0", "L1", "mix"))
    parser.add_argument("--where", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(step(given.one, given.level, given.where / "rank")))
        return
    print(table(HEAD, rows(measure(given.sizes, given.level, given.where))))


if __name__ == "__main__":
    main()
