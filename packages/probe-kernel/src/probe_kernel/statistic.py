"""statistic.csv: one line of numbers per tensor, of every header that MindSpore and ACL write."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from .categories import CATEGORIES
from .filename import MOST_SLOTS, FileName

__all__ = ["STATISTIC", "Row", "Table", "Value", "read_table", "table_text"]

STATISTIC = "statistic.csv"
Value = float | int | str | None

_FIXED = (
    "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
)  # fmt: skip
#: Every spelling of a column, in lower case -> what it is here.
_COLUMNS = {
    **{column.lower(): key for key, column in CATEGORIES.items()},
    **{column.lower(): column for column in _FIXED},
    "input/output": "IO",
    "index": "Slot",
    "format": "Format",
    "md5 value": "md5",
    "l2norm": "l2norm",
    "mean value": "avg",
    "max": "max",
    "min": "min",
    "avg": "avg",
}
_NEEDED = ("IO", "Slot", "Data Type", "Shape")
_WORDS = {"null": None, "": None}


@frozen
class Row:
    """The numbers of one tensor. shape: None where the file does not tell. size: bytes.

    values: by the names of statistic_category (``max``, ``l2norm``, ``nan count``, ...), and by their column for
    those not known here. None stands for null: no element was finite.
    """

    op_type: str
    op_name: str
    task: int
    stream: int
    timestamp: int
    io: str
    slot: int
    dtype: str
    shape: tuple[int, ...] | None
    size: int | None = None
    format: str = ""
    values: Mapping[str, Value] = field(factory=dict)

    @property
    def file_name(self) -> FileName:
        """What the file of this tensor would be called, but for format and suffix."""
        return FileName(
            self.op_type, self.op_name, self.task, self.stream, self.timestamp, self.io, self.slot
        )


@frozen
class Table:
    """A statistic.csv. problems: the lines that could not be read, in sentences."""

    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()


def read_table(path: Path, owner: FileName | None = None) -> Table:
    """Read a statistic.csv, or with ``owner`` the csv that a device wrote for one kernel (its name says which).

    Lines that are none are reported in ``problems``, never dropped unseen. Raises OSError.
    """
    rows: list[Row] = []
    problems: list[str] = []
    columns: list[str] = []
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        try:
            for cells in reader:
                cells = [cell.strip() for cell in cells]
                if not any(cells):
                    continue
                where = f"{path.name}, line {reader.line_num}"
                if cells[0].lower() in ("op type", "input/output", "io"):  # again where a run went on
                    columns = [_COLUMNS.get(cell.lower(), cell) for cell in cells]
                    missing = [name for name in _NEEDED if name not in columns]
                    if missing:
                        problems.append(f"{where}: the header has no column {', '.join(missing)}.")
                elif not columns:
                    problems.append(f"{where} comes before any header.")
                else:
                    try:
                        rows.append(_row(_repair(cells, columns), columns, owner))
                    except (ValueError, KeyError) as error:
                        problems.append(f"{where} cannot be read: {error}.")
        except csv.Error as error:
            problems.append(f"{path.name}, after line {reader.line_num}, is no CSV ({error}).")
    if not columns and not problems:
        problems.append(f"{path.name} is empty.")
    return Table(tuple(rows), tuple(problems))


def _repair(cells: list[str], columns: list[str]) -> list[str]:
    """Lines as their header has them: no comma at the end, and a shape without quotes in one piece again."""
    out: list[str] = []
    for cell in cells:
        if out and out[-1][:1] in ("(", "[") and out[-1][-1:] not in (")", "]"):
            out[-1] += "," + cell
        else:
            out.append(cell)
    while len(out) > len(columns) and not out[-1]:
        out.pop()
    if len(out) != len(columns):
        raise ValueError(f"it has {len(out)} cells and its header {len(columns)}")
    return out


def _row(cells: list[str], columns: list[str], owner: FileName | None) -> Row:
    of = dict(zip(columns, cells, strict=True))
    if owner is not None:
        of = {
            "Op Type": owner.op_type,
            "Op Name": owner.op_name,
            "Task ID": str(owner.task),
            "Stream ID": str(owner.stream or 0),
            "Timestamp": str(owner.timestamp),
            **of,
        }
    io = of["IO"].lower()
    if io not in ("input", "output"):
        raise ValueError(f"{of['IO']!r} is neither input nor output")
    slot = int(of["Slot"])
    if not 0 <= slot < MOST_SLOTS:
        raise ValueError(f"no kernel has a slot {slot}")
    return Row(
        op_type=of["Op Type"],
        op_name=of["Op Name"],
        task=int(of["Task ID"]),
        stream=int(of["Stream ID"]),
        timestamp=int(of["Timestamp"]),
        io=io,
        slot=slot,
        dtype=of["Data Type"],
        shape=_shape(of["Shape"]),
        size=int(of["Data Size"]) if of.get("Data Size") else None,
        format=of.get("Format", ""),
        values={key: _value(key, cell) for key, cell in of.items() if key not in _KNOWN},
    )


_KNOWN = frozenset({*_FIXED, "Format"})


def _shape(text: str) -> tuple[int, ...] | None:
    if not text or text.lower() == "null":
        return None
    if not re.fullmatch(r"[(\[]?[\d\s,x]*[)\]]?", text):
        raise ValueError(f"{text!r} is no shape")
    return tuple(int(n) for n in re.findall(r"\d+", text))


def _value(key: str, cell: str) -> Value:
    low = cell.lower()
    if low in _WORDS:
        return _WORDS[low]
    if key in ("md5", "sha1"):
        return cell
    if low in ("true", "false"):
        return int(low == "true")
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return cell


def table_text(rows: Iterable[Row], categories: Sequence[str]) -> Iterator[str]:
    """The lines of a statistic.csv as MindSpore writes it: each but the header ends in a comma."""
    yield ",".join([*_FIXED, *(CATEGORIES[key] for key in categories)])
    for row in rows:
        head = [row.op_type, row.op_name, row.task, row.stream, row.timestamp, row.io, row.slot, row.size]
        shape = "" if row.shape is None else f'"({",".join(map(str, row.shape))})"'
        values = ["null" if (v := row.values.get(key)) is None else _text(v) for key in categories]
        yield ",".join([*("" if h is None else str(h) for h in head), row.dtype, shape, *values]) + ","


def _text(value: float | int | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
