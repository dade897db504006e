"""One process that trains one of `models.py` with one tool, a step at a time.

Runs by path, in any environment with torch: it imports the tool that it measures and nothing else of ours.
Reads one word a line ("plain" or "dumped"), makes that step, and answers with a line of JSON: wall and CPU
seconds of the step (start and stop included), how much was written, and the most memory so far. The tools: none,
probe, slow (Probe without probe-fast), packed (Probe with tensor_files: packed), made (never started),
without (Probe without a part, of `parts.py`), msprobe, and those of `peers.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

import torch
from machine import own_peak
from models import MODELS


def debugger(tool: str, level: str, task: str, dump: Path, section: dict[str, Any]) -> Any:
    """The tool's PrecisionDebugger, told to record the same: every call, every step.

    section: of the configuration, for the task, where it differs from what records everything.
    """
    if tool == "none":
        return None
    if tool in ("hooks", "debug"):
        import peers

        return (peers.Hooks if tool == "hooks" else peers.Debug)(dump)
    if tool == "slow":
        sys.modules["probe_fast"] = None  # type: ignore[assignment]  # as where the extra `fast` is not installed
    config: dict[str, Any] = {"task": task, "level": level, "dump_path": str(dump), "rank": [], "step": []}
    config[task] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics", **section}
    if task == "tensor":
        del config[task]["summary_mode"]
    if tool == "packed":
        config["tensor_files"] = "packed"
    if tool == "msprobe":
        config["risk_level"] = "ALL"  # the default leaves out reshape, transpose, cat, to, ...
    path = dump.parent / "config.json"
    path.write_text(json.dumps(config))
    if tool == "msprobe":
        from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]
    else:
        from probe_torch import PrecisionDebugger
    return PrecisionDebugger(config_path=str(path))


def written(dump: Path, *, keep: bool) -> tuple[int, int]:
    """Files and bytes on disk, hard links counted once; then they are removed.

    keep: on a disk: emptied and put aside instead. ext4 without a journal looks at every file that was deleted in the
    last minutes whenever it makes one, which then takes up to thirty times as long. Who keeps a dump does not pay that.
    """
    sizes = {}
    for folder, _, names in os.walk(dump):
        for name in names:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            if stat.st_ino not in sizes:  # a second name finds the file empty
                sizes[stat.st_ino] = stat.st_size
                if keep:
                    os.truncate(path, 0)
    if keep:
        dump.rename(dump.with_name(f"{dump.name}-{time.monotonic_ns()}"))
    else:
        shutil.rmtree(dump, ignore_errors=True)
    return len(sizes), sum(sizes.values())


def serve(given: argparse.Namespace, answers: TextIO) -> None:
    """Answer the orders on standard input until it ends."""
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model, data, loss_of = MODELS[given.model](given)
    model = model.to(given.device)
    wait = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tool = None
    if given.part:
        from parts import without

        without(given.part)
    for order in sys.stdin:
        dumped = order.strip() == "dumped"
        if tool is None and (dumped or given.tool == "made"):
            tool = debugger(given.tool, given.level, given.task, given.dump, json.loads(given.section))
        batch = next(data).to(given.device)
        wait()
        wall, cpu = time.perf_counter(), time.process_time()
        if dumped and tool is not None:
            tool.start(model)
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dumped and tool is not None:
            tool.stop()
            tool.step()
        wait()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        files, size = written(given.dump, keep=given.keep) if dumped else (0, 0)
        answer = {
            "wall": wall,
            "cpu": cpu,
            "loss": loss.item(),
            "files": files,
            "bytes": size,
            "peak": own_peak(),
        }
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Take the real standard output for the answers; what the tools print goes to standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "tool", choices=["none", "probe", "slow", "packed", "made", "without", "msprobe", "hooks", "debug"]
    )
    parser.add_argument("--part", help="what to leave out: of parts.py")
    parser.add_argument("--level", default="mix")
    parser.add_argument("--task", default="statistics")
    parser.add_argument("--section", default="{}")
    parser.add_argument("--dump", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", choices=list(MODELS), default="gpt")
    for name in ("layers", "width", "batch", "length", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(given, answers)


if __name__ == "__main__":
    main()
