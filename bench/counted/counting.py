"""Count the Python-level calls of a dumped step: what `torch_step.py` and `mindspore_step.py` share.

Counted are the calls of functions, Python's and built-in ones, that cProfile sees in the thread of the step; those of
the same step without the tool are subtracted.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["BATCH", "LAYERS", "WIDTH", "config_file", "count", "run"]

#: The network: so many times a linear layer and a relu.
LAYERS, WIDTH, BATCH = 100, 16, 4


def config_file(tool: str, level: str, task: str, folder: Path) -> str:
    """Write the configuration that makes the tool record every call of every step; return its path."""
    config: dict[str, Any] = {
        "task": task,
        "level": level,
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
    }
    config[task] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    if tool == "msprobe":
        config["risk_level"] = "ALL"  # the default leaves out a part of the calls
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def forward_records(folder: Path) -> int:
    """Return how many calls the newest step recorded."""
    step = max((folder / "dump").glob("step*"), key=lambda p: int(p.name.removeprefix("step")))
    (file,) = step.glob("*/dump.json")
    return sum(".forward" in name for name in json.loads(file.read_text())["data"])


def total(profile: cProfile.Profile) -> int:
    """Return the number of calls that a profile saw."""
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def count(probe: Any, model: Any, work: Callable[[], object], folder: Path, top: int) -> dict[str, Any]:
    """Return the calls in a step, and with start, stop and step(), without those of the plain step.

    probe: the tool's PrecisionDebugger.
    work: a step of the model, forward and backward.
    """

    def dumped(inside: Any, outside: Any) -> None:
        outside.enable()
        probe.start(model)
        outside.disable()
        inside.enable()
        work()
        inside.disable()
        outside.enable()
        probe.stop()
        probe.step()
        outside.disable()

    for _ in range(2):  # what is made once is made now
        work()
        dumped(cProfile.Profile(), cProfile.Profile())
    plain, inside, outside = cProfile.Profile(), cProfile.Profile(), cProfile.Profile()
    plain.enable()
    work()
    plain.disable()
    dumped(inside, outside)
    records = forward_records(folder)
    step = total(inside) - total(plain)
    if top:
        pstats.Stats(inside, stream=sys.stderr).sort_stats("ncalls").print_stats(top)
    return {
        "records": records,
        "in_step": step,
        "around_step": total(outside),
        "per_record": round(step / records, 1),
        "per_record_with_start_stop": round((step + total(outside)) / records, 1),
    }


def run(
    counted: Callable[[str, str, str, Path, int], dict[str, Any]],
    tool: str,
    level: str,
    task: str,
    place: str,
    top: str = "0",
) -> None:
    """Print the answer of ``counted`` as a line of JSON; what the tools print goes to standard error."""
    warnings.simplefilter("ignore")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder = Path(place)
    try:
        found = {"tool": tool, "level": level, "task": task, **counted(tool, level, task, folder, int(top))}
        print(json.dumps(found), file=answer, flush=True)
    finally:
        shutil.rmtree(folder / "dump", ignore_errors=True)
