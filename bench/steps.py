"""Measure the steps of a training with each tool, in turns in the same minutes: a step each, in rotation.

Every tool trains the same model from the same seed in a process of its own. Ratios are medians over the rounds of
(step with the tool) / (plain step of the same round). Start, stop and the writing of all files are in the step.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import attrs

from .turns import Answer, Worker, started

ROOT = Path(__file__).parents[1]
SOURCES = [str(path) for path in sorted((ROOT / "packages").glob("*/src"))]
MEMORY = "/dev/shm"
#: Cores of a machine that "all threads" is measured on.
MANY = 8


def cpu_count() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


@attrs.frozen
class Setup:
    """What is trained: batch sequences of length tokens, or images of so many pixels squared.

    threads: of each process (they take turns).
    model: of `models.py`.
    """

    layers: int = 6
    width: int = 256
    batch: int = 8
    length: int = 128
    threads: int = 2
    model: str = "gpt"

    @property
    def arguments(self) -> list[str]:
        """For worker.py."""
        return [text for name, value in attrs.asdict(self).items() for text in (f"--{name}", str(value))]


#: What begins with "small" is bound by Python's dispatch: the worst case of every tool.
SETUPS = {
    "small": Setup(6, 64, 1, 16, 1),
    "small Llama": Setup(6, 64, 1, 16, 1, "llama"),
    "small ResNet": Setup(2, 8, 1, 16, 1, "resnet"),
    "6x256": Setup(),
    "6x512": Setup(6, 512, 4, 256),
    "6x512, one thread": Setup(6, 512, 4, 256, 1),
    "6x512 Llama": Setup(6, 512, 4, 256, 2, "llama"),
    "6x512, all threads": Setup(6, 512, 4, 256, cpu_count()),
    "ResNet-18": Setup(2, 64, 8, 64, 2, "resnet"),
}


@attrs.frozen
class Case:
    """One row: a dump, where it goes, the tools beside Probe, and the goals.

    goal: (tool, share): Probe's overhead is to be at most this share of the tool's.
    """

    setup: str
    level: str
    task: str = "statistics"
    place: str = ""
    section: str = "{}"
    peers: tuple[str, ...] = ("slow", "msprobe")
    goal: float | None = None
    rounds: int = 7
    label: str = ""

    @property
    def name(self) -> str:
        """Return the row's name: "small L1 statistics"."""
        place = " in memory" if self.place == MEMORY else " on disk" if self.task == "tensor" else ""
        return f"{self.setup} {self.level} {self.label or self.task}{place}"


@contextmanager
def worker(tool: str, python: str, case: Case, folder: Path, **more: str) -> Iterator[Worker]:
    """Start one; it ends with the block. more: of its environment."""
    dump = folder / tool / "dump"
    dump.parent.mkdir(parents=True)
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": os.pathsep.join(SOURCES), **more}
    word, _, part = tool.partition(" ")
    command = [python, str(Path(__file__).parent / "worker.py"), word, *SETUPS[case.setup].arguments]
    command += ["--part", part] * (word == "without")
    command += ["--level", case.level, "--task", case.task, "--section", case.section, "--dump", str(dump)]
    command += ["--keep"] * (case.place != MEMORY)
    with started(command, folder / f"{tool}.log", environment) as process:
        yield process


def tools_of(names: Sequence[str], msprobe: str) -> dict[str, str]:
    """Return the tools that can run here, with the Python of each."""
    there = {"msprobe": bool(msprobe), "debug": find_spec("torch.utils._debug_mode") is not None}
    return {name: msprobe if name == "msprobe" else sys.executable for name in names if there.get(name, True)}


