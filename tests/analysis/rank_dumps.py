"""Write dumps of several ranks: by a script under torchrun, or record by record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def torchrun(script: Path, ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    path = os.pathsep.join(p for p in sys.path if p)
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, str(script), *words], capture_output=True, text=True, timeout=240, env=env
    )


def tensor(**keys: Any) -> dict[str, Any]:
    numbers = {"Max": 1.25, "Min": -0.75, "Mean": 0.1, "Norm": 2.0}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4]} | numbers | keys


def write(folder: Path, rank: int, records: dict[str, Any], step: int = 0) -> None:
    where = folder / f"step{step}" / f"rank{rank}"
    where.mkdir(parents=True)
    (where / "dump.json").write_text(json.dumps({"task": "statistics", "level": "mix", "data": records}))
