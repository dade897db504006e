"""What two checkouts cost, in one run: `python -m bench.against OLD NEW` prints a row for each, and the ratio.

Both sides run in turns, in processes of their own, so that they share the machine's state of the minute; all times
are CPU time. A round is a few steps of each side; a number is the median over the rounds of the medians in a round,
and the ratio that of the rounds' ratios. Goals are those of the issue for which this was written; where the goal is
that nothing is slower, up to 5 % more is called "about": OLD against itself differs by as much.

steps: a small GPT (6 layers, width 64, 16 tokens), per record. "around": start(), stop() and step() of one dumped step;
    "overhead": the whole dumped step less a plain one of the same process. "late": with async_dump, by which every
    number comes later than its record, as all numbers of an accelerator do.
recovery: `recover` of a killed step of 10,000 records, each side its own; "of old": NEW on the journal that OLD wrote.
growth: `long_step.py`: one step of more and more records, with its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from . import long_step
from .tables import table
from .turns import started

WORKER = Path(__file__).parent / "against_worker.py"
GROUPS = ("steps", "recovery", "growth")
KILLED = 10_000
#: start + stop + step by level, and the whole overhead.
AROUND = {"mix": 0.35, "L1": 0.4, "L0": 0.5}
OVERHEAD = 0.75
HEAD = ["row", "unit", "old", "new", "new / old", "at most", "met"]
LATE = {"async_dump": True}


@attrs.frozen
class Row:
    """One line of the table; the goal is for new / old."""

    name: str
    unit: str
    old: float
    new: float
    goal: float
    ratio: float | None = None

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        ratio = self.ratio if self.ratio is not None else self.new / self.old if self.old else 1.0
        met = "yes" if ratio <= self.goal else "about" if self.goal == 1 and ratio <= 1.05 else "NO"
        return [
            self.name,
            self.unit,
            f"{self.old:.2f}",
            f"{self.new:.2f}",
            f"{ratio:.3f}",
            f"{self.goal}",
            met,
        ]


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment in which the packages of a checkout are imported."""
    sources = sorted(str(path) for path in (checkout / "packages").glob("*/src"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sources),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def compared(
    name: str, unit: str, goal: float, rounds: Sequence[tuple[float, float]], factor: float = 1.0
) -> Row:
    """Return the row of pairs (old, new), one for each round."""
    old, new = (statistics.median(pair[side] for pair in rounds) * factor for side in (0, 1))
    return Row(name, unit, old, new, goal, statistics.median(b / a for a, b in rounds))


# -- steps -----------------------------------------------------------------------------------------------------------


def steps(sides: Sequence[Path], level: str, given: argparse.Namespace, **keys: Any) -> Iterator[Row]:
    """Measure the steps of a small GPT."""
    config = {"level": level, **keys}
    label = f"{level} {keys['task']}{' late' if keys.get('async_dump') else ''}"
    found: list[tuple[list[float], list[float]]] = []  # each round: around and overhead of both sides
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-against-", dir=given.place))
        )
        workers = []
        for side, checkout in zip(("old", "new"), sides, strict=True):
            (folder / side).mkdir()
            keep = "keep" if given.place != "/dev/shm" else "remove"
            command = [sys.executable, str(WORKER), "steps", str(folder / side), json.dumps(config), keep]
            workers.append(
                stack.enter_context(started(command, folder / f"{side}.log", environment(checkout)))
            )
        records = [0, 0]
        for i in range(-1, given.rounds):
            taken: dict[tuple[int, str], list[float]] = {}
            for _ in range(given.steps):
                for side in (0, 1) if i % 2 else (1, 0):
                    for order in ("dumped", "plain"):
                        answer = workers[side].step(order)
                        taken.setdefault((side, order), []).append(answer["step"])
                        if order == "dumped":
                            taken.setdefault((side, "around"), []).append(answer["around"])
                            records[side] = answer["records"]
            if i >= 0:
                median = {key: statistics.median(values) for key, values in taken.items()}
                around = [median[side, "around"] / records[side] for side in (0, 1)]
                over = [(median[side, "dumped"] - median[side, "plain"]) / records[side] for side in (0, 1)]
                found.append((around, over))
    if records[0] != records[1]:
        print(f"{label}: {records[0]} records with old, {records[1]} with new", file=sys.stderr)
    goals = (1.0, 1.0) if keys["task"] == "tensor" else (AROUND[level], OVERHEAD)
    for place, what in enumerate(("around", "overhead")):
        pairs = [(both[place][0], both[place][1]) for both in found]
        yield compared(f"{label}: {what}", "us a record", goals[place], pairs, 1e6)


