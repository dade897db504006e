"""Run a script on two real processes with torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

__all__ = ["launch"]

HERE = Path(__file__).parent


def launch(script: str, kind: str, config: str, out: Path) -> list[dict[str, Any]]:
    """Run a script beside this file; what each of the two ranks saw.

    kind: what the script shall do. config: the configuration file, "-" for a run without Probe. out: a folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([*(p for p in sys.path if p), str(HERE)])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(HERE / script), kind, config, str(out)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
