"""What dumping a compiled MindSpore step costs: `python -m bench.mindspore_graph [--before CHECKOUT]`.

The whole step (forward, gradients, update) is one graph in GRAPH_MODE, dumped at L0. Processes take turns, a step each:
two without any tool, one with Probe, one with the packages of another checkout (--before), one with msprobe. The first
step is the one that compiles; a ratio of later ones is the median over the rounds of a step over the plain step of
the same round, dumped ones and those that are not dumped, by the clock.
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
from .turns import Answer, started

NETWORKS = ("gpt", "cnn")
TASKS = ("statistics", "tensor")
HEAD = ["network", "task", "with", "first step, s", "later ones", "not dumped", "dump.json, KB"]
OUT = Path("bench/results/mindspore_graph.json")

Steps = dict[str, list[Answer]]


def paths_of(checkout: Path) -> str:
    """Return the path of modules on which the packages of a checkout lie."""
    return os.pathsep.join(str(path) for path in sorted(checkout.glob("packages/*/src")))


def measure(name: str, task: str, tools: dict[str, tuple[str, str]], rounds: int) -> tuple[Steps, Steps]:
    """Return what each tool's dumped steps took, the first one first, and its steps that were not dumped.

    tools: column -> (the worker's tool, PYTHONPATH).
    """
    dumped: Steps = {tool: [] for tool in tools}
    rested: Steps = {tool: [] for tool in tools}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-bench-")))
        workers = {}
        for tool, (kind, path) in tools.items():
            (folder / tool).mkdir()
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", "PYTHONPATH": path}
            command = [sys.executable, "-m", "bench.mindspore_worker", kind, name, "L0", task, "statistics"]
            command += [str(folder / tool), "graph"]
            workers[tool] = stack.enter_context(started(command, folder / f"{tool}.log", environment))
        for _ in range(rounds + 1):
            for steps, order in ((dumped, "step"), (rested, "rest")):
                for tool in list(workers):
                    try:
                        steps[tool].append(workers[tool].step(order))
                    except RuntimeError:
                        print((folder / f"{tool}.log").read_text()[-2000:], file=sys.stderr)
                        del workers[tool]
    return dumped, rested


def rows_of(name: str, task: str, dumped: Steps, rested: Steps) -> list[list[str]]:
    """Return the rows of the table; a tool that ended before its time has none."""
    plain = dumped["none"], rested["none"]

    def ratio(steps: list[Answer], beside: list[Answer]) -> str:
        pairs = zip(steps[1:], beside[1:], strict=True)
        return f"{statistics.median(ours['wall'] / theirs['wall'] for ours, theirs in pairs):.2f}"

    rows = []
    for tool in dumped:
        if len(rested[tool]) < len(plain[1]):
            rows.append([name, task, tool, "the run ended", "-", "-", "-"])
            continue
        later = [ratio(steps[tool], beside) for steps, beside in zip((dumped, rested), plain, strict=True)]
        first, size = dumped[tool][0]["wall"], dumped[tool][-1]["records"] / 1e3
        rows.append([name, task, tool, f"{first:.1f}", *later, f"{size:.0f}"])
    return rows


def main() -> None:
    """Measure everything, print the table, write it for docs/performance.md (`python -m bench --page`)."""
    parser = argparse.ArgumentParser(prog="python -m bench.mindspore_graph", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--before", type=Path, help="a checkout with other packages of ours")
    parser.add_argument("--msprobe", action="store_true", help="msprobe too, where this environment has it")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    here = paths_of(Path(__file__).parents[1])
    tools = {"none": ("none", here), "none again": ("none", here), "Probe": ("probe", here)}
    if given.before:
        tools["Probe before"] = ("probe", paths_of(given.before))
    if given.msprobe:
        tools["msprobe"] = ("msprobe", here)
    rows = gathered(
        HEAD,
        product(given.networks.split(","), TASKS),
        lambda name, task: rows_of(name, task, *measure(name, task, tools, given.rounds)),
    )
    about = (
        "A whole step as one graph in GRAPH_MODE on the CPU, L0; bench/mindspore_graph.py says how it is measured. "
        f"Rounds: {given.rounds}. Later and not dumped: over a plain step, by the clock. "
        "The copy computes all that the run does, at the same time: where a step keeps all cores busy, a dumped one "
        "cannot take less than twice as long. msprobe 26.2.0 ends with an error in this step, so it has no row."
    )
    keep(given.out, about, HEAD, rows)


if __name__ == "__main__":
    main()
