"""One step of more and more records: `python bench/long_step.py COUNT FOLDER [late]` makes one, and prints JSON.

CPU time in the step, and in start(), stop() and step(), for each record, and the most memory, in a fresh process whose
first dumped steps are not timed. The time of a record, and the memory, should not depend on how many there are. A
step that takes less than a second is dumped several times, and the median counts: a single one of 10^3 records takes
40 ms, which is what the machine happens to do. late: every number comes later than its record, as from a device.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WARM_UP = 1_000


def run(count: int, folder: str, late: bool = False) -> dict[str, Any]:
    """Dump one step with so many calls."""
    import torch
    from machine import own_peak
    from probe_torch import PrecisionDebugger

    torch.set_num_threads(1)
    debugger = PrecisionDebugger(dump_path=folder, level="L1", task="statistics", async_dump=late)
    x = torch.ones(16)

    def step(calls: int) -> tuple[float, float]:
        times = [time.process_time()]
        debugger.start()
        times.append(time.process_time())
        for _ in range(calls):
            torch.relu(x)
        times.append(time.process_time())
        debugger.stop()
        debugger.step()
        times.append(time.process_time())
        return times[2] - times[1], times[1] - times[0] + times[3] - times[2]

    step(WARM_UP // 10)  # makes what is made once
    before = own_peak()
    step(WARM_UP)
    found = [step(count) for _ in range(max(1, min(9, 100_000 // count)))]
    peak = own_peak()
    size = sum(path.stat().st_size for path in Path(folder).glob("step2/*/*") if path.is_file())
    return {
        "records": count,
        "step_us": statistics.median(inside for inside, _ in found) / count * 1e6,
        "stop_us": statistics.median(around for _, around in found) / count * 1e6,
        "above_mib": (peak - before) / 2**20,
        "bytes": size,
    }


def measure(count: int, late: bool = False, checkout: Path = Path(__file__).parents[1]) -> dict[str, Any]:
    """Run one count in a process of its own, with the packages of a checkout."""
    sources = sorted(str(p) for p in (checkout / "packages").glob("*/src"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="probe-growth-") as folder:
        command = [sys.executable, __file__, str(count), folder, *["late"] * late]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{count} records could not be dumped:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2], "late" in sys.argv[3:])))
