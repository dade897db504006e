"""Promise 3, cheap: the Python-level calls that one recorded call costs, forward and backward, stay below a bound.

The numbers are counted, not timed (`bench/counted/mindspore_step.py`), so they are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import probe_fast
import pytest
from counted_calls import check_calls

pytestmark = [pytest.mark.once, pytest.mark.slow]

#: (level, task) -> at most so many calls in the step, and with start(), stop() and step().
#: Some five in a hundred above what was measured.
BOUNDS = {
    ("L0", "statistics"): (400, 590),
    ("mix", "tensor"): (480, 640),
}
RECORDS = {"L0": 200, "mix": 601}


@pytest.mark.skipif(not probe_fast.WAY, reason="the reference of statistics makes more calls")
@pytest.mark.parametrize(("level", "task"), BOUNDS, ids=" ".join)
def test_a_recorded_call_costs_few_calls(level: str, task: str, tmp_path: Path) -> None:
    check_calls("mindspore_step.py", level, task, RECORDS[level], BOUNDS[level, task], tmp_path)
