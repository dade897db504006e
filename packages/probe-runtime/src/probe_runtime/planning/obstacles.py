"""Find what stands in the way of a planned dump: a disk that is too small, a place that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probe_format.layout import MODES, existing_dump

from probe_runtime.config.config import Config
from probe_runtime.config.cross_checks import earlier_dump

from .dump_plan import DumpPlan
from .size_text import size_text


def disk_free(path: Path) -> int | None:
    """Return the bytes that are free where ``path`` is or would be made; None where that is not known."""
    try:
        state = os.statvfs(_nearest(path))
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def obstacles(plan: DumpPlan, config: Config) -> Iterator[str]:
    """Yield a sentence for each thing that would stop this dump or spoil it. Nothing is written to find them."""
    yield from _place(config)
    if plan.free is not None and plan.allocated > plan.free:
        yield (
            f"dump_path {config.dump_path}: one step of one rank takes {size_text(plan.allocated)}, and "
            f"{size_text(plan.free)} are free. Record less (list, scope, data_mode, task statistics), or choose "
            "another dump_path."
        )
    elif plan.free is not None and plan.total is not None and plan.total > plan.free:
        fit = plan.free // plan.allocated
        yield (
            f"dump_path {config.dump_path}: {_times(plan)} take {size_text(plan.total)}, and "
            f"{size_text(plan.free)} are free: enough for {fit}. Choose fewer steps or ranks, or another dump_path."
        )
    for which, value, nearest in plan.unmatched:
        near = ", ".join(nearest) or "no similar name"
        yield f"{which} entry {value!r} matches nothing. Nearest: {near}."


def _place(config: Config) -> Iterator[str]:
    path = config.dump_path
    try:
        there = _nearest(path)
        if not there.is_dir():
            yield f"dump_path {path}: {there} is a file, not a directory. Remove it, or choose another dump_path."
        elif not os.access(there, os.W_OK | os.X_OK):
            yield f"dump_path {path}: no permission to write below {there}. Choose another dump_path."
        elif not config.overwrite:
            ranks = config.rank or (None,)
            bases = (path, *(path / mode for mode in MODES))
            found = [p for base in bases for rank in ranks for p in existing_dump(base, rank, config.step)]
            if found:
                yield str(earlier_dump(path, found))
    except OSError as e:
        yield f"dump_path {path}: {e.strerror}. Choose another dump_path."


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    return next(p for p in (path, *path.parents) if p.exists())


def _times(plan: DumpPlan) -> str:
    return " of ".join(
        f"{n} {what}{'s' * (n > 1)}" for n, what in ((plan.steps or 1, "step"), (plan.ranks or 1, "rank"))
    )
