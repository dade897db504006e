"""Write the statistics of the tensors of runs as curves over the steps, for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from probe_format.errors import FormatError

from probe_analysis.calls import Run

from .count import Count
from .events import EventFile, load_tensorboard, scalars_of

__all__ = ["Curves"]


class Curves:
    """Write one event file for each process: its steps must come one after the other.

    Raises ProbeError when tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._tensorboard, self._folder = load_tensorboard(), folder
        self._name = ""
        self._file: EventFile | None = None

    def write(self, run: Run, count: Count) -> None:
        """Write a run: one step of one process."""
        rank = run.rank
        name = f"{rank.mode}/{rank.path.name}" if rank.mode else rank.path.name
        if self._file is None or name != self._name:
            self.close()
            self._name, self._file = name, EventFile(self._tensorboard, self._folder / name)
        before = self._file.too_large
        try:
            for rows in count.rows(run):
                found = [pair for cells in rows.tensors for pair in scalars_of(rows.shared["record"], cells)]
                if found:
                    self._file.add(rank.step or 0, found)
            count.runs += 1
            count.holes(run)
        except FormatError as error:
            count.error(run.label, error)
        count.too_large += self._file.too_large - before

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
