"""How many Python-level calls a recorded call costs: `python -m bench.call_count`. Counted, so the same every time.

Each case runs in a process of its own (`counted/counting.py` says what is counted). The test
`tests/torch/test_call_count.py` holds Probe's numbers below bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .tables import table

CASES = (
    ("L1", "statistics"),
    ("L0", "statistics"),
    ("mix", "statistics"),
    ("mix", "tensor"),
    ("L1", "tensor"),
)
#: What the numbers are to stay below: in the step; with start, stop and step() it is 60 more.
GOALS = {
    ("L1", "statistics"): 200,
    ("L0", "statistics"): 300,
    ("mix", "statistics"): 200,
    ("mix", "tensor"): 350,
}
HEAD = ["dump", "goal", "Probe", "msprobe", "Probe, with start/stop/step", "msprobe, with start/stop/step"]
SOURCES = [str(path) for path in sorted((Path(__file__).parents[1] / "packages").glob("*/src"))]


def counted(python: str, tool: str, level: str, task: str, script: str = "torch_step.py") -> dict[str, Any]:
    """Count one case in a fresh process."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(SOURCES),
    }
    with tempfile.TemporaryDirectory(prefix="probe-count-") as folder:
        command = [python, str(Path(__file__).parent / "counted" / script), tool, level, task, folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tool} {level} {task} could not be counted:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(
    msprobe: str = "", cases: Sequence[tuple[str, str]] = CASES, script: str = "torch_step.py"
) -> list[dict[str, Any]]:
    """Count the cases, with Probe and, where its Python is given, with msprobe. script: counts one case."""
    tools = {"probe": sys.executable, **({"msprobe": msprobe} if msprobe else {})}
    return [counted(python, tool, *case, script) for case in cases for tool, python in tools.items()]


def without(parts: Sequence[str], cases: Sequence[tuple[str, str]] = CASES) -> Iterator[dict[str, Any]]:
    """Yield the counts of Probe without each of these parts (`parts.py`), of the cases that have a goal."""
    for level, task in cases:
        if (level, task) in GOALS:
            for part in parts:
                yield {**counted(sys.executable, f"without {part}", level, task), "part": part}


def rows(results: Sequence[dict[str, Any]], goals: Mapping[tuple[str, str], int] = GOALS) -> list[list[str]]:
    """The rows of the table; a number above its goal is marked."""
    found = []
    for case in dict.fromkeys((r["level"], r["task"]) for r in results):
        of = {r["tool"]: r for r in results if (r["level"], r["task"]) == case}
        goal = goals.get(case)
        cells = [" ".join(case), str(goal or "-")]
        for key, more in (("per_record", 0), ("per_record_with_start_stop", 60)):
            for tool in ("probe", "msprobe"):
                number = of[tool][key] if tool in of else None
                above = tool == "probe" and goal is not None and number is not None and number > goal + more
                cells.append("-" if number is None else f"{number:,.0f}{' (above)' if above else ''}")
        found.append(cells)
    return found


def main(
    arguments: Sequence[str] | None = None,
    *,
    script: str = "torch_step.py",
    goals: Mapping[tuple[str, str], int] = GOALS,
) -> int:
    """Count and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.call_count", description=__doc__)
    parser.add_argument(
        "--msprobe", default=os.environ.get("PROBE_MSPROBE_PYTHON", ""), help="a Python with it"
    )
    given = parser.parse_args(arguments)
    print(table(HEAD, rows(measure(given.msprobe, script=script), goals)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
