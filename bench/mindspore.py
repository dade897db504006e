"""What dumping a MindSpore step costs, with Probe and with msprobe 26.2: `python -m bench.mindspore`.

Four processes take turns, a step each: two without any tool, one with Probe, one with msprobe. A time is that
of one step, start to step() included, by the clock and in CPU seconds of the process (all threads): MindSpore
computes behind Python. A ratio is the median over the rounds of a step over the plain step of the same round.
Dumps go to a temporary folder (TMPDIR). msprobe gets a norm that the CPU has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from .tables import gathered, keep
from .turns import started

CASES = {
    "L0 statistics": ("L0", "statistics", "statistics"),
    "L1 statistics": ("L1", "statistics", "statistics"),
    "mix statistics": ("mix", "statistics", "statistics"),
    "mix md5": ("mix", "statistics", "md5"),
    "mix tensor": ("mix", "tensor", "statistics"),
}
NETWORKS = ("gpt", "cnn")
TOOLS = ("none", "none again", "probe", "msprobe")
HEAD = ["network", "dump", "time", "a step, ms", "noise", "Probe", "msprobe", "overhead part"]
TAIL = "Overhead part: (Probe - 1) / (msprobe - 1), to be at most 0.05; noise: a second plain process."
WARM_UP = 2

Times = dict[str, list[dict[str, float]]]


def measure(name: str, case: str, rounds: int) -> Times:
    """Tool -> what each of its steps took, one per round."""
    times: Times = {tool: [] for tool in TOOLS}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-bench-")))
        workers = {}
        for tool in TOOLS:
            (folder / tool).mkdir()
            command = [sys.executable, "-m", "bench.mindspore_worker", tool.partition(" ")[0], name]
            command += [*CASES[case], str(folder / tool)]
            workers[tool] = stack.enter_context(started(command, folder / f"{tool}.log", environment))
        for i in range(-WARM_UP, rounds):
            for tool in (*TOOLS[i % 4 :], *TOOLS[: i % 4]):
                took = workers[tool].step("step")
                if i >= 0:
                    times[tool].append(took)
    return times


def rows_of(name: str, case: str, times: Times) -> list[list[str]]:
    """The rows of the table: by the clock, and in CPU seconds."""
    rows = []
    for kind in ("wall", "cpu"):
        none = [took[kind] for took in times["none"]]
        again, probe, msprobe = (
            statistics.median(took[kind] / plain for took, plain in zip(times[tool], none, strict=True))
            for tool in TOOLS[1:]
        )
        part = f"{(probe - 1) / (msprobe - 1):.2f}" if msprobe > 1 else "-"
        ratios = [f"{ratio:.2f}" for ratio in (again, probe, msprobe)]
        rows.append([name, case, kind, f"{statistics.median(none) * 1e3:.0f}", *ratios, part])
    return rows


def main() -> None:
    """Measure everything, print the table, write it for docs/performance.md (`python -m bench --page`)."""
    parser = argparse.ArgumentParser(prog="python -m bench.mindspore", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/mindspore.json"))
    given = parser.parse_args()
    rows = gathered(
        HEAD,
        product(given.networks.split(","), CASES),
        lambda name, case: rows_of(name, case, measure(name, case, given.rounds)),
    )
    about = (
        "PyNative on the CPU, made by `hatch run bench-mindspore:run`; bench/mindspore.py says how it is "
        f"measured. Rounds: {given.rounds}. {TAIL}"
    )
    keep(given.out, about, HEAD, rows)


if __name__ == "__main__":
    main()
