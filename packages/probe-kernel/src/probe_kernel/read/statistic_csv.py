"""Read and write statistic.csv: one line of numbers per tensor, with every header that MindSpore and ACL write."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from attrs import define, field, frozen

from .categories import CATEGORIES
from .file_name import MOST_SLOTS, FileName

__all__ = ["STATISTIC", "Row", "Table", "Value", "read_table", "table_text"]

STATISTIC = "statistic.csv"
Value = float | int | str | None

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
_WORDS = {"null": None, "": None}
_DIGITS = re.compile(r"[0-9]{1,30}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:e[+-]?[0-9]{1,5})?|inf(?:inity)?|nan)"
)
_SHAPE = re.compile(r"\([0-9\s,x]*\)|\[[0-9\s,x]*\]|[0-9\s,x]+")
_MOST_DIMENSIONS = 64
_MOST_PROBLEMS = 1000
_LONGEST_LINE = 1 << 20


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

    @property
    def file_name(self) -> FileName:
        """Return the name that the file of this tensor would have, but for layout and suffix."""
        return FileName(
            self.op_type, self.op_name, self.task, self.stream, self.timestamp, self.io, self.slot
        )


@frozen
class Table:
    """Hold the lines of a statistic.csv.

    problems: the lines that could not be read, in sentences.
    """

    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()


def read_table(path: Path, owner: FileName | None = None) -> Table:
    """Read a statistic.csv.

    path: the file.
    owner: for a csv that a device wrote for one kernel, the file's name, which says which kernel.

    Lines and numbers that cannot be read are reported in ``problems``. Raises OSError when the file cannot be opened.
    """
    draft = _Draft(path.name, owner)
    # A name that is not UTF-8 must equal the name of its file: surrogates for its bytes, as os.listdir gives them.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        for first, last, cells, lines in _records(file):
            where = _where(path.name, first, last)
            if cells is not None and draft.add(cells, where, several=len(lines) > 1):
                continue
            if len(lines) == 1:
                draft.refuse(_where(path.name, first, first), "it is no line of a CSV")
                continue
            # A quotation mark without its pair joins the lines behind it into one record: read each line alone.
            for at, line in enumerate(lines, start=first):
                alone = _alone(line)
                if alone is None or not draft.add(alone, _where(path.name, at, at), several=False):
                    draft.refuse(_where(path.name, at, at), "it has a quotation mark that is not closed")
    if not draft.columns and not draft.problems:
        draft.problems.append(f"{path.name} is empty.")
    if draft.more:
        draft.problems.append(f"{path.name} has {draft.more} more lines that cannot be read.")
    return Table(tuple(draft.rows), tuple(draft.problems))


def _where(name: str, first: int, last: int) -> str:
    return f"{name}, line {first}" if first == last else f"{name}, lines {first} to {last}"


def _records(file: TextIO) -> Iterator[tuple[int, int, list[str] | None, list[str]]]:
    """Yield each record: its first and last line, its cells (None where the csv module failed), its lines."""
    taken: list[str] = []
    done = 0

    def lines() -> Iterator[str]:
        while line := file.readline(_LONGEST_LINE):
            taken.append(line)
            yield line

    reader = csv.reader(lines(), skipinitialspace=True)
    while True:
        cells: list[str] | None = None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            pass
        yield done + 1, done + len(taken), cells, list(taken)
        done += len(taken)
        taken.clear()


def _alone(line: str) -> list[str] | None:
    try:
        return next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return None


@define
class _Draft:
    """Collect a table while its lines are read."""

    name: str
    owner: FileName | None
    rows: list[Row] = field(factory=list)
    problems: list[str] = field(factory=list)
    columns: list[str] = field(factory=list)
    more: int = 0

    def add(self, cells: list[str], where: str, *, several: bool) -> bool:
        """Add one record. Return False where it spans several lines and is not a row: each line is then read alone."""
        plain = [cell.strip() for cell in cells]
        if not any(plain):
            return True
        if _is_header(plain):  # a run that was resumed writes it again
            while plain and not plain[-1]:
                plain.pop()
            self.columns = [_COLUMNS.get(cell.lower(), cell) for cell in plain]
            missing = [name for name in _NEEDED if name not in self.columns]
            if missing:
                self.problem(f"{where}: the header has no column {', '.join(missing)}.")
            return True
        if not self.columns:
            if several:
                return False
            self.problem(f"{where} comes before any header.")
            return True
        try:
            row, odd = _row(_repair(cells, self.columns), self.columns, self.owner)
        except (ValueError, KeyError) as error:
            if several:
                return False
            self.refuse(where, str(error))
            return True
        self.rows.append(row)
        for column, cell in odd.items():
            self.problem(f"{where}: {column} {cell[:40]!r} is no number, so {row.op_name} has none.")
        return True

    def refuse(self, where: str, why: str) -> None:
        """Record a line that cannot be read."""
        self.problem(f"{where} cannot be read: {why}.")

    def problem(self, text: str) -> None:
        """Record a sentence, up to a limit: a file of a million bad lines does not need a million sentences."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}")
        else:
            self.more += 1


