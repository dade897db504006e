"""Dump steps of a model in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe_torch import PrecisionDebugger
from torch import nn


def dumped(
    folder: Path, step: Callable[[int], Any], model: nn.Module | None, steps: int = 1, **config: Any
) -> Path:
    """Dump what `step`, called with the number of each, does; statistics at level mix where nothing else is said."""
    with PrecisionDebugger(
        dump_path=str(folder), **{"task": "statistics", "level": "mix", **config}
    ) as debugger:
        for n in range(steps):
            debugger.start(model)
            step(n)
            debugger.stop()
            debugger.step()
    return folder
