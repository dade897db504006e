"""Parse and format the lines of a statistic.csv: each has the numbers of one tensor."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from .file_name import MOST_SLOTS, FileName
from .statistics import CATEGORIES, Value

_DIGITS = re.compile(r"[0-9]{1,30}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:e[+-]?[0-9]{1,5})?|inf(?:inity)?|nan)"
)
_SHAPE = re.compile(r"\([0-9\s,x]*\)|\[[0-9\s,x]*\]|[0-9\s,x]+")
_MOST_DIMENSIONS = 64


def _whole(text: str) -> int:
    # In ASCII digits: int() would take 1_0 and digits of other scripts.
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def _shape_of(text: str) -> tuple[int, ...] | None:
    if not text or text.lower() == "null":
        return None
    numbers = re.findall(r"[0-9]+", text)
    if not _SHAPE.fullmatch(text) or len(numbers) > _MOST_DIMENSIONS:
        raise ValueError(f"{text[:80]!r} is not a shape")
    return tuple(_whole(number) for number in numbers)


#: A column -> its field of a Row, and what reads its cell. Names keep their blanks, as those of files do.
_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Op Type": ("op_type", str),
    "Op Name": ("op_name", str),
    "Task ID": ("task", _whole),
    "Stream ID": ("stream", _whole),
    "Timestamp": ("timestamp", _whole),
    "IO": ("io", str.lower),
    "Slot": ("slot", _whole),
    "Data Size": ("size", lambda cell: _whole(cell) if cell else None),
    "Data Type": ("dtype", str.strip),
    "Shape": ("shape", _shape_of),
    "Format": ("format", str.strip),
}
_OPTIONAL = ("Data Size", "Format")
#: Every spelling of a column, in lower case -> its key in this module.
_COLUMNS = {
    **{column.lower(): key for key, column in CATEGORIES.items()},
    **{column.lower(): column for column in _FIELDS},
    **{key: key for key in ("l2norm", "max", "min", "avg")},
    "input/output": "IO",
    "index": "Slot",
    "md5 value": "md5",
    "mean value": "avg",
}
NEEDED = ("IO", "Slot", "Data Type", "Shape")
"""The columns that every statistic.csv has."""


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


def columns_of(cells: list[str]) -> list[str] | None:
    """Return the keys of the columns that a header names, in any order, None for a line that holds values.

    A column not known here keeps its name.
    """
    columns = [_COLUMNS.get(cell.lower(), cell) for cell in cells]
    if len({*columns}.intersection(NEEDED)) < 2 and cells[0].lower() not in ("op type", "input/output", "io"):
        return None
    while not columns[-1]:
        columns.pop()
    return columns


def _repair(cells: list[str], columns: list[str]) -> list[str]:
    """Return a line with the cells of its header: no comma at the end, a shape without quotation marks in one cell."""
    if len(cells) > len(columns) + _MOST_DIMENSIONS:
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

    columns: the keys of the header's columns (`columns_of`).
    owner: which kernel the line is of, where the csv does not say so.

    Raises ValueError when the line does not fit the header or a cell is damaged, KeyError when a column is missing.
    """
    fields: dict[str, Any] = {}
    if owner is not None:
        keys = ("op_type", "op_name", "task", "stream", "timestamp")
        fields = {key: getattr(owner, key) or 0 for key in keys}
    values: dict[str, Value] = {}
    odd: dict[str, str] = {}
    for column, cell in zip(columns, _repair(cells, columns), strict=True):
        if column in _FIELDS:
            name, read = _FIELDS[column]
            fields[name] = read(cell if read is str else cell.strip())
            continue
        value = _value_of(column, cell.strip())
        if isinstance(value, str) and column in CATEGORIES and column not in ("md5", "sha1"):
            odd[CATEGORIES[column]] = cell.strip()
        else:
            values[column] = value
    for column, (name, _) in _FIELDS.items():
        if name not in fields and column not in _OPTIONAL:
            raise KeyError(column)
    row = Row(**fields, values=values)
    if row.io not in ("input", "output"):
        raise ValueError(f"{row.io!r} is neither input nor output")
    if row.slot >= MOST_SLOTS:
        raise ValueError(f"no kernel has a slot {row.slot}")
    return row, odd


def _value_of(key: str, cell: str) -> Value:
    """Return the value of a statistic: None for null, and the cell itself where it is not a number."""
    low = cell.lower()
    if low in ("", "null"):
        return None
    if key in ("md5", "sha1"):
        return cell
    if low in ("true", "false"):
        return int(low == "true")
    if _INTEGER.fullmatch(cell):
        return int(cell)
    if not _FLOAT.fullmatch(low):
        return cell
    value = float(cell)
    return cell if math.isinf(value) and "inf" not in low else value


def _name_text(text: str) -> str:
    """Return a name as a cell, in quotation marks where it would be read as several cells, or as a part of one."""
    if text == text.strip() and not re.search(r'[",\r\n\0]|^[(\[]', text):
        return text
    return '"' + text.replace('"', '""') + '"'


def table_text(rows: Iterable[Row], categories: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a statistic.csv as MindSpore writes it: each but the header ends in a comma."""
    fixed = [column for column in _FIELDS if column != "Format"]
    yield ",".join([*fixed, *(CATEGORIES[key] for key in categories)])
    for row in rows:
        size = "" if row.size is None else row.size
        numbers = [row.task, row.stream, row.timestamp, row.io, row.slot, size]
        shape = "" if row.shape is None else f'"({",".join(map(str, row.shape))})"'
        found = (row.values.get(key) for key in categories)
        values = ["null" if value is None else str(value).removesuffix(".0") for value in found]
        names = [_name_text(row.op_type), _name_text(row.op_name)]
        yield ",".join([*names, *map(str, numbers), _name_text(row.dtype), shape, *values]) + ","
