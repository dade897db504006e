"""Open a dump and walk its steps, ranks, records and tensors lazily, without a framework.

Works on everything that Probe and msprobe 1, 8 and 26 write (spec/layout.md), and on what a killed run by
Probe left behind: then the records come from the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, fields, frozen

from probe_format import jsonio, layout
from probe_format.errors import DamagedError, FormatError, UsageError
from probe_format.excerpts import brief
from probe_format.jsonio import meant
from probe_format.plain_files import in_memory, read_file, read_plain, refuse_link
from probe_format.schema import calls
from probe_format.schema.dump import Document, parse_dump
from probe_format.schema.form import misfits
from probe_format.schema.report import SCHEMA, Report, parse_report

from . import find
from .record import Lost, Records, lost_in

if TYPE_CHECKING:
    from probe_format.journal.fold import Fold
    from probe_format.journal.reading import JournalContents
    from probe_format.tensors.pack import Entry

_DOCUMENTS = (layout.DUMP, layout.DEBUG, layout.STACK, layout.CONSTRUCT, layout.REPORT)


def open(path: str | Path) -> Dump:
    """Open a dump: a dump_path, a step folder, a rank folder, or one dump.json or debug.json.

    Finds the folders and reads nothing else: files are read when they are asked for, and records of a dump
    by Probe are parsed one by one. Raises FormatError when there is no dump, naming those nearby.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"open wants the path of a dump, not {brief(path)}.")
    found, file = find.find(Path(path))
    steps: dict[tuple[Path, int | None], list[Rank]] = {}
    for folder in found:
        number, step, mode = find.place_of(folder)
        rank = Rank(folder, number, step, file, mode)
        steps.setdefault((folder if step is None else folder.parent, step), []).append(rank)
    return Dump(Path(path), tuple(Step(where, n, tuple(r), r[0].mode) for (where, n), r in steps.items()))


