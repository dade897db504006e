"""Follow the watch files of a job, and say how it is: its curves, what is not finite, ranks that stopped writing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define, field, frozen
from probe_format import jsonio
from probe_format.errors import FormatError
from probe_format.layout import REPORT, find_steps
from probe_format.watch import KINDS, WatchFile, watch_files

from probe_analysis.trend.series import magnitude

#: How many rows of each rank are kept.
_TAIL = 200
#: A rank has stopped when its next row is so many steps, and so many seconds, late.
_LATE_STEPS, _LATE_SECONDS = 20, 60.0
_MOST_STEPS = 50


@frozen
class Curve:
    """Hold the norm of all tensors of one kind together at each step; of several ranks the largest norm."""

    kind: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]


@frozen
class RankState:
    """Say how far a rank is.

    ago: the seconds since its last row. state: ``writes``, ``ended``, ``stopped`` or ``damaged``.
    """

    label: str
    step: int | None
    ago: float
    state: str


@frozen
class State:
    """Say how a job is.

    seconds: the time from one row to the next, of the latest rows.
    bad: in words, what is not finite in the first bad row of each rank.
    trigger: the last trigger, in words.
    """

    ranks: tuple[RankState, ...]
    curves: tuple[Curve, ...]
    seconds: float | None
    bad: tuple[str, ...]
    trigger: str | None

    @property
    def is_well(self) -> bool:
        return not self.bad and all(rank.state in ("writes", "ended") for rank in self.ranks)

    @property
    def sentence(self) -> str:
        steps = [rank.step for rank in self.ranks if rank.step is not None]
        ranks = "1 rank" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"
        pace = "" if self.seconds is None else f", {self.seconds:.3g} s a step"
        return f"step {max(steps, default='-')} of {ranks}{pace}"


@define(eq=False)
class Job:
    """Follow the files of a dump path; new ranks are found as they come."""

    path: Path
    _files: dict[Path, WatchFile] = field(factory=dict)

    def look(self, now: float | None = None) -> State:
        """Return how the job is. Raises FormatError when there are no watch files, or one is not in their format."""
        for each in self._files.values():
            each.more()
        if not self._files or not all(file.ended for file in self._files.values()):
            new = [file for file in watch_files(self.path) if file.path not in self._files]
            self._files |= {file.path: file for file in new}
        if not self._files:
            raise FormatError(f"{self.path} has no watch files. Give the dump_path of a run with task watch.")
        files = list(self._files.values())
        for file in files:
            del file.rows[:-_TAIL]
        at = time.time() if now is None else now
        pauses = [b.time - a.time for f in files for a, b in zip(f.rows[-20:], f.rows[-19:], strict=False)]
        pace = median(pauses) if pauses else None
        return State(
            tuple(_rank_state(file, at, pace) for file in files),
            tuple(_curves(files)),
            pace,
            tuple(_bad(files)),
            _trigger(self.path, files),
        )


def _rank_state(file: WatchFile, now: float, pace: float | None) -> RankState:
    began = file.header.get("started")
    last = file.rows[-1].time if file.rows else float(began) if isinstance(began, float) else now
    ago = max(0.0, now - last)
    state = "writes" if ago <= max(_LATE_SECONDS, _LATE_STEPS * (pace or 0.0)) else "stopped"
    if file.ended:
        state = "ended"
    step = file.rows[-1].step if file.rows else None
    return RankState(file.label, step, ago, "damaged" if file.damage else state)


def _curves(files: list[WatchFile]) -> Iterator[Curve]:
    steps = sorted({row.step for file in files for row in file.rows})[-_TAIL:]
    for kind in KINDS:
        values: dict[int, float] = {}
        for file in files:
            for row in file.rows:
                norm = file.total(row, kind)
                if norm is not None:
                    values[row.step] = max(values.get(row.step, 0.0), norm, key=magnitude)
        if values:
            yield Curve(kind, tuple(steps), tuple(values.get(step) for step in steps))


def _bad(files: list[WatchFile]) -> Iterator[str]:
    for file in files:
        row = next((row for row in file.rows if file.bad(row)), None)
        if row is None:
            continue
        bad = (i for i in range(len(file.columns)) if i not in row.wide and not isfinite(row.norm(i) or 0.0))
        names = [f"{file.columns[i].kind} of {file.columns[i].name}" for i in bad]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{file.label}, step {row.step}: {', '.join(names[:3])}{more}"


def _trigger(path: Path, files: list[WatchFile]) -> str | None:
    """Return the last trigger of the watch files; where they have none, of the newest report that names a trigger."""
    triggers = [trigger for file in files for trigger in file.triggers]
    if triggers:
        number, when, why = max(triggers, key=lambda each: each[0])
        return f"step {number}: {when}: {why}"
    for step in sorted(find_steps(path), key=lambda each: -each.step)[:_MOST_STEPS]:
        for report in sorted(step.path.glob(f"*/{REPORT}")):
            document: Any = None
            with contextlib.suppress(OSError, ValueError):
                document = jsonio.loads(report.read_bytes())
            told = document.get("triggers") if isinstance(document, dict) else None
            if isinstance(told, list) and told and isinstance(told[-1], dict):
                return f"step {step.step}: {told[-1].get('when')}: {told[-1].get('why')}"
    return None
