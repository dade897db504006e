"""Run the command `probe` on crafted files in a process that may use only so much memory and processor time."""

import os
import resource
import subprocess
import sys


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (1500 << 20, 1500 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


MANY = """
import sys
from probe_format.cli.main import main
print("codes", *(main(words.split("\\n")) for words in sys.argv[1:]))
"""


def probes(*commands):
    """Exit codes of commands that one process runs. That it runs out of time or memory is a failure of the test."""
    done = subprocess.run(
        [sys.executable, "-c", MANY, *("\n".join(map(str, words)) for words in commands)],
        preexec_fn=limit, capture_output=True, text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's threads take addresses for each core of the machine
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in said, (done.returncode, said[-2000:])
    return [int(code) for code in done.stdout.rpartition("codes ")[2].split()], said
