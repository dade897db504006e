"""Promise 3, cheap: the Python-level calls that one recorded call costs, forward and backward, stay below a bound.

The numbers are counted, not timed (`bench/counted/torch_step.py`), so they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from counted_calls import check_calls

#: (level, task) -> at most so many calls in the step, and with start(), stop() and step().
BOUNDS = {
    ("L1", "statistics"): (256, 302),
    ("L0", "statistics"): (271, 343),
    ("mix", "statistics"): (254, 318),
    ("mix", "tensor"): (444, 509),
    ("L1", "tensor"): (437, 484),
}
RECORDS = {"L0": 200, "L1": 201, "mix": 401}


@pytest.mark.parametrize(("level", "task"), BOUNDS, ids=" ".join)
def test_a_recorded_call_costs_few_calls(level: str, task: str, tmp_path: Path) -> None:
    check_calls("torch_step.py", level, task, RECORDS[level], BOUNDS[level, task], tmp_path)
