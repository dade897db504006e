"""Write statistics of tensors, and norms of task `watch`, as curves over the steps, in TensorBoard's event files.

The records are framed by tensorboard's own writer, whose messages the real TensorBoard reads. tensorboardX, which is
smaller to install, imports torch wherever it finds it, and passes each number through a queue between processes.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

from probe_format.errors import FormatError, ProbeError
from probe_format.statistics import COUNTS, WHOLE
from probe_format.watch import WatchFile

from probe_analysis.calls.run import Run

from .rows import ExportCount

#: The groups of curves; the cells of a tensor have them in small letters.
_GROUPS = (*WHOLE, *COUNTS)
_LARGEST_FLOAT32 = 3.4028235677973366e38  # the first double that rounds to infinity


def write_curves(runs: Iterable[Run], folder: Path, count: ExportCount) -> None:
    """Write one event file for each process, whose steps come one after the other: so they do among the runs.

    Raises ProbeError, which says what to install, where tensorboard cannot be imported.
    """
    for name, steps in groupby(runs, lambda run: f"{run.rank.mode or ''}/{run.rank.path.name}".lstrip("/")):
        with closing(_EventFile(folder / name)) as file:
            for run in steps:
                try:
                    for rows in count.rows(run):
                        record = rows.shared["record"]
                        if found := [pair for cells in rows.tensors for pair in _scalars(record, cells)]:
                            count.amounts["too_large"] += file.add(run.rank.step or 0, found)
                    count.end(run)
                except FormatError as error:
                    count.errors.append((run.label, str(error)))


def write_watched_curves(files: Iterable[WatchFile], folder: Path, count: ExportCount) -> None:
    """Write one event file for each watch file: ``gradients/blocks.0.up.weight``, and its non-finite elements."""
    for file in files:
        with closing(_EventFile(folder / file.label)) as out:
            for row in file.rows:
                found = [
                    (f"{column.kind}/{column.name}", norm)
                    for i, column in enumerate(file.columns)
                    if (norm := row.norm(i)) is not None
                ]
                count.amounts["watched"] += len(found)
                for i, (nan, infinite) in row.bad.items():
                    column = file.columns[i]
                    found.append((f"not_finite/{column.kind}/{column.name}", float(nan + infinite)))
                count.amounts["too_large"] += out.add(row.step, found, row.time)


def _scalars(record: str, cells: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield (tag, number) of each statistic of a tensor: ``Norm/Module.fc.Linear.forward.0.output.0``."""
    name = f"{record}.{cells['slot']}" if cells["slot"] else record
    for group in _GROUPS:
        value = cells.get(group.lower())
        if value is not None:
            yield f"{group}/{name}", float(value)


class _EventFile:
    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise ProbeError(
                f"Event files are written by tensorboard, which cannot be imported here ({error}). Install it with: "
                "pip install 'probe-analysis[tensorboard]'"
            ) from error
        self._event, self._summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        self._now = time.time()
        self._file = RecordWriter((folder / f"events.out.tfevents.{int(self._now)}.probe").open("wb"))
        self._file.write(Event(wall_time=self._now, file_version="brain.Event:2").SerializeToString())

    def add(self, step: int, scalars: Iterable[tuple[str, float]], at: float | None = None) -> int:
        """Add numbers of one step: (tag, number) of each. at: when that was; now where it is not known.

        Return how many a float32 does not hold. TensorBoard has no other, and shows them as infinite.
        """
        values, too_large = [], 0
        for tag, number in scalars:
            if math.isfinite(number) and abs(number) >= _LARGEST_FLOAT32:
                too_large += 1
                number = math.copysign(math.inf, number)
            tag = tag.encode("utf-8", "backslashreplace").decode()
            values.append(self._summary.Value(tag=tag, simple_value=number))
        event = self._event(wall_time=at or self._now, step=step, summary=self._summary(value=values))
        self._file.write(event.SerializeToString())
        return too_large

    def close(self) -> None:
        self._file.flush()
        self._file.close()
