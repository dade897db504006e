"""What a dumped step costs on a CUDA device, beside msprobe on the same: `python -m bench.device [--rounds 9]`.

Task statistics, in memory, wall time, the device waited for before and after each step; every tool in a process of its
own, a step each in turn. A number is the median over the rounds; "share" is Probe's overhead over msprobe's. `--msprobe
FOLDER` is where msprobe lies beside this Python's torch (or PROBE_MSPROBE_SITE); without it there are no shares.
`--write FILE` keeps the table for docs/performance.md (bench/results/device.json).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch

from .machine import about
from .steps import MEMORY, SETUPS, SOURCES, Case
from .tables import keep, table
from .turns import Worker, started

HEAD = ["model", "level", "plain step", "Probe", "msprobe", "share"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--msprobe", default=os.environ.get("PROBE_MSPROBE_SITE", ""))
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    rows = [
        _row(setup, level, given.msprobe, given.rounds)
        for setup in ("small", "6x512")
        for level in ("L0", "L1", "mix")
    ]
    print(table(HEAD, rows))
    if given.write is not None:
        of, gpu = about(quick=False), torch.cuda.get_device_name()
        text = f"{' '.join((__doc__ or '').split())} {of['date']}, {gpu}, {of['cores']} cores, torch {of['torch']}."
        keep(given.write, text, HEAD, rows)


def _row(setup: str, level: str, msprobe: str, rounds: int) -> list[str]:
    tools = ["none", "probe", *(["msprobe"] if msprobe else [])]
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, ExitStack() as stack:
        workers = {
            tool: stack.enter_context(_worker(tool, Case(setup, level), msprobe, Path(name)))
            for tool in tools
        }
        for worker in workers.values():
            _ = [worker.step(order) for order in ("plain", "plain", "dumped", "dumped")]
        taken = [{tool: _wall(tool, worker) for tool, worker in workers.items()} for _ in range(rounds)]
    plain = statistics.median(each["none"] for each in taken)
    over = {tool: statistics.median(each[tool] for each in taken) - plain for tool in tools[1:]}
    cells = [f"{1e3 * over[tool]:.0f} ms" if tool in over else "-" for tool in ("probe", "msprobe")]
    share = f"{over['probe'] / over['msprobe']:.2f}" if msprobe else "-"
    return [setup, level, f"{1e3 * plain:.1f} ms", *(f"+{cell}" for cell in cells), share]


def _wall(tool: str, worker: Worker) -> float:
    return float(worker.step("plain" if tool == "none" else "dumped")["wall"])


def _worker(tool: str, case: Case, msprobe: str, folder: Path):  # type: ignore[no-untyped-def]
    (folder / tool).mkdir()
    paths = [*SOURCES, *([msprobe] if tool == "msprobe" else [])]
    command = [sys.executable, str(Path(__file__).parent / "worker.py"), tool, "--level", case.level]
    command += ["--dump", str(folder / tool / "dump"), "--device", "cuda", *SETUPS[case.setup].arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return started(command, folder / f"{tool}.log", environment)


if __name__ == "__main__":
    main()
