"""What other threads do is looked at without a word to the collector of garbage."""

import gc
import subprocess
import sys

import pytest
from probe_runtime.collect import other_threads

#: Each new object may begin a collection here, and the garbage takes the lock that Python holds as it lists frames.
AS_GARBAGE_IS_COLLECTED = """
import gc, threading
from probe_runtime.collect import other_threads
beside, ends = threading.Barrier(9), threading.Event()
for _ in range(8):
    threading.Thread(target=lambda: (beside.wait(), ends.wait()), daemon=True).start()
beside.wait()
for _ in range(50):
    cycle = [threading.local()]
    cycle.append(cycle)
    gc.set_threshold(0)  # until the lines after it have run
    del cycle
    gc.set_threshold(1)
    assert len([*other_threads()]) == 8
ends.set()
"""


def test_threads_are_listed_while_garbage_is_collected() -> None:
    subprocess.run([sys.executable, "-c", AS_GARBAGE_IS_COLLECTED], check=True, timeout=60)


@pytest.mark.parametrize("collects", [True, False])
def test_whether_garbage_is_collected_stays_as_it_was(collects: bool) -> None:
    try:
        if not collects:
            gc.disable()
        other_threads()
        assert gc.isenabled() == collects
    finally:
        gc.enable()
