"""Write watch files of runs that never ran."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from probe_format.layout import watch_file
from probe_format.watch import ABSENT, Column, WatchWriter

__all__ = ["NAMES", "watched"]

NAMES = ("a.weight", "a.bias", "b.weight")


def watched(folder: Path, steps: int, *, ranks: int = 2, nan_at: int = -1, closed: bool = True) -> Path:
    """Gradients and weights of three tensors; the first's gradients grow by the step, and turn NaN on rank 1."""
    columns = [Column(k, *n.split("."), 4) for k in ("gradients", "weights") for n in NAMES]  # type: ignore[arg-type,misc]
    for rank in range(ranks):
        writer = WatchWriter(
            watch_file(folder, rank), {"rank": rank, "framework": "pytorch", "task": "watch"}
        )
        writer.columns(columns)
        for step in range(steps):
            norms = np.array([1.0 + step, 2.0, ABSENT if step % 2 else 3.0, 5.0, 6.0, 7.0])
            bad = {}
            if rank == 1 and step == nan_at:
                norms[0], bad = math.nan, {0: (3, 0)}
            writer.row(step, norms, bad)
        if closed:
            writer.close()
    return folder
