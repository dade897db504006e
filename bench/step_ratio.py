"""Step-time ratios: a dumped step over a plain one, for Probe and for msprobe, in turns in the same minutes.

Four processes train the same model from the same seed, one step at a time in rotation: two without a tool
(the second shows the noise), one with Probe, one with msprobe in its own environment. A ratio is the median
over the rounds of (step with the tool) / (plain step of the same round). Probe's and msprobe's stopped steps
are measured in the same rounds: what a tool costs while it does nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from .chart import Bars, picture
from .tables import table
from .turns import Answer, Worker, started

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
SOURCES = [str(path) for path in sorted((ROOT / "packages").glob("*/src"))]
MS_PYTHON = os.environ.get("PROBE_MSPROBE_PYTHON", "")


@attrs.frozen
class Setup:
    """What is trained. batch sequences of length tokens; threads of each process (they take turns)."""

    layers: int = 6
    width: int = 256
    batch: int = 8
    length: int = 128
    threads: int = 2

    @property
    def arguments(self) -> list[str]:
        """For worker.py."""
        return [text for name, value in attrs.asdict(self).items() for text in (f"--{name}", str(value))]


@contextmanager
def worker(tool: str, python: str, setup: Setup, level: str, task: str, folder: Path) -> Iterator[Worker]:
    """Start one; it ends with the block."""
    dump = folder / tool / "dump"
    dump.parent.mkdir(parents=True)
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": os.pathsep.join(SOURCES)}
    command = [python, str(Path(__file__).parent / "worker.py"), tool.partition(" ")[0], *setup.arguments]
    command += ["--level", level, "--task", task, "--dump", str(dump)]
    with started(command, folder / f"{tool}.log", environment) as process:
        yield process


def measure(setup: Setup, level: str, task: str, place: str, ms_python: str, rounds: int) -> Answer:
    """All ratios of one level, task and place to dump to."""
    tools = {"none": sys.executable, "none again": sys.executable, "probe": sys.executable}
    if ms_python:
        tools["msprobe"] = ms_python
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    size: dict[str, Answer] = {}
    losses: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-bench-", dir=place)))
        workers = {
            tool: stack.enter_context(worker(tool, python, setup, level, task, folder))
            for tool, python in tools.items()
        }
        for i in range(-2, rounds):  # two rounds to warm up
            order = list(workers)
            order = order[i % len(order) :] + order[: i % len(order)]
            for tool in order:
                for kind in ("plain",) if tool.startswith("none") else ("dumped", "plain"):
                    answer = workers[tool].step(kind)
                    if i < 0:
                        continue
                    name = tool if kind == "dumped" or tool.startswith("none") else f"{tool} stopped"
                    seconds.setdefault(name, []).append(answer["wall"])
                    cpu.setdefault(name, []).append(answer["cpu"])
                    losses.setdefault(tool, []).append(answer["loss"])
                    if kind == "dumped":
                        size[tool] = {"files": answer["files"], "bytes": answer["bytes"]}
    ratios = {name: _ratio(seconds[name], seconds["none"]) for name in seconds if name != "none"}
    return {
        "level": level,
        "task": task,
        "place": place,
        "seconds": seconds,
        "median_seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "cpu_seconds": {name: statistics.median(values) for name, values in cpu.items()},
        "cpu_ratios": {name: _ratio(cpu[name], cpu["none"]) for name in cpu if name != "none"},
        "ratios": ratios,
        "written": size,
        "losses_equal": _same_losses(losses),
    }


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def _same_losses(losses: dict[str, list[float]]) -> bool:
    """Whether the watched runs gave the losses of the plain one, step for step."""
    plain = losses["none"]
    return all(
        values[: len(plain)] == plain[: len(values)]
        for values in losses.values()
        if len(values) == len(plain)
    )


def _part(ratios: dict[str, float]) -> str:
    """How much of msprobe's overhead is left."""
    theirs = ratios.get("msprobe", 1.0) - 1
    return f"{(ratios['probe'] - 1) / theirs:.2f}" if theirs > 0 else "-"


def _rows(results: Sequence[Answer]) -> list[list[str]]:
    rows = []
    for r in results:
        ratio, mega = r["ratios"], {tool: w["bytes"] / 1e6 for tool, w in r["written"].items()}
        rows.append(
            [
                f"{r['level']} {r['task']}",
                "tmpfs" if r["place"].startswith("/dev/shm") else "disk",
                f"{r['median_seconds']['none']:.3f}",
                f"{ratio['none again']:.2f}",
                f"{ratio['probe']:.2f}",
                f"{ratio['msprobe']:.2f}" if "msprobe" in ratio else "-",
                _part(ratio),
                _part(r["cpu_ratios"]),
                f"{ratio['probe stopped']:.2f}",
                f"{ratio['msprobe stopped']:.2f}" if "msprobe stopped" in ratio else "-",
                " / ".join(f"{mega[tool]:.1f}" for tool in ("probe", "msprobe") if tool in mega),
            ]
        )
    return rows


HEAD = [
    *("dump", "place", "plain s", "noise", "Probe", "msprobe", "overhead part", "in CPU time"),
    *("Probe stopped", "msprobe stopped", "MB Probe / msprobe"),
]


TOOLS = {"Probe": "probe", "msprobe": "msprobe"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write results/step_ratio.md, .json and .svg."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--levels", default="L0,L1,mix")
    parser.add_argument("--tasks", default="statistics,tensor")
    parser.add_argument("--msprobe", default=MS_PYTHON, help="a Python with mindstudio-probe and torch")
    parser.add_argument("--name", default="step_ratio", help="name of the files in bench/results")
    parser.add_argument("--disk", default=tempfile.gettempdir())
    for field in attrs.fields(Setup):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    given = parser.parse_args(arguments)
    setup = Setup(**{field.name: getattr(given, field.name) for field in attrs.fields(Setup)})
    if not given.msprobe:
        print("msprobe is not measured: give --msprobe, or set PROBE_MSPROBE_PYTHON.", file=sys.stderr)
    results = []
    for level in given.levels.split(","):
        for task in given.tasks.split(","):
            places = [given.disk] if task == "statistics" else [given.disk, "/dev/shm"]
            for place in (p for p in places if os.path.isdir(p)):
                print(f"{level} {task} to {place} ...", file=sys.stderr, flush=True)
                results.append(measure(setup, level, task, place, given.msprobe, given.rounds))
                print(table(HEAD, _rows(results[-1:])), flush=True)
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "setup": attrs.asdict(setup),
        "rounds": given.rounds,
    }
    RESULTS.mkdir(exist_ok=True)
    text = table(HEAD, _rows(results))
    (RESULTS / f"{given.name}.json").write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    note = "overhead part: (Probe - 1) / (msprobe - 1), to be at most 0.33; below 1 is less overhead.\n"
    settings = ", ".join(f"{key} {value}" for key, value in about.items())
    (RESULTS / f"{given.name}.md").write_text(f"# Step-time ratios\n\n{settings}\n\n{text}\n\n{note}")
    bars = [
        Bars(
            f"{r['level']} {r['task']}" + (", tmpfs" if r["place"].startswith("/dev/shm") else ""),
            {name: r["ratios"][tool] for name, tool in TOOLS.items() if tool in r["ratios"]},
        )
        for r in results
    ]
    title = "A dumped step over a plain one (shorter is cheaper)"
    (RESULTS / f"{given.name}.svg").write_text(picture(title, bars))
    print(f"\n{text}\n{note}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