@frozen
class Dump:
    """Hold the steps of an opened dump.

    steps: in the order of their numbers, those of each mode together.
    """

    path: Path
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        return f"<{len(self.steps)} steps with {len(self.ranks)} ranks in all of {self.path}>"

    def step(self, step: int, mode: layout.Mode | None = None) -> Step:
        """Return the step with this number.

        mode: needed where MindSpore wrote the step twice, under ``graph`` and ``pynative``.
        Raises KeyError, naming the existing steps, when there is none of this number; UsageError when two have it
        and no mode is given.
        """
        found = [s for s in self.steps if s.number == step and mode in (None, s.mode)]
        if not found:
            there = ", ".join(f"{s.number}{f' ({s.mode})' if s.mode else ''}" for s in self.steps)
            of_mode = f" of mode {mode}" if mode else ""
            raise KeyError(f"{self.path} has no step {step!r}{of_mode}; it has [{there}].")
        if len(found) > 1:
            times = f"{len(found)} times: {', '.join(str(s.path) for s in found)}"
            which = f"step({step}, {found[0].mode!r})"
            raise UsageError(f"{self.path} has step {step} {times}. Say which: {which}.")
        return found[0]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Return every rank of every step."""
        return tuple(rank for step in self.steps for rank in step.ranks)


@frozen
class Step:
    """Hold the ranks of one step.

    number: None when the folder's name does not contain it.
    mode: ``graph`` or ``pynative`` where MindSpore ran in both, each of which has steps of its own; else None.
    """

    path: Path
    number: int | None
    ranks: tuple[Rank, ...]
    mode: layout.Mode | None = None

    def __repr__(self) -> str:
        return f"<{len(self.ranks)} ranks of {self.path}>"

    def rank(self, rank: int | None) -> Rank:
        """Return the rank with this number; None is the rank of a run that was not distributed."""
        for candidate in self.ranks:
            if candidate.number == rank:
                return candidate
        raise KeyError(f"{self.path} has no rank {rank!r}; it has {[r.number for r in self.ranks]}.")


@frozen(slots=False)
class Rank:
    """Give access to one rank of one step: its records, and what is known about them.

    number: None when the run was not distributed.
    file: the one file to read, where `open` was given a file.
    mode: as in `Step`.
    """

    path: Path
    number: int | None = None
    step: int | None = None
    file: Path | None = field(default=None, repr=False)
    mode: layout.Mode | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: what was read of the files is read again where this is unpickled."""
        return {each.name: getattr(self, each.name) for each in fields(type(self))}

    @property
    def label(self) -> str:
        """Return ``step0/rank1``, with the mode in front where there is one: unique within the dump."""
        above = self.path.parents[: 2 if self.mode else 1]  # not `parts`: a path would keep them
        folders = self.path, *above
        return "/".join(each.name for each in reversed(folders) if each.name)

    @cached_property
    def report(self) -> Report | None:
        """Return what report.json holds, None without one (msprobe). Raises FormatError when it is damaged."""
        path = self.path / layout.REPORT
        return parse_report(read_plain(path), str(path)) if path.is_file() and self.file is None else None

    @cached_property
    def source(self) -> Literal["files", "journal"]:
        """Return where the records come from: the JSON files or, for a run that did not end, the journal."""
        journal = self.path / layout.JOURNAL
        if self.file is not None or not journal.is_file():
            return "files"
        try:
            covered = self.report.covered if self.report is not None else None
        except FormatError:
            covered = None
        return "files" if covered == journal.stat().st_size else "journal"

    @cached_property
    def journal(self) -> JournalContents | None:
        """Return the journal, when the records come from it."""
        if self.source != "journal":
            return None
        refuse_link(self.path / layout.JOURNAL)
        from probe_format.journal.reading import read_journal  # only a run that did not end needs it

        with in_memory(self.path / layout.JOURNAL):
            return read_journal(self.path / layout.JOURNAL)

    @cached_property
    def is_empty(self) -> bool:
        """Return whether the run ended before its first record: then there are no records, and none is lost."""
        if self.journal is not None:
            return self.journal.is_empty
        files = (self.path / name for name in _DOCUMENTS)
        if self.file is not None or any(file.is_file() and file.stat().st_size for file in files):
            return False
        tensors = self.path / layout.TENSORS  # a file of one is written before its record
        return not (tensors.is_dir() and any(tensors.iterdir()))

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """Return the top-level keys of dump.json (or debug.json) without ``data``: task, level, framework, ..."""
        return self.documents[0].header

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that the script gave calls of this step, in the order in which they first came."""
        found = self.header.get("labels")
        labels = found if isinstance(found, list) else ()
        return tuple(meant(each) for each in labels if isinstance(each, str))

    @cached_property
    def records(self) -> Records:
        """Return the records, in the order of the file: of completion in a dump by Probe."""
        return Records(self, self.documents)

    def release(self, *, whole: bool = False) -> None:
        """Let go of the text of the records. What they hold is read anew when it is asked for.

        whole: whether the records are known to have lost nothing.
        """
        if whole:
            self.__dict__.setdefault("lost", Lost({}))
        _ = self.header, self.lost
        for name in ("documents", "records", "journal", "packed", "_recovered"):
            self.__dict__.pop(name, None)

    @cached_property
    def lost(self) -> Lost:
        """Return what the records lack because it is lost: gradients, and the files of tensors."""
        return lost_in(self.documents, empty=self.is_empty)

    @cached_property
    def stack(self) -> calls.Stack:
        """Return the stacks of the calls; empty when none were written."""
        return calls.parse_stack(self._text(layout.STACK), str(self.path / layout.STACK))

    @cached_property
    def construct(self) -> calls.Construct:
        """Return which call ran inside which module; empty when that was not written, and at level L1."""
        return calls.parse_construct(self._text(layout.CONSTRUCT), str(self.path / layout.CONSTRUCT))

    @property
    def tensor_folder(self) -> Path:
        """Return the folder of the tensor files, which may be missing. Raises FormatError where it is a link."""
        here = self.path / layout.TENSORS
        refuse_link(here)
        elsewhere = self.header.get("dump_data_dir")
        if not here.is_dir() and isinstance(elsewhere, str):
            with suppress(ValueError):  # not a string that can be a path
                beside = os.path.realpath(os.path.join(self.path, elsewhere))
                if beside.startswith(os.path.realpath(self.path) + os.sep):  # not outside the dump
                    return Path(beside)
        return here

    @cached_property
    def packed(self) -> Mapping[str, Entry]:
        """Return name -> entry of the tensor files in packs. Raises as `tensor_folder`, and OSError."""
        from probe_format.tensors.pack import entries  # most who open a dump read no file of a tensor

        return entries(self.tensor_folder)

    @cached_property
    def faults(self) -> Sequence[Mapping[str, Any]]:
        """Return the failures of Probe's own, and what ended the recording early: ``where``, ``message``, ``count``."""
        if self._recovered is not None:
            return self._recovered[1]
        return () if self.report is None else self.report.faults

    @cached_property
    def _recovered(self) -> tuple[Mapping[str, bytes], Sequence[Mapping[str, Any]]] | None:
        """Return the files that recovery would write, and the faults, when the records come from the journal."""
        if self.journal is None:
            return None
        with in_memory(self.path / layout.JOURNAL):
            pages = journal_fold(self.journal, self.path).pages()
            return {name: b"".join(chunks) for name, chunks in pages.files().items()}, pages.faults

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Return the dump.json and the debug.json that exist, one or both; an empty document where `is_empty`.

        Raises FormatError when neither exists, though others do.
        """
        if self._recovered is not None:
            name, raw = next(iter(self._recovered[0].items()))
            return (parse_dump(raw, str(self.path / name)),)
        if self.is_empty:
            return (Document({}, {}, str(self.path / layout.DUMP)),)
        files = [self.file] if self.file else [self.path / layout.DUMP, self.path / layout.DEBUG]
        read = read_file if self.file else read_plain  # a file that was asked for may be a link
        found = tuple(parse_dump(read(file), str(file)) for file in files if file.is_file())
        if not found:
            why = "only what goes with one: they were removed, or never written (msprobe writes them last)"
            raise FormatError(f"{self.path} has neither a dump.json nor a debug.json, {why}.")
        return found

    def _text(self, name: str) -> bytes:
        if self._recovered is not None:
            return self._recovered[0].get(name, b"{}")
        path = self.path / name
        return read_plain(path) if path.is_file() else b"{}"


def journal_fold(contents: JournalContents, where: Path, *, records: bool = True) -> Fold:
    """Fold the events of a journal. Raises DamagedError when this version cannot read them.

    records: whether the records are checked as well; needless where the caller reads each of them anyhow.
    """
    from probe_format.journal.reading import folded

    with known_forms(where):
        fold = folded(contents)
        _check_forms(fold, records)
    return fold


@contextmanager
def known_forms(where: Path) -> Iterator[None]:
    """Raise DamagedError in place of any error in the block that an event of a wrong form causes.

    where: the folder of the journal.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise DamagedError(
            f"{where / layout.JOURNAL} has an event of an unknown form ({brief(error, 300)}). If a newer version "
            "wrote it, install that version of probe-format."
        ) from error


def _check_forms(fold: Fold, records: bool) -> None:
    """Raise ValueError when events of a wrong form have become documents of a wrong form."""
    pages = fold.pages()
    for key in pages.header:
        if not isinstance(key, str):
            raise ValueError(f"{brief(key)} is not a key of header")
    coverage = dict(pages.coverage)
    summary = coverage.pop("summary", None)
    for problem in misfits({**coverage, **({} if summary is None else summary)}, SCHEMA | {"required": []}):
        raise ValueError(str(problem))
    for fault in pages.faults:
        if not isinstance(fault["where"], str) or not isinstance(fault["message"], str):
            raise ValueError(f"{brief(fault)} is not a fault")
    for name, chunks in pages.files().items():
        if records or name in _CHECKS:
            document = jsonio.loads(b"".join(chunks))
            for problem in _CHECKS[name](document) if name in _CHECKS else ():
                raise ValueError(str(problem))


_CHECKS = {layout.STACK: calls.check_stack, layout.CONSTRUCT: calls.check_construct}
