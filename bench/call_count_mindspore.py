"""How many Python-level calls a recorded call of MindSpore costs: `python -m bench.call_count_mindspore`.

The twin of `call_count.py`, in an environment with MindSpore. The test `tests/mindspore/test_call_count.py` holds
Probe's numbers below bounds.
"""

from __future__ import annotations

from . import call_count

__all__ = ["GOALS"]

#: What the numbers are to stay below: in the step; with start, stop and step() it is 60 more.
GOALS = {("L1", "statistics"): 250, ("L0", "statistics"): 350, ("mix", "statistics"): 250}

if __name__ == "__main__":
    raise SystemExit(call_count.main(script="mindspore_step.py", goals=GOALS))
