"""Count the Python-level calls of a dumped step, with one tool: `python bench/counted_step.py TOOL LEVEL TASK FOLDER`.

Runs by path, in any environment with torch: it imports the tool that it counts and nothing else of ours. The network
is 100 times linear and relu, so a step is 100 of each, forward and backward. Counted are the calls of functions,
Python's and built-in ones, that cProfile sees in the thread of the step; those of the same step without the tool are
subtracted. Prints a line of JSON.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

LAYERS, WIDTH, BATCH = 100, 16, 4


class Tower(nn.Module):
    """linear, relu, linear, relu, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        self.relus = nn.ModuleList([nn.ReLU() for _ in range(LAYERS)])

    def forward(self, x: Any) -> Any:
        for linear, relu in zip(self.linears, self.relus, strict=True):
            x = relu(linear(x))
        return x


def tower() -> tuple[Tower, Any]:
    """Return the network and its input, the same in every run; activations and gradients keep their size."""
    torch.manual_seed(0)
    model = Tower()
    for linear in model.linears:
        # On an all-positive input the layer is close to a mean, which neither grows nor dies, nor does its gradient.
        nn.init.uniform_(linear.weight, 0.5 / WIDTH, 1.5 / WIDTH)
        nn.init.uniform_(linear.bias, 0.0, 0.01)
    return model, torch.rand(BATCH, WIDTH)


def debugger(tool: str, level: str, task: str, folder: Path) -> Any:
    """Return the tool's PrecisionDebugger, told to record every call of every step."""
    config: dict[str, Any] = {"task": task, "level": level, "dump_path": str(folder / "dump"), "rank": [], "step": []}
    config[task] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    if tool == "msprobe":
        config["risk_level"] = "ALL"  # the default leaves out a part of the calls
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    if tool == "msprobe":
        from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]
    else:
        from probe_torch import PrecisionDebugger
    return PrecisionDebugger(config_path=str(path))


def forward_records(folder: Path) -> int:
    """Return how many calls the newest step recorded."""
    step = max((folder / "dump").glob("step*"), key=lambda p: int(p.name.removeprefix("step")))
    (file,) = step.glob("*/dump.json")
    return sum(".forward" in name for name in json.loads(file.read_text())["data"])


def total(profile: cProfile.Profile) -> int:
    """Return the number of calls that a profile saw."""
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def count(tool: str, level: str, task: str, folder: Path, top: int = 0) -> dict[str, Any]:
    """Return the calls in a step, and with start, stop and step(), without those of the plain step."""
    torch.set_num_threads(1)
    model, x = tower()
    probe = debugger(tool, level, task, folder)

    def work() -> None:
        model(x).sum().backward()

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
    gradients = [linear.weight.grad for linear in model.linears]
    assert all(g.abs().max() > 1e-6 and g.isfinite().all() for g in gradients), "a gradient vanished"
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
        "tool": tool,
        "level": level,
        "task": task,
        "records": records,
        "in_step": step,
        "around_step": total(outside),
        "per_record": round(step / records, 1),
        "per_record_with_start_stop": round((step + total(outside)) / records, 1),
    }


def main(tool: str, level: str, task: str, place: str, top: str = "0") -> None:
    """Take the real standard output for the answer; what the tools print goes to standard error."""
    warnings.simplefilter("ignore")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    folder = Path(place)
    try:
        print(json.dumps(count(tool, level, task, folder, int(top))), file=answer, flush=True)
    finally:
        shutil.rmtree(folder / "dump", ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
