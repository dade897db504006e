"""Run scripts of hatch one after the other, while the environments of the next ones are made.

Each argument is a part, `ENVIRONMENT:SCRIPT`, with more environments that it needs after a `+`. Environments are made
by pip, which mostly waits or unpacks on one core: two at a time, in the order in which they are needed. The first part
that fails, or whose environment cannot be made, ends the run with its name.
"""

import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

HATCH = [sys.executable, "-m", "hatch"]
#: What all environments and what the tests write take, and some room: a full disk fails hundreds of tests at once.
NEEDS_GB = 22
BEGAN = time.monotonic()


def make(environment: str) -> None:
    """Make an environment, or bring it up to date, and show what pip says only if that fails."""
    done = subprocess.run(
        [*HATCH, "env", "create", environment], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nFAILED: the environment {environment} could not be made.")


def run(script: str, needed: list[Future[None]]) -> float:
    """Run a script once its environments are there, and return how many seconds all that took."""
    began = time.monotonic()
    for environment in needed:
        environment.result()
    print(f"==== {script} after {time.monotonic() - BEGAN:.0f} s", flush=True)
    if subprocess.run([*HATCH, "run", script]).returncode:
        raise SystemExit(f"FAILED: hatch run {script}")
    return time.monotonic() - began


def main(parts: list[str]) -> None:
    """Run the parts, and say at the end how long each took."""
    free = shutil.disk_usage(".").free / 1e9
    if free < NEEDS_GB:
        print(f"WARNING: {free:.0f} GB are free here, and a whole run takes up to {NEEDS_GB} GB.", flush=True)
    needs = {part: [part.partition(":")[0], *part.split("+")[1:]] for part in parts}
    with ThreadPoolExecutor(2) as makers:
        made = {name: makers.submit(make, name) for name in dict.fromkeys(chain(*needs.values()))}
        try:
            took = [
                (run(part.partition("+")[0], [made[name] for name in needs[part]]), part) for part in parts
            ]
        finally:
            makers.shutdown(cancel_futures=True)  # an environment that is half made is worse than a wait
    print("==== all parts passed", *(f"{seconds:6.0f} s  {part}" for seconds, part in took), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
