"""Write the statistics of each tensor as curves over the steps, in the event files that TensorBoard reads.

The records are framed by tensorboard's own writer, whose messages the real TensorBoard reads. tensorboardX, which is
smaller to install, imports torch wherever it finds it, and passes each number through a queue between processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from probe_format.errors import ProbeError

__all__ = ["EventFile", "load_tensorboard", "scalars_of"]

#: The groups of curves; the cells of a tensor have them in small letters.
_GROUPS = ("Norm", "Max", "Min", "Mean", "nan_count", "posinf_count", "neginf_count", "zero_count")
_LARGEST_FLOAT32 = 3.4028235677973366e38  # the first double that rounds to infinity


def load_tensorboard() -> tuple[Any, Any, Any]:
    """Return TensorBoard's Event, Summary and RecordWriter.

    Raises ProbeError, which says what to install, where tensorboard cannot be imported.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise ProbeError(
            f"Event files are written by tensorboard, which cannot be imported here ({error}). Install it with: "
            "pip install 'probe-analysis[tensorboard]'"
        ) from error
    return Event, Summary, RecordWriter


def scalars_of(record: str, cells: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield (tag, number) of each statistic of a tensor: ``Norm/Module.fc.Linear.forward.0.output.0``."""
    name = f"{record}.{cells['slot']}" if cells["slot"] else record
    for group in _GROUPS:
        value = cells.get(group.lower())
        if value is not None:
            yield f"{group}/{name}", float(value)


class EventFile:
    """Write one event file, a step after the other.

    too_large: how many numbers a float32 does not hold. TensorBoard has no other, and shows them as infinite.
    """

    def __init__(self, tensorboard: tuple[Any, Any, Any], folder: Path) -> None:
        event, self._summary, record_writer = tensorboard
        self._event = event
        self.too_large = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._now = time.time()
        self._file = record_writer((folder / f"events.out.tfevents.{int(self._now)}.probe").open("wb"))
        self._file.write(event(wall_time=self._now, file_version="brain.Event:2").SerializeToString())

    def add(self, step: int, scalars: Iterable[tuple[str, float]]) -> None:
        """Add numbers of one step: (tag, number) of each."""
        values = []
        for tag, number in scalars:
            if math.isfinite(number) and abs(number) >= _LARGEST_FLOAT32:
                self.too_large += 1
                number = math.copysign(math.inf, number)
            tag = tag.encode("utf-8", "backslashreplace").decode()
            values.append(self._summary.Value(tag=tag, simple_value=number))
        event = self._event(wall_time=self._now, step=step, summary=self._summary(value=values))
        self._file.write(event.SerializeToString())

    def close(self) -> None:
        """Write what is held, and close the file."""
        self._file.flush()
        self._file.close()