def measure(case: Case, msprobe: str, rounds: int, disk: str, end: ExitStack) -> Answer:
    """Measure one case. end: removes what is on the disk, once no other case is measured there (`worker.written`)."""
    place = case.place or disk
    tools = tools_of(("none", "none again", "probe", *case.peers), msprobe)
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    written: dict[str, Answer] = {}
    losses: dict[str, list[float]] = {}
    raw: list[float] = []
    raw_files: list[float] = []
    with ExitStack() as stack:
        holder = end if place != MEMORY else stack
        folder = Path(holder.enter_context(tempfile.TemporaryDirectory(prefix="probe-bench-", dir=place)))
        workers = {t: stack.enter_context(worker(t, python, case, folder)) for t, python in tools.items()}
        for i in range(-2 if rounds > 3 else -1, rounds):  # the first to warm up
            order = list(workers)
            order = order[i % len(order) :] + order[: i % len(order)]
            for tool in order:
                for kind in ("plain",) if tool.startswith("none") else ("dumped", "plain"):
                    answer = workers[tool].step(kind)
                    if i < 0:
                        continue
                    name = tool if kind == "dumped" or tool.startswith("none") else f"{tool} stopped"
                    wall.setdefault(name, []).append(answer["wall"])
                    cpu.setdefault(name, []).append(answer["cpu"])
                    losses.setdefault(tool, []).append(answer["loss"])
                    if kind == "dumped":
                        written[tool] = {"files": answer["files"], "bytes": answer["bytes"]}
            if case.task == "tensor" and i >= 0:
                raw.append(raw_write(folder / "raw", written["probe"]["bytes"]))
                raw_files.append(raw_write(folder / "raw", **written["probe"]))
    return {
        "name": case.name,
        "case": attrs.asdict(case),
        "seconds": {name: statistics.median(values) for name, values in wall.items()},
        "cpu_seconds": {name: statistics.median(values) for name, values in cpu.items()},
        "ratios": {name: ratio(wall[name], wall["none"]) for name in wall if name != "none"},
        "cpu_ratios": {name: ratio(cpu[name], cpu["none"]) for name in cpu if name != "none"},
        "written": written,
        "raw_write_seconds": statistics.median(raw) if raw else None,
        "raw_files_seconds": statistics.median(raw_files) if raw_files else None,
        "rounds": rounds,
        "changed": _changed(losses),
    }


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the median ratio."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def share(answer: Answer, tool: str = "probe", of: str = "msprobe", time: str = "cpu_ratios") -> float | None:
    """Return a tool's overhead as a part of another's; None where the other was not measured.

    time: "cpu_ratios", or "ratios" for wall time.
    """
    ratios = answer[time]
    if tool not in ratios or ratios.get(of, 0) <= 1:
        return None
    return float((ratios[tool] - 1) / (ratios[of] - 1))


def raw_write(path: Path, bytes: int, files: int = 1) -> float:
    """Return the seconds that it takes to write so many bytes, which is the least that a dump of them can take.

    files: how many files they are in, of the same size.
    """
    block = memoryview(os.urandom(1 << 20))
    each = -(-bytes // files)
    seconds = 0.0
    for n in range(files):
        one, size = f"{path}-{n}", each
        begin = time.perf_counter()
        with open(one, "wb", buffering=0) as file:
            while size > 0:
                size -= file.write(block[:size])
        seconds += time.perf_counter() - begin
    for n in range(files):
        os.unlink(f"{path}-{n}")
    return seconds


def idle(rounds: int) -> Answer:
    """Measure steps in which Probe does nothing: its debugger made and never started, and after a dumped step."""
    case = Case("small", "mix")
    times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-bench-")))
        tools = {"none": "none", "none again": "none again", "made": "made", "stopped": "probe"}
        workers = {
            name: stack.enter_context(worker(tool, sys.executable, case, folder))
            for name, tool in tools.items()
        }
        for _ in range(2):
            workers["stopped"].step("dumped")
        for i in range(-5, rounds):
            order = list(workers)
            order = order[i % len(order) :] + order[: i % len(order)]
            for name in order:
                workers[name].step("plain")  # the first finds the caches full of another process's data
                answer = workers[name].step("plain")
                if i >= 0:
                    times.setdefault(name, []).append(answer["cpu"])
    fastest = {name: min(values) for name, values in times.items()}
    ratios = {name: ratio(times[name], times["none"]) for name in times if name != "none"}
    return {"name": "idle", "cpu_seconds": fastest, "cpu_ratios": ratios, "rounds": rounds}


def _changed(losses: dict[str, list[float]]) -> list[str]:
    """Return the tools whose losses are not those of the run without a tool, in the steps that both made."""
    plain = losses["none"]
    watched = {tool: values for tool, values in losses.items() if not tool.startswith("none")}
    # The others make two steps a round, also in those that are not counted: their first is a later one.
    shared = [plain[late:] for late in range(len(plain)) if plain[late] == watched["probe"][0]]
    true = (shared or [plain])[0]
    true = true + watched["probe"][len(true) :]
    return [tool for tool, values in watched.items() if values != true]