def _is_header(cells: list[str]) -> bool:
    """Return whether a line consists of names of columns, whichever comes first."""
    known = {_COLUMNS.get(cell.lower()) for cell in cells}
    return len(known.intersection(_NEEDED)) > 1 or cells[0].lower() in ("op type", "input/output", "io")


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


def _row(cells: list[str], columns: list[str], owner: FileName | None) -> tuple[Row, dict[str, str]]:
    """Return a line as a row, and those of its cells that should be numbers and are not."""
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
    slot = _whole(of["Slot"])
    if slot >= MOST_SLOTS:
        raise ValueError(f"no kernel has a slot {slot}")
    values: dict[str, Value] = {}
    odd: dict[str, str] = {}
    for key, cell in of.items():
        if key in _KNOWN:
            continue
        value = _value(key, cell)
        if isinstance(value, str) and key in _NUMBERS:
            odd[CATEGORIES[key]] = cell
        else:
            values[key] = value
    row = Row(
        op_type=of["Op Type"],
        op_name=of["Op Name"],
        task=_whole(of["Task ID"]),
        stream=_whole(of["Stream ID"]),
        timestamp=_whole(of["Timestamp"]),
        io=io,
        slot=slot,
        dtype=of["Data Type"],
        shape=_shape(of["Shape"]),
        size=_whole(of["Data Size"]) if of.get("Data Size") else None,
        format=of.get("Format", ""),
        values=values,
    )
    return row, odd


_KNOWN = frozenset({*_FIXED, "Format"})
_NAMES = frozenset({"Op Type", "Op Name"})
_NUMBERS = frozenset(CATEGORIES) - {"md5", "sha1"}


def _whole(text: str) -> int:
    """Return a whole number from 0 up, in ASCII digits: int() would take ``1_0`` and digits of other scripts."""
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no whole number")
    return int(text)


def _shape(text: str) -> tuple[int, ...] | None:
    if not text or text.lower() == "null":
        return None
    numbers = re.findall(r"[0-9]+", text)
    if not _SHAPE.fullmatch(text) or len(numbers) > _MOST_DIMENSIONS:
        raise ValueError(f"{text[:80]!r} is no shape")
    return tuple(_whole(number) for number in numbers)


def _value(key: str, cell: str) -> Value:
    low = cell.lower()
    if low in _WORDS:
        return _WORDS[low]
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


def table_text(rows: Iterable[Row], categories: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a statistic.csv as MindSpore writes it: each but the header ends in a comma."""
    yield ",".join([*_FIXED, *(CATEGORIES[key] for key in categories)])
    for row in rows:
        names = [_quoted(row.op_type), _quoted(row.op_name)]
        head = [*names, row.task, row.stream, row.timestamp, row.io, row.slot, row.size]
        shape = "" if row.shape is None else f'"({",".join(map(str, row.shape))})"'
        values = ["null" if (v := row.values.get(key)) is None else _text(v) for key in categories]
        yield (
            ",".join([*("" if h is None else str(h) for h in head), _quoted(row.dtype), shape, *values]) + ","
        )


def _text(value: float | int | str) -> str:
    # repr() gives every digit of a float64.
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    """Return a name as a cell, in quotation marks where it would be read as several cells, or as a part of one."""
    if text == text.strip() and not re.search(r'[",\r\n\0]|^[(\[]', text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