def all_steps(sides: Sequence[Path], given: argparse.Namespace) -> Iterator[Row]:
    """Measure all kinds of dumps."""
    for late in ({}, LATE):
        for level in ("mix", "L1", "L0"):
            yield from steps(sides, level, given, task="statistics", **late)
    for level in ("mix", "L1"):
        yield from steps(sides, level, given, task="tensor")


# -- recovery --------------------------------------------------------------------------------------------------------


def worked(checkout: Path, *words: str) -> dict[str, Any]:
    """Run the worker to its end; its answer, where it lived to give one."""
    command = [sys.executable, str(WORKER), *words]
    done = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, check=False)
    if done.returncode not in (0, -9):
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode} in {checkout}:\n{done.stderr}")
    return dict(json.loads(done.stdout)) if done.stdout else {}


def recoveries(sides: Sequence[Path], given: argparse.Namespace) -> Iterator[Row]:
    """Measure the recovery of a killed step."""
    for label, keys in (("statistics", {}), ("late", LATE)):
        with tempfile.TemporaryDirectory(prefix="probe-against-", dir=given.place) as temporary:
            folders = [Path(temporary) / side for side in ("old", "new")]
            config = json.dumps({"level": "L1", "task": "statistics", **keys})
            for folder, checkout in zip(folders, sides, strict=True):
                folder.mkdir()
                worked(checkout, "killed", str(folder), str(KILLED), config)
            own, foreign = [], []
            for _ in range(given.rounds):
                taken = [
                    worked(checkout, "recovery", str(folder))
                    for folder, checkout in zip(folders, sides, strict=True)
                ]
                taken.append(worked(sides[1], "recovery", str(folders[0])))
                if len({(answer["records"], answer["outcome"]) for answer in taken}) > 1:
                    print(f"recovery {label}: not the same: {taken}", file=sys.stderr)
                own.append((taken[0]["seconds"], taken[1]["seconds"]))
                foreign.append((taken[0]["seconds"], taken[2]["seconds"]))
            unit = f"ms for {taken[0]['records']:,} records"
            yield compared(f"recovery {label}", unit, 1.0, own, 1e3)
            yield compared(f"recovery {label} of old", unit, 1.0, foreign, 1e3)


# -- growth ----------------------------------------------------------------------------------------------------------


def growth(sides: Sequence[Path], given: argparse.Namespace) -> Iterator[Row]:
    """Measure steps of more and more records."""
    for late in (False, True):
        for size in given.sizes:
            rounds = [
                [long_step.measure(size, late, checkout) for checkout in sides]
                for _ in range(given.rounds if size < 100_000 else 1)
            ]
            label = f"growth {size:,}{' late' if late else ''}"
            for key, unit in (
                ("step_us", "us a record, in the step"),
                ("stop_us", "us a record, around it"),
                ("above_mib", "MiB above"),
            ):
                pairs = [(old[key] or 1e-9, new[key]) for old, new in rounds]
                yield compared(label, unit, 1.0, pairs)


MEASURES: dict[str, Callable[[Sequence[Path], argparse.Namespace], Iterator[Row]]] = {
    "steps": all_steps,
    "recovery": recoveries,
    "growth": growth,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="in a round")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--place", default=tempfile.gettempdir(), help="where dumps go; /dev/shm for memory")
    given = parser.parse_args()
    sides = [given.old.resolve(), given.new.resolve()]
    rows = []
    for group in given.groups:
        for row in MEASURES[group](sides, given):
            rows.append(row.cells())
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(table(HEAD, rows))


if __name__ == "__main__":
    main()
