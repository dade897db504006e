"""Run scripts in forks of a process that has imported torch, alone or as the ranks that torchrun starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from forks import Forks, free_port

__all__ = ["BARE", "FORKS", "HERE", "launch", "run_ranks"]

HERE = Path(__file__).parent
FORKS = Forks("warmed")
#: Of a process that knows torch alone, of which nothing has been used yet.
BARE = Forks("torch")


def run_ranks(script: str, *words: str) -> None:
    """Run a script beside this file on two ranks. test_trainers.py does so with torchrun itself."""
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    group |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [{**group, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    FORKS.together(str(HERE / script), *words, each=ranks)


def launch(script: str, kind: str, config: str, out: Path) -> list[dict[str, Any]]:
    """Run a script beside this file; what each of the two ranks saw.

    kind: what the script shall do. config: the configuration file, "-" for a run without Probe. out: a folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    run_ranks(script, kind, config, str(out))
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
