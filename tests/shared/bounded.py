"""Run the command `probe` on crafted files in a process that may use only so much memory and processor time."""

import os
import resource
import subprocess
import sys


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def probe(*words):
    """Exit code and everything printed. A process that runs out of time or memory is a failure of the test."""
    done = subprocess.run(
        [sys.executable, "-m", "probe_format", *map(str, words)], preexec_fn=limit, capture_output=True, text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's threads take addresses for each core of the machine
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1, 2, 3, 4), (done.returncode, said[-2000:])
    assert "Traceback" not in said, said[-2000:]
    return done.returncode, said
