"""Write the records of a dump, their tensors and other arguments, and the numbers of task `watch` as Parquet tables.

Each rank of a step and each watch file has files of its own. spec/export.md specifies the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from probe_format.errors import FormatError, ProbeError
from probe_format.watch import WatchFile

from probe_analysis.calls.run import Run

from .columns import SCHEMA_VERSION, TABLES, WATCHED, Columns, json_text
from .rows import ExportCount

GROUP = 1 << 15
"""Rows that are held in memory until they are written."""


def write_tables(runs: Iterable[Run], folder: Path, count: ExportCount, group: int = GROUP) -> None:
    """Write the tables of one run after the other. One that cannot be read has a row in the table of runs.

    group: how many rows of a table are held in memory.
    Raises ProbeError, which names the extra, where pyarrow is not installed.
    """
    for run in runs:
        with ExitStack() as stack:
            part = part_of(run)
            tables = {}
            for table, columns in TABLES.items():
                writer = _TableWriter(table, columns, folder / table / part, group)
                tables[table] = stack.enter_context(closing(writer))
            _write(run, tables, count)


def write_watched(files: Iterable[WatchFile], folder: Path, count: ExportCount, group: int = GROUP) -> None:
    """Write the table of the numbers that task `watch` left: one row for each tensor of each step."""
    for file in files:
        path = folder / "watch" / f"rank={file.rank or 0}" / f"{file.path.stem}.parquet"
        with closing(_TableWriter("watch", WATCHED, path, group)) as table:
            for row in file.rows:
                shared = {"step": row.step, "time": row.time}
                found = [
                    {
                        "kind": c.kind,
                        "module": c.layer,
                        "tensor": c.what,
                        "elements": c.elements,
                        "norm": norm,
                        **dict(zip(("nan_count", "inf_count"), row.bad.get(i, (None, None)), strict=True)),
                    }
                    for i, c in enumerate(file.columns)
                    if (norm := row.norm(i)) is not None
                ]
                table.add(shared, found)
                count.amounts["watched"] += len(found)


def load_pyarrow() -> Any:
    """Return pyarrow. Raises ProbeError, which names the extra, where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ProbeError(
            f"Parquet is written by pyarrow, which cannot be imported here ({error}). Install it with: "
            "pip install 'probe-analysis[export]'"
        ) from error
    return pyarrow


def _write(run: Run, tables: Mapping[str, _TableWriter], count: ExportCount) -> None:
    before, rank = count.amounts.copy(), run.rank
    about: dict[str, Any] = {"run": run.label, "folder": str(rank.path.absolute()), "mode": rank.mode}
    about["distributed"] = rank.number is not None
    try:
        texts = ("framework", "mindspore", "tool", "task", "level", "format_version", "checksum")
        about |= {key: rank.header[key] for key in texts if isinstance(rank.header.get(key), str)}
        about |= {"source": rank.source, "header": json_text(dict(rank.header))}
        for rows in count.rows(run):
            tables["tensors"].add(rows.shared, rows.tensors)
            tables["arguments"].add(rows.shared, rows.arguments)
            tables["records"].add(rows.shared, [rows.record])
        about["error"] = count.end(run)
        about["report"] = None if rank.report is None else json_text(dict(rank.report.document))
    except FormatError as error:
        about["error"] = str(error)
        count.errors.append((run.label, str(error)))
    written = {name: amount - before[name] for name, amount in count.amounts.items()}
    tables["runs"].add({}, [about | written])


_NULL = "__HIVE_DEFAULT_PARTITION__"  # by the convention of all that read such folders


def part_of(run: Run) -> str:
    """Return ``step=0/rank=1/rank1.parquet``: engines read step and rank from the names of the folders."""
    rank = run.rank
    step = _NULL if rank.step is None else rank.step
    mode = f"{rank.mode}-" if rank.mode else ""
    return f"step={step}/rank={rank.number or 0}/{mode}{rank.path.name}.parquet"


class _TableWriter:
    """Write the rows of one table into one file; `close` writes the last of them. group: how many rows to hold."""

    def __init__(self, table: str, columns: Columns, path: Path, group: int) -> None:
        pyarrow = load_pyarrow()
        types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "double": pyarrow.float64()}
        types |= {"texts": pyarrow.list_(types["text"]), "integers": pyarrow.list_(types["integer"])}
        types["boolean"] = pyarrow.bool_()
        fields = [pyarrow.field(name, types[kind]) for name, kind in columns.items()]
        about = {"probe_export_version": SCHEMA_VERSION, "probe_export_table": table}
        self._pyarrow, self._group = pyarrow, group
        self._schema = pyarrow.schema(fields, metadata=about)
        self._held: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")  # by Python, which keeps the reason where it cannot be written or closed
        self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema, compression="zstd")

    def add(self, shared: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; ``shared`` holds the cells that all of them have."""
        self._held.extend([(shared, row) for row in rows])
        if len(self._held) >= self._group:
            self._write()

    def _write(self) -> None:
        arrays = []
        for field in self._schema:
            cells = [row.get(field.name, shared.get(field.name)) for shared, row in self._held]
            try:
                arrays.append(self._pyarrow.array(cells, field.type))
            except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express and UTF-8 can not
                arrays.append(self._pyarrow.array([_utf8(cell) for cell in cells], field.type))
        self._writer.write_table(self._pyarrow.table(arrays, schema=self._schema))
        self._held.clear()

    def close(self) -> None:
        with self._file:
            if self._held:
                self._write()
            self._writer.close()


def _utf8(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_utf8(item) for item in cell]
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell
