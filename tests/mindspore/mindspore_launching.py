"""Run scripts in forks of a process that has imported MindSpore, alone or as the ranks that msrun starts."""

from __future__ import annotations

import os
from pathlib import Path

from forks import Forks, free_port

__all__ = ["FORKS", "run_ranks"]

HERE = Path(__file__).parent
FORKS = Forks("mindspore_warmed")


def run_ranks(script: str, *words: str) -> None:
    """Run a script on two ranks, with their scheduler. test_run.py does so with msrun itself."""
    group = {
        "MS_WORKER_NUM": "2",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(free_port()),
        "MS_TOPO_TIMEOUT": "240",
    }
    worker = {**group, "MS_ROLE": "MS_WORKER"}
    nodes = [{**worker, "MS_NODE_ID": rank, "RANK_ID": rank, "DEVICE_ID": rank} for rank in "01"]
    with open(os.devnull, "r+") as none:
        nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), none.fileno())
        scheduler = FORKS.start(str(HERE / script), *words, **nowhere, **group, MS_ROLE="MS_SCHED")
    try:
        FORKS.together(str(HERE / script), *words, each=nodes)
    finally:
        scheduler.kill()  # it would wait some 20 seconds
