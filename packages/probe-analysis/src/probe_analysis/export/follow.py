"""Write the steps of a running job as tables, each step when it has ended (spec/export.md)."""

import contextlib
import gc
import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, field
from probe_format import Rank
from probe_format.errors import FormatError
from probe_format.excerpts import error_text
from probe_format.layout import DEBUG, DUMP, REPORT, SMALLEST_TABLES, TENSORS, find_steps
from probe_format.terminal import say, tell
from probe_format.write import amend_report

from probe_analysis.calls.run import runs_of

from .rows import ExportCount
from .store import Store
from .tables import load_pyarrow, part_of, write_tables

#: Seconds between two looks where nobody says that a step has ended, and between two tries of a store in trouble.
_EVERY = 5.0
#: For how many seconds a store in trouble is tried once the run is over.
_LAST = 20.0
_BLOCK = 4096
_WITHOUT = "'probe export' without --follow writes what is there."

Mark = tuple[int, int]
Hear = Callable[[float], tuple[list[Path], bool]]
"""Waits so many seconds at most; returns the folders of ranks that are complete, and whether the run is over."""


@define(eq=False)
class DumpFollower:
    """Write the tables of each rank's part of a step when it has ended, and note them in its report.

    store: takes the tables.
    folder: the name of the folders that are followed, those of one process; None for all.
    step, rank: only these; None for all.
    filter: only records with this text in their names.
    again: when a store in trouble is tried again, by the monotonic clock.
    """

    dump: Path
    store: Store
    folder: str | None = None
    step: int | None = None
    rank: int | None = None
    filter: str = ""
    _waiting: list[Path] = field(factory=list)
    _seen: dict[Path, Mark | None] = field(factory=dict)
    _told: set[str] = field(factory=set)
    again: float = 0.0

    def follow(self, hear: Hear) -> bool:
        """Write steps until the run is over, and a while longer where some are left. Return whether all are there.

        Raises ProbeError where pyarrow is not installed.
        """
        load_pyarrow()
        is_over, pause = False, 0.0
        while not is_over:
            (ended, is_over), pause = hear(pause), _EVERY
            # With a folder's name, `hear` tells each step that ends: the dump is searched at the end alone.
            self.look(dict.fromkeys([*ended, *(self.found() if is_over or self.folder is None else ())]))
        end = time.monotonic() + _LAST
        while self._waiting and time.monotonic() < end:
            time.sleep(1.0)
            self.again = 0.0
            self.look([])
        return not self._waiting and not self._told

    def look(self, folders: Iterable[Path]) -> None:
        """Write what has ended of these folders, and what could not be written before."""
        for folder in folders:
            self._take(folder)
        while self._waiting and time.monotonic() >= self.again:
            folder = self._waiting.pop(0)
            try:
                self._write(folder)
            except Exception as error:  # a store may raise anything
                if not folder.exists():
                    self._warn("gone", folder, "was removed before it was exported. So may others be.")
                    continue
                self._waiting.append(folder)
                why = error_text(error)
                self._say(folder, why)
                where = f"cannot be written to {self.store.address}"
                self._warn("store", folder, f"{where}: {why}. It is tried again, and its JSON is whole.")
                self.again = time.monotonic() + _EVERY

    def found(self) -> list[Path]:
        """Return the folders of ranks in the dump that were not taken yet, or were written anew since."""
        names = self.folder or "[rp]*"
        folders = (each for step in find_steps(self.dump) for each in sorted(step.path.glob(names)))
        return [each for each in folders if _mark(each) != self._seen.get(each, ())]

    def _take(self, folder: Path) -> None:
        """Let a rank of a step wait to be written, if it has ended."""
        mark = _mark(folder)
        try:
            (rank,) = (run.rank for run in runs_of(folder))
            report = rank.report
        except (OSError, FormatError):
            if not folder.exists():
                self._warn("gone", folder, "was removed before it was exported. So may others be.")
            return
        is_chosen = self.step in (None, rank.step) and self.rank in (None, rank.number)
        if report is not None and report.state == "complete":
            self._seen[folder] = mark
            # A process writes its own steps alone, not those of an earlier run.
            is_mine = self.folder is None or report.header.get("export") == self.store.address
            if is_chosen and is_mine and folder not in self._waiting:
                self._waiting.append(folder)
        elif is_chosen and self.folder is None and (why := self._never_ends(rank)):
            self._warn(why, folder, f"{why}: it is passed over, and so are others like it. {_WITHOUT}")

    def _never_ends(self, rank: Rank) -> str:
        """Return why a rank of a step that is not complete will not be, as far as can be seen; empty where it may."""
        if rank.report is not None and rank.report.state == "recovered":
            return "was killed, and recovered"
        if rank.report is None and rank.source == "files" and not rank.is_empty:
            return "has no report.json that says that it ended, as msprobe's dumps have none"
        later = (step.path / rank.path.name for step in find_steps(self.dump) if step.step > (rank.step or 0))
        is_over = any((each / REPORT).is_file() for each in later)
        return "has not ended, though a later step is there" if is_over else ""

    def _write(self, folder: Path) -> None:
        """Write the tables of a rank of a step. Raises whatever the store does."""
        (run,) = runs_of(folder)
        report = run.rank.report
        is_told = report is not None and report.export == self._entry(None)
        if is_told and self.store.has(f"runs/{part_of(run)}"):
            return
        with TemporaryDirectory(prefix="probe-export-") as made:
            count = ExportCount(self.filter, None)
            write_tables([run], Path(made), count)
            gc.collect()  # the command has switched automatic collection off
            files = {each.relative_to(made).as_posix(): each for each in Path(made).rglob("*.parquet")}
            size = sum((each.stat().st_size // _BLOCK + 3) * _BLOCK for each in files.values())  # and folders
            json = sum(each.stat().st_size for each in folder.iterdir() if each.name != TENSORS)
            if size > (most := max(SMALLEST_TABLES, json)):
                why = f"its tables would take {size:,} bytes, and {most:,} are the most"
                self._say(folder, why)
                self._warn("size", folder, f"is not exported: {why}. So may others be.")
                return
            (folder / REPORT).stat()  # else it was removed meanwhile, and what was read is not whole
            for name in sorted(files, key=lambda name: (name.startswith("runs/"), name)):
                self.store.put(files[name], name)
            self._say(folder, None)
            if self.folder is None:
                say(f"{'/'.join(folder.parts[-2:])}: {count.amounts['tensors']} tensors", now=True)

    def _say(self, folder: Path, why: str | None) -> None:
        """Note in the report why the tables are not in the store; None where they are."""
        with contextlib.suppress(OSError, FormatError):
            amend_report(folder, lambda report: report.update(export=self._entry(why)))

    def _entry(self, why: str | None) -> dict[str, str | None]:
        """Return what the report says of the tables. why: as for `_say`."""
        chosen = {"filter": self.filter} if self.filter else {}
        return {"to": self.store.address, "why": why, **chosen}

    def _warn(self, kind: str, folder: Path, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            tell(f"probe export: {'/'.join(folder.parts[-2:])} {text}")


def _mark(folder: Path) -> Mark | None:
    """Return a mark of a folder's JSON, which changes when a later run writes the folder; None without JSON."""
    for name in (DUMP, DEBUG):
        with contextlib.suppress(OSError):
            found = (folder / name).stat()
            return found.st_ino, found.st_mtime_ns
    return None


def nobody(seconds: float) -> tuple[list[Path], bool]:
    """Wait, and hear nothing: the command follows the dump until somebody stops it."""
    time.sleep(seconds)
    return [], False


def standard_input() -> Hear:
    """Return a function that hears, on standard input, the run that started this process.

    A message is the path of a folder. The run is over with an empty line, or the end of the input or of that process.
    """
    parent = os.getppid()

    def hear(seconds: float) -> tuple[list[Path], bool]:
        folders: list[Path] = []
        while select.select([0], [], [], 0.0 if folders else seconds)[0]:
            word = os.read(0, 1 << 16)
            if word in (b"", b"\n"):
                return folders, True
            folders.append(Path(os.fsdecode(word)))
        return folders, os.getppid() != parent

    return hear
