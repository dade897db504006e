"""Say what `probe ranks` of one dump costs: `python -m bench.many_ranks.one DUMP WORKERS`.

It imports nothing that `probe ranks` itself does not: each worker has a copy of it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from ..machine import own_peak


def one(dump: Path, workers: int) -> dict[str, Any]:
    """Compare the ranks of a dump; return what it cost."""
    from probe_analysis import in_processes, ranks
    from probe_analysis.calls.engine import in_process

    begun, before = time.monotonic(), time.process_time()
    found = ranks(dump, engine=in_processes(workers, forked=True) if workers > 1 else in_process)
    wall = time.monotonic() - begun
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu": time.process_time() - before + children.ru_utime + children.ru_stime,
        "wall": wall,
        "peak": max(own_peak() / 1024, children.ru_maxrss) / 1024,
        "sentence": found.sentence,
    }


if __name__ == "__main__":
    print(json.dumps(one(Path(sys.argv[1]), int(sys.argv[2]))))
