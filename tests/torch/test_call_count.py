"""Promise 3, cheap: the Python-level calls that one recorded call costs, forward and backward, stay below a bound.

The numbers are counted, not timed (`bench/counted/torch_step.py`), so they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from counted_calls import check_calls

#: (level, task) -> at most so many calls in the step, and with start(), stop() and step().
BOUNDS = {
    ("L0", "statistics"): (260, 323),
    ("mix", "tensor"): (426, 481),
    ("L1", "tensor"): (431, 464),
}
RECORDS = {"L0": 200, "L1": 201, "mix": 401}


@pytest.mark.parametrize(("level", "task"), BOUNDS, ids=" ".join)
def test_a_recorded_call_costs_few_calls(level: str, task: str, tmp_path: Path) -> None:
    check_calls("torch_step.py", level, task, RECORDS[level], BOUNDS[level, task], tmp_path)
