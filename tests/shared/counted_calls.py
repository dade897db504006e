"""Count the Python-level calls of a recorded call with a script of `bench/counted`, and hold them to bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_SCRIPTS = Path(__file__).parents[2] / "bench" / "counted"


def check_calls(
    script: str, level: str, task: str, records: int, bounds: tuple[int, int], folder: Path
) -> None:
    """Fail unless the network of ``script`` has so many records, and the calls for each stay below the bounds.

    bounds: in the step, and with start(), stop() and step().
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, str(_SCRIPTS / script), "probe", level, task, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == records  # else the count would be of something else
    in_step, with_start_and_stop = bounds
    assert 0 < found["per_record"] <= in_step
    assert found["per_record"] < found["per_record_with_start_stop"] <= with_start_and_stop
