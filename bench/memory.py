"""How much memory a dumped step takes above a plain one, in a fresh process: the peak after it less that before.

The allocator gives each large block back as soon as it is freed. By default glibc keeps such blocks in its heap, where
the holes between them depend on chance: the same step takes 0 to 150 MiB more, all of it free.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .steps import MEMORY, Case, worker
from .turns import Answer

CASES = (Case("6x512", "mix"), Case("6x512", "mix", "tensor", MEMORY), Case("6x512", "L1", "tensor", MEMORY))
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
#: MiB above the plain step; the queue, whose bound is 1 GiB, may be full of tensors to be written.
GOALS = {"statistics": 64, "tensor": 1024 + 64}


def measure(case: Case) -> Answer:
    """Take the peak after three plain steps, then after two dumped ones."""
    with (
        tempfile.TemporaryDirectory(prefix="probe-bench-", dir=case.place or None) as folder,
        worker("probe", sys.executable, case, Path(folder), **GIVEN_BACK) as process,
    ):
        before = [process.step("plain")["peak"] for _ in range(3)][-1]
        after = [process.step("dumped")["peak"] for _ in range(2)][-1]
    goal = GOALS[case.task]
    return {
        "name": case.name,
        "plain_mib": before / 2**20,
        "above_mib": (after - before) / 2**20,
        "goal_mib": goal,
    }
