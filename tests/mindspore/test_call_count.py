"""Promise 3, cheap: the Python-level calls that one recorded call costs, forward and backward, stay below a bound.

The numbers are counted, not timed (`bench/counted/mindspore_step.py`), so they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from counted_calls import check_calls

#: (level, task) -> at most so many calls in the step, and with start(), stop() and step().
#: Some five in a hundred above what was measured, on 2.7 or 2.10, whichever takes more.
BOUNDS = {
    ("L1", "statistics"): (300, 430),
    ("L0", "statistics"): (400, 590),
    ("mix", "statistics"): (330, 490),
    ("mix", "tensor"): (480, 640),
}
RECORDS = {"L0": 200, "L1": 401, "mix": 601}


@pytest.mark.parametrize(("level", "task"), BOUNDS, ids=" ".join)
def test_a_recorded_call_costs_few_calls(level: str, task: str, tmp_path: Path) -> None:
    check_calls("mindspore_step.py", level, task, RECORDS[level], BOUNDS[level, task], tmp_path)
