"""Run the zoo of compiled graphs with all data modes: `python tests/mindspore/zoo_soak.py [NETWORK ...]`.

Each network has a process of its own, as MindSpore keeps every graph; what fails is named at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
TEST = "test_the_zoo_keeps_its_bits_and_has_the_records_of_pynative"


def main() -> int:
    sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]
    from graph_siblings import ALL

    failed = []
    for name in sys.argv[1:] or list(ALL):
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-x", f"{HERE}/graph/test_beside.py::{TEST}[{name}]"]
        done = subprocess.run(command, env={**os.environ, "PROBE_SOAK": "1"}, capture_output=True, text=True)
        print(
            f"{name}: {'failed' if done.returncode else 'ok'}, {time.monotonic() - began:.0f} s", flush=True
        )
        if done.returncode:
            failed.append(name)
            print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    print("failed:", *failed) if failed else print("no failure")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
