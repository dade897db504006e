"""Read a watch file, whole or cut off, also while it grows (spec/watch.md)."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from attrs import define, field, frozen

from probe_format import jsonio, layout
from probe_format.errors import FormatError, refuse_other_version
from probe_format.journal.reading import Frames, head_of
from probe_format.plain_files import is_file

from .writer import KINDS, MAGIC, Column

State = Literal["complete", "torn", "damaged", "empty"]
_MOST_COLUMNS = 1 << 24


@frozen(eq=False)
class Row:
    """Hold the numbers of one step.

    time: seconds since 1970. values: a norm for each column, as float32.
    wide: column -> a norm that float32 does not hold. bad: column -> how many elements are NaN, and how many infinite.
    skipped: how many updates a loss scaler skipped.
    """

    step: int
    time: float
    values: np.ndarray = field(repr=False)
    wide: Mapping[int, float]
    bad: Mapping[int, tuple[int, int]]
    skipped: int = 0

    def norm(self, column: int) -> float | None:
        """Return the norm of a column; None where it has none in this step."""
        if column in self.wide:
            return self.wide[column]
        value = float(self.values[column]) if column < len(self.values) else -1.0
        return None if value < 0.0 else value


@define(eq=False)
class WatchFile:
    """Follow one file. `more` reads what was written since.

    rank: from the file's name; None when not distributed.
    unseen: (what, why) of what cannot be watched. faults: (where, what was wrong).
    triggers: (step, when, why) of the steps that met a condition.
    damage: what is not whole, in words. left: how many bytes follow the last whole frame.
    ended: whether the run has written that nothing follows.
    """

    path: Path
    header: Mapping[str, Any] = field(factory=dict)
    columns: list[Column] = field(factory=list)
    rows: list[Row] = field(factory=list)
    unseen: list[tuple[str, str]] = field(factory=list)
    faults: list[tuple[str, str]] = field(factory=list)
    triggers: list[tuple[int, str, str]] = field(factory=list)
    damage: list[str] = field(factory=list)
    ended: bool = False
    left: int = 0
    _at: int = 0
    _numbers: dict[tuple[str, int], np.ndarray] = field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return a file with all that it has now. Raises FormatError when it is no watch file, or OSError."""
        found = cls(path)
        found.more()
        return found

    @property
    def rank(self) -> int | None:
        match = layout.RANK_DIR.fullmatch(self.path.stem)
        return int(match[1]) if match and match[1] else None

    @property
    def label(self) -> str:
        """Return ``watch/rank0``."""
        return f"{layout.WATCH}/{self.path.stem}"

    @property
    def state(self) -> State:
        if self.damage:
            return "damaged"
        return "empty" if not self.rows else "complete" if self.ended and not self.left else "torn"

    def more(self) -> int:
        """Read what was written since the last call, and return how many rows that were."""
        before = len(self.rows)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(self.path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
            file.seek(self._at)
            data = file.read()
        at = 0
        if self._at == 0:
            if not data.startswith(MAGIC[: len(data)]):
                raise FormatError(f"{self.path} is not a watch file (it does not start with {MAGIC!r}).")
            if len(data) < len(MAGIC):
                self.left = len(data)
                return 0
            at = len(MAGIC)
        frames = Frames(data, _parts)
        for head, content in frames.events(at, self.damage, self._at):
            try:
                self._take(head, content)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                which = f"a frame {str(head['k'])[:20]!r}"
                self.damage.append(f"{which} has not the form that it should: {error!r:.200}")
        self._at, self.left = self._at + frames.end, len(data) - frames.end
        return len(self.rows) - before

    def _take(self, head: dict[str, Any], content: bytes) -> None:
        kind = head["k"]
        if kind == "row":
            values = np.frombuffer(content, "<f4")
            wide = {int(c): float(norm) for c, norm in head.get("wide", {}).items()}
            bad = {int(c): (int(nan), int(inf)) for c, (nan, inf) in head.get("bad", {}).items()}
            row = Row(int(head["step"]), float(head["t"]), values, wide, bad, int(head.get("skipped", 0)))
            self._fill(len(values))
            self.rows.append(row)
        elif kind == "columns":
            listed = jsonio.loads(content)
            named = [
                Column(k if k in KINDS else "?", str(layer), str(what), int(n))
                for k, layer, what, n in listed
            ]
            first = int(head["from"])
            self._fill(first)
            self.columns[first:] = named
        elif kind == "head":
            self.header = dict(head["header"])
            refuse_other_version(self.header.get("watch_version"), self.path)
        elif kind == "unseen":
            self.unseen.append((str(head["what"]), str(head["why"])))
        elif kind == "trigger":
            self.triggers.append((int(head["step"]), str(head["when"]), str(head["why"])))
        elif kind == "fault":
            self.faults.append((str(head["w"]), str(head["m"])))
        elif kind == "end":
            self.ended = True

    def _fill(self, count: int) -> None:
        """Add unnamed columns, up to ``count``, for those whose names were lost to damage."""
        if not 0 <= count <= _MOST_COLUMNS:
            raise ValueError(f"there are no {count} columns")
        self.columns += [Column("?", "?", str(i), 0) for i in range(len(self.columns), count)]

    def of_kind(self, kind: str) -> Iterator[tuple[int, Column]]:
        """Yield (number, column) of each column of a kind."""
        return ((i, column) for i, column in enumerate(self.columns) if column.kind == kind)

    def total(self, row: Row, kind: str) -> float | None:
        """Return the norm of all tensors of a kind together; None where there is none in this step."""
        key = kind, len(self.columns)
        if key not in self._numbers:
            self._numbers[key] = np.array([i for i, _ in self.of_kind(kind)], np.intp)
        numbers = self._numbers[key]
        norms = row.values[numbers[numbers < len(row.values)]].astype(np.float64)
        if row.wide:
            norms = np.array([n for i in numbers.tolist() if (n := row.norm(i)) is not None])
        norms = norms[~(norms < 0.0)]
        return float(np.linalg.norm(norms)) if norms.size else None

    def bad(self, row: Row) -> int:
        """Return how many columns of a row are not finite."""
        return sum(i not in row.wide for i in np.flatnonzero(~np.isfinite(row.values)).tolist())


def watch_files(path: str | Path) -> list[WatchFile]:
    """Return the watch files of a dump path (or of its folder ``watch``, or the one given), by rank, read so far.

    The list is empty where there are none. Raises FormatError when a file is no watch file, or newer.
    """
    path = Path(path)
    if path.is_file():
        found = [path] if path.suffix == layout.ROWS else []
    else:
        folder = path if path.name == layout.WATCH else path / layout.WATCH
        found = [each for each in folder.glob(f"*{layout.ROWS}") if layout.RANK_DIR.fullmatch(each.stem)]
    for each in found:
        if not is_file(each):  # a pipe would be waited for
            raise FormatError(f"{each} is no file, or a link that leads nowhere. Remove it.")
    files = [WatchFile.read(each) for each in found]
    return sorted(files, key=lambda file: (-1 if file.rank is None else file.rank, file.path.name))


def _parts(payload: bytes) -> tuple[dict[str, Any], bytes] | None:
    line, _, content = payload.partition(b"\n")
    head = head_of(line)
    return None if head is None else (head, content)
