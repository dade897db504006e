"""Read statistic.csv: one line of numbers per tensor, with every header that MindSpore and ACL write.

A line or a number that cannot be read becomes a sentence; the others are read all the same.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from attrs import define, field, frozen

from .file_name import FileName
from .statistic_line import NEEDED, Row, columns_of, row_of

STATISTIC = "statistic.csv"
_MOST_PROBLEMS = 1000
_LONGEST_LINE = 1 << 20


@frozen
class Table:
    """Hold the lines of a statistic.csv. problems: the lines that could not be read, in sentences."""

    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()


def read_table(path: Path, owner: FileName | None = None) -> Table:
    """Read a statistic.csv.

    owner: for a csv that a device wrote for one kernel, the file's name, which says which kernel.

    Lines and numbers that cannot be read are reported in ``problems``. Raises OSError when the file cannot be opened.
    """
    draft = _TableDraft(owner)
    # A name that is not UTF-8 must equal the name of its file: surrogates for its bytes, as os.listdir gives them.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        for first, cells, lines in _records(file):
            last = first + len(lines) - 1
            where = f"line {first}" if first == last else f"lines {first} to {last}"
            wrong = draft.add(cells, f"{path.name}, {where}")
            if wrong and first < last:
                # A quotation mark without its pair joins the lines behind it into one record: read each line alone.
                for at, line in enumerate(lines, start=first):
                    alone = _cells(csv.reader([line], skipinitialspace=True))
                    draft.problem(draft.add(alone, f"{path.name}, line {at}"))
            else:
                draft.problem(wrong)
    if not draft.columns and not draft.problems:
        draft.problems.append(f"{path.name} is empty.")
    if draft.more:
        draft.problems.append(f"{path.name} has {draft.more} more lines that cannot be read.")
    return Table(tuple(draft.rows), tuple(draft.problems))


def _records(file: TextIO) -> Iterator[tuple[int, list[str] | None, list[str]]]:
    """Yield each record: the number of its first line, its cells (None where csv failed), its lines."""
    taken: list[str] = []
    first = 1

    def lines() -> Iterator[str]:
        while line := file.readline(_LONGEST_LINE):
            taken.append(line)
            yield line

    reader = csv.reader(lines(), skipinitialspace=True)
    while True:
        cells = _cells(reader)
        if not taken:
            return
        yield first, cells, list(taken)
        first += len(taken)
        taken.clear()


def _cells(reader: Iterator[list[str]]) -> list[str] | None:
    try:
        return next(reader, [])
    except csv.Error:
        return None


@define
class _TableDraft:
    owner: FileName | None
    rows: list[Row] = field(factory=list)
    problems: list[str] = field(factory=list)
    columns: list[str] = field(factory=list)
    more: int = 0

    def add(self, cells: list[str] | None, where: str) -> str:
        """Add one record. Return why it is none, in a sentence, or nothing."""
        if cells is None:
            return f"{where} cannot be read: it is not a line of CSV."
        plain = [cell.strip() for cell in cells]
        if not any(plain):
            return ""
        if (columns := columns_of(plain)) is not None:  # a run that was resumed writes it again
            self.columns = columns
            if missing := [name for name in NEEDED if name not in columns]:
                self.problem(f"{where}: the header has no column {', '.join(missing)}.")
            return ""
        if not self.columns:
            return f"{where} comes before any header."
        try:
            row, odd = row_of(cells, self.columns, self.owner)
        except (ValueError, KeyError) as error:
            return f"{where} cannot be read: {error}."
        self.rows.append(row)
        for column, cell in odd.items():
            self.problem(f"{where}: {column} {cell[:40]!r} is not a number, so {row.op_name} has none.")
        return ""

    def problem(self, text: str) -> None:
        """Record a sentence, if any, up to a limit: a million bad lines do not need a million of them."""
        if not text:
            return
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}")
        else:
            self.more += 1
