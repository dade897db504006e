"""Write runs as tables of Parquet, each run into files of its own (spec/export.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_format.errors import FormatError

from probe_analysis.calls import Run

from .cells import json_text
from .columns import TABLES
from .count import Count
from .tables import TableWriter, load_pyarrow

__all__ = ["Tables"]


class Tables:
    """Write the tables of one run after the other.

    group: how many rows of a table are held in memory.
    Raises ProbeError when pyarrow is not installed.
    """

    def __init__(self, folder: Path, group: int) -> None:
        self._pyarrow, self._folder, self._group = load_pyarrow(), folder, group

    def write(self, run: Run, count: Count) -> None:
        """Write a run. One that cannot be read has a row in the table of runs that says so."""
        before = count.amounts()
        about = _about(run)
        with self._writers(run) as tables:
            try:
                about |= _header(run)
                for rows in count.rows(run):
                    tables["tensors"].add(rows.shared, rows.tensors)
                    tables["arguments"].add(rows.shared, rows.arguments)
                    tables["records"].add(rows.shared, [rows.record])
                count.runs += 1
                about["error"] = count.holes(run)
                report = run.rank.report
                about["report"] = None if report is None else json_text(dict(report.document))
            except FormatError as error:
                about["error"] = str(error)
                count.error(run.label, error)
            written = {name: amount - before[name] for name, amount in count.amounts().items()}
            tables["runs"].add({}, [about | written])

    @contextlib.contextmanager
    def _writers(self, run: Run) -> Iterator[dict[str, TableWriter]]:
        with contextlib.ExitStack() as stack:
            writers = {}
            for table in TABLES:
                path = self._folder / table / _part(run)
                writers[table] = TableWriter(self._pyarrow, table, path, self._group)
                stack.callback(writers[table].close)
            yield writers

    def close(self) -> None:
        """Do nothing: the files of each run are closed after it."""


_NULL = "__HIVE_DEFAULT_PARTITION__"  # by the convention of all that read such folders


def _part(run: Run) -> str:
    """Return ``step=0/rank=1/rank1.parquet``: engines read step and rank from the names of the folders."""
    rank = run.rank
    step = _NULL if rank.step is None else rank.step
    mode = f"{rank.mode}-" if rank.mode else ""
    return f"step={step}/rank={rank.number or 0}/{mode}{rank.path.name}.parquet"


def _about(run: Run) -> dict[str, Any]:
    rank = run.rank
    where = str(rank.path.absolute())
    return {"run": run.label, "folder": where, "mode": rank.mode, "distributed": rank.number is not None}


def _header(run: Run) -> dict[str, Any]:
    header = run.rank.header
    texts = ("framework", "mindspore", "tool", "task", "level", "format_version", "checksum")
    about = {key: header[key] for key in texts if isinstance(header.get(key), str)}
    return {**about, "source": run.rank.source, "header": json_text(dict(header))}
