"""Read and write statistic.csv: one line of numbers per tensor, with every header that MindSpore and ACL write."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from attrs import define, field, frozen

from .file_name import FileName
from .statistic_line import Row, columns_of, header_text, is_header, missing_columns, row_of, row_text

__all__ = ["STATISTIC", "Table", "read_table", "table_text"]

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
                draft.refuse(_where(path.name, first, first), "it is not a line of CSV")
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
        if is_header(plain):  # a run that was resumed writes it again
            self.columns = columns_of(plain)
            if missing := missing_columns(self.columns):
                self.problem(f"{where}: the header has no column {', '.join(missing)}.")
            return True
        if not self.columns:
            if several:
                return False
            self.problem(f"{where} comes before any header.")
            return True
        try:
            row, odd = row_of(cells, self.columns, self.owner)
        except (ValueError, KeyError) as error:
            if several:
                return False
            self.refuse(where, str(error))
            return True
        self.rows.append(row)
        for column, cell in odd.items():
            self.problem(f"{where}: {column} {cell[:40]!r} is not a number, so {row.op_name} has none.")
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


def table_text(rows: Iterable[Row], categories: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a statistic.csv as MindSpore writes it: each but the header ends in a comma."""
    yield header_text(categories)
    for row in rows:
        yield row_text(row, categories)
