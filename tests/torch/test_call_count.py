"""Promise 3, cheap: the Python-level calls that one recorded call costs, forward and backward, stay below a bound.

The numbers are counted, not timed (`bench/counted/torch_step.py`), so they are the same on every machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = Path(__file__).parents[2] / "bench" / "counted" / "torch_step.py"
#: (level, task) -> at most so many calls in the step, and with start(), stop() and step().
BOUNDS = {
    ("L1", "statistics"): (194, 265),
    ("L0", "statistics"): (201, 305),
    ("mix", "statistics"): (175, 254),
    ("mix", "tensor"): (273, 352),
    ("L1", "tensor"): (311, 381),
}
RECORDS = {"L0": 200, "L1": 201, "mix": 401}


@pytest.mark.parametrize(("level", "task"), BOUNDS, ids=" ".join)
def test_a_recorded_call_costs_few_calls(level: str, task: str, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(COUNTED), "probe", level, task, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == RECORDS[level]  # else the count would be of something else
    in_step, with_start_and_stop = BOUNDS[level, task]
    assert 0 < found["per_record"] <= in_step
    assert found["per_record"] < found["per_record_with_start_stop"] <= with_start_and_stop
