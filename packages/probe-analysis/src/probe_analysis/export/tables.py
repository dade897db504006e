"""Write tables as Parquet, one group of rows after another, with pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_format.errors import ProbeError

from .columns import SCHEMA_VERSION, SHARED, TABLES, Type

__all__ = ["GROUP", "TableWriter", "load_pyarrow"]

GROUP = 1 << 15
"""Rows that are held in memory until they are written."""


def load_pyarrow() -> Any:
    """Return pyarrow with its Parquet. Raises ProbeError, which names the extra, where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ProbeError(
            f"Parquet is written by pyarrow, which cannot be imported here ({error}). Install it with: "
            "pip install 'probe-analysis[export]'"
        ) from error
    return pyarrow


class TableWriter:
    """Write the rows of one table into one file; `close` writes the last of them.

    pyarrow: the package.
    group: how many rows to hold.
    """

    def __init__(self, pyarrow: Any, table: str, path: Path, group: int = GROUP) -> None:
        types = _types(pyarrow)
        fields = [pyarrow.field(column.name, types[column.type]) for column in TABLES[table]]
        about = {"probe_export_version": SCHEMA_VERSION, "probe_export_table": table}
        self._pyarrow, self._group = pyarrow, group
        self._schema = pyarrow.schema(fields, metadata=about)
        self._shared = SHARED[table]
        self._held: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def add(self, shared: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; ``shared`` holds the cells of the columns in `SHARED`."""
        self._held.extend([(shared, row) for row in rows])
        if len(self._held) >= self._group:
            self._write()

    def _write(self) -> None:
        arrays = []
        for field in self._schema:
            which = 0 if field.name in self._shared else 1
            arrays.append(self._array([held[which].get(field.name) for held in self._held], field.type))
        self._file.write_table(self._pyarrow.table(arrays, schema=self._schema))
        self._held.clear()

    def _array(self, cells: list[Any], kind: Any) -> Any:
        try:
            return self._pyarrow.array(cells, kind)
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express and UTF-8 can not
            return self._pyarrow.array([_utf8(cell) for cell in cells], kind)

    def close(self) -> None:
        """Write the rows that are held, and the end of the file."""
        if self._held:
            self._write()
        self._file.close()


def _types(pyarrow: Any) -> Mapping[Type, Any]:
    return {
        "text": pyarrow.string(),
        "integer": pyarrow.int64(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "texts": pyarrow.list_(pyarrow.string()),
        "integers": pyarrow.list_(pyarrow.int64()),
    }


def _utf8(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_utf8(item) for item in cell]
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell
