"""Parse and format one line of a statistic.csv: the numbers of one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from .categories import CATEGORIES
from .file_name import MOST_SLOTS, FileName
from .statistic_cell import MOST_DIMENSIONS, Value, name_text, shape_of, value_of, value_text, whole

__all__ = ["Row", "columns_of", "header_text", "is_header", "missing_columns", "row_of", "row_text"]

_FIXED = (
    "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
)  # fmt: skip
#: Every spelling of a column, in lower case -> its key in this module.
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
_KNOWN = frozenset({*_FIXED, "Format"})
_NAMES = frozenset({"Op Type", "Op Name"})
_NUMBERS = frozenset(CATEGORIES) - {"md5", "sha1"}


@frozen
class Row:
    """Hold the numbers of one tensor.

    io: ``input`` or ``output``.
    slot: which of them, from 0.
    timestamp: in microseconds.
    shape: None where the file does not have it.
    size: in bytes.
    values: by the names of statistic_category (``max``, ``l2norm``, ``nan count``, ...), and by their column for those
    not known here. None is the file's null: no element was finite.
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


def is_header(cells: list[str]) -> bool:
    """Return whether a line names columns, in any order, rather than holding their values."""
    known = {_COLUMNS.get(cell.lower()) for cell in cells}
    return len(known.intersection(_NEEDED)) > 1 or cells[0].lower() in ("op type", "input/output", "io")


def columns_of(cells: list[str]) -> list[str]:
    """Return the keys of the columns that a header names; a column not known here keeps its name."""
    while cells and not cells[-1]:
        cells = cells[:-1]
    return [_COLUMNS.get(cell.lower(), cell) for cell in cells]


def missing_columns(columns: list[str]) -> list[str]:
    """Return the columns that every statistic.csv needs and this one lacks."""
    return [name for name in _NEEDED if name not in columns]


def _repair(cells: list[str], columns: list[str]) -> list[str]:
    """Return a line with the cells of its header: no comma at the end, a shape without quotation marks in one cell."""
    if len(cells) > len(columns) + MOST_DIMENSIONS:
        raise ValueError(f"it has {len(cells)} cells and its header {len(columns)}")
    while len(cells) > len(columns) and not cells[-1].strip():
        cells = cells[:-1]
    if len(cells) == len(columns):
        return cells
    out: list[str] = []
    for cell in cells:
        before = out[-1].strip() if out else ""
        if before[:1] in ("(", "[") and before[-1:] not in (")", "]"):
            out[-1] += "," + cell
        else:
            out.append(cell)
    if len(out) != len(columns):
        raise ValueError(f"it has {len(out)} cells and its header {len(columns)}")
    return out


def row_of(cells: list[str], columns: list[str], owner: FileName | None) -> tuple[Row, dict[str, str]]:
    """Return a line as a row, and those of its cells that should be numbers and are not, by column.

    cells: the cells of the line.
    columns: the keys of the header's columns (`columns_of`).
    owner: which kernel the line is of, where the csv does not say so.

    Raises ValueError when the line does not fit the header or a cell is damaged, KeyError when a column is missing.
    """
    cells = _repair(cells, columns)
    # Names keep their blanks: the names of the files have them, too.
    of = {c: cell if c in _NAMES else cell.strip() for c, cell in zip(columns, cells, strict=True)}
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
    slot = whole(of["Slot"])
    if slot >= MOST_SLOTS:
        raise ValueError(f"no kernel has a slot {slot}")
    values: dict[str, Value] = {}
    odd: dict[str, str] = {}
    for key, cell in of.items():
        if key in _KNOWN:
            continue
        value = value_of(key, cell)
        if isinstance(value, str) and key in _NUMBERS:
            odd[CATEGORIES[key]] = cell
        else:
            values[key] = value
    row = Row(
        op_type=of["Op Type"],
        op_name=of["Op Name"],
        task=whole(of["Task ID"]),
        stream=whole(of["Stream ID"]),
        timestamp=whole(of["Timestamp"]),
        io=io,
        slot=slot,
        dtype=of["Data Type"],
        shape=shape_of(of["Shape"]),
        size=whole(of["Data Size"]) if of.get("Data Size") else None,
        format=of.get("Format", ""),
        values=values,
    )
    return row, odd


def header_text(categories: Sequence[str]) -> str:
    """Return the header of a statistic.csv as MindSpore writes it."""
    return ",".join([*_FIXED, *(CATEGORIES[key] for key in categories)])


def row_text(row: Row, categories: Sequence[str]) -> str:
    """Return a line of a statistic.csv as MindSpore writes it: with a comma at its end."""
    names = [name_text(row.op_type), name_text(row.op_name)]
    head = [*names, row.task, row.stream, row.timestamp, row.io, row.slot, row.size]
    shape = "" if row.shape is None else f'"({",".join(map(str, row.shape))})"'
    values = ["null" if (v := row.values.get(key)) is None else value_text(v) for key in categories]
    return (
        ",".join([*("" if h is None else str(h) for h in head), name_text(row.dtype), shape, *values]) + ","
    )
