"""Commands of probe-analysis whose system calls fail (forked_runs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mutants
from forked_runs import serve
from probe_format.cli.main import main


def prepare(folder: Path, mode: str) -> None:
    """Write what is read."""
    for name in ("a", "b"):
        mutants.fresh(folder / name)


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Run one command; return its exit code."""
    a, b, out = str(folder / "a"), str(folder / "b"), str(folder / "out")
    words = {
        "report": ["report", a, b, "-o", f"{out}.html"],
        "diff": ["diff", a, b, "--format", "csv", "-o", f"{out}.csv"],
        "export": ["export", a, "-o", out],
        "curves": ["export", a, "-o", out, "--to", "tensorboard"],
        "ranks": ["ranks", a],
    }
    return str(main(words[mode])).encode()


if __name__ == "__main__":
    serve(run, "report", "diff", "export", "curves", "ranks", prepare=prepare)
