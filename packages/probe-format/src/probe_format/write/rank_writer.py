"""Write one rank's part of a step: events to the journal as they happen, the JSON files when the step ends."""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import evolve

from probe_format import jsonio, layout
from probe_format.excerpts import unsignalled
from probe_format.journal import events
from probe_format.journal.fold import Fold
from probe_format.journal.frames import Count, Grown, JournalWriter, Refused
from probe_format.journal.reading import folded, read_journal
from probe_format.safe_files import Folder

from .documents import now, write_pages
from .look import Look

#: Bytes of the journal that are reserved for a fault, with an error's text and a path: a full disk still takes it.
_ROOM = 1024


class Append(Protocol):
    """Write one event; when this returns, it survives the death of the process.

    count: gets one more together with the event, so that counts agree with the files.

    Raises OSError when the event cannot be written.
    """

    def __call__(self, event: events.Event, count: Count | None = None) -> None: ...


def _dropped(event: events.Event, count: Count | None = None) -> None:
    """Drop an event that another thread made too late for its step."""


class RankWriter:
    """Write one rank's directory of one step, from its first event until the step is over.

    append: writes an event; it is the journal's own function once there is a journal. After the last `finish` it
        writes and counts nothing: the event is of another thread, too late for this step.
    look: sees the records on their way to dump.json; None where nobody looks.
    """

    append: Append
    look: Look | None = None

    def __init__(self, directory: Path, header: Mapping[str, Any], *, late: bool = False) -> None:
        """Create ``directory`` and its journal, and write the header event. Raises OSError when it cannot.

        header: the top-level keys of dump.json without ``data``.
        late: create nothing before there is a record (or a fault), and nothing at all when none comes, whenever the
        process ends.
        """
        self.directory = directory
        self.header = dict(header)
        self.tensor_directory = directory / layout.TENSORS
        self._folder = Folder(directory, layout.dump_path_of(directory))
        self.started = now()
        self._pid = os.getpid()
        self._waiting: list[events.Event] = []
        self._journal: JournalWriter | None = None
        self._lock = threading.RLock()
        self._fold = Fold()
        self._covered = -1
        self._over = False
        self._refused: Refused | None = None
        self._grown: Grown | None = None
        self._report: dict[str, Any] = {}
        if late:
            self.append = self._append_late
        else:
            self._open()
        self.append(events.head(self.header, _ROOM))

    def _append_late(self, event: events.Event, count: Count | None = None) -> None:
        """Keep an event until there is a journal, which the first event opens that is more than a preparation."""
        with self._lock:
            if self._over:
                return
            if self._journal is None and not events.opens(event):
                self._waiting.append(event)
                if count is not None:
                    count.n += 1
                return
            try:
                self.begin()
            except unsignalled(OSError) as e:
                if self._refused is None:
                    raise
                self._refused(e)
                return
            assert self._journal is not None
            self._journal.append(event, count)

    def begin(self) -> None:
        """Create a late directory now, for a file that precedes its first record. Raises OSError when it cannot."""
        with self._lock:
            if self._journal is None and not self._over:
                self._open()

    def _open(self) -> None:
        self._folder.make()
        tensors = Folder(self.tensor_directory, self.directory)
        if self.header.get("dump_data_dir"):
            tensors.make()
        tensors.close()
        path = self.directory / layout.JOURNAL
        self._journal = journal = JournalWriter(path, self._fold.take, self._lock, self._folder)
        journal.refused = self._refused
        self.limit(self._grown)
        waited, self._waiting = self._waiting, []
        for event in waited:
            journal.append(event)
        self.append = journal.append

    def hand_to(self, refused: Refused | None) -> None:
        """Hand the error of an event that cannot be written to ``refused``; with None, raise it, as at first."""
        self._refused = refused
        if self._journal is not None:
            self._journal.refused = refused

    def limit(self, grown: Grown | None) -> None:
        """Ask ``grown`` before the journal grows; None to let it grow.

        grown: takes its size, and returns the size from which to ask again. Raises OSError when it must not grow.
        """
        self._grown = grown
        if self._journal is not None and grown is not None:
            self._journal.grown, self._journal.mark = grown, self._journal.end

    @property
    def journal_bytes(self) -> int:
        """Return how many bytes this process has written to the journal, which may be gone by now."""
        return 0 if self._journal is None else self._journal.end

    def break_off(self, why: str) -> None:
        """Write no more events in this process; the last one says why."""
        self.hand_to(None)
        if self._journal is not None:
            self._journal.mark = self._journal.end + 2 * _ROOM
        with contextlib.suppress(OSError):
            self.append(events.fault("recording", f"it ended early: {why}"))
        self.end()

    def end(self) -> None:
        """Write no more events in this process. What was written stays. Takes no lock, for a fork()ed child."""
        self._over = True
        self.hand_to(None)
        if self._journal is not None:
            self._journal.ended = True

    @property
    def begun(self) -> bool:
        """Return whether this object has made its directory; a late one does with its first record."""
        return self._journal is not None

    @property
    def forked(self) -> bool:
        """Return whether this object is a fork()ed child's copy, which must write nothing."""
        return os.getpid() != self._pid

    def finish(
        self, *, final: bool, last: Callable[[], events.Event | None] = lambda: None
    ) -> dict[str, Any]:
        """Write dump.json, stack.json, construct.json and report.json; return the report.

        final: whether the step is over. Then the journal is closed and, as the files have its content, removed; else
        it stays. The report says how much of it the files cover.
        last: returns one more event, the last in these files: the counts of their content.

        A late writer without a record writes nothing, and its report is empty.
        """
        with self._lock:
            event = last()
            if event is not None:
                self.append(event)
            if self._journal is None:
                if final:
                    self.close()
                return self._report
            size = self._journal.size
            if size != self._covered:
                # Another process may have written into the journal, too.
                fold = self._fold if size == self._journal.end else folded(read_journal(self._journal.path))
                pages = fold.pages(self._journal.places())
                if self.look is not None:
                    pages = evolve(pages, records=self.look.through(pages))
                self._report = write_pages(
                    self._folder,
                    pages,
                    state="complete" if final else "open",
                    journal_bytes=size,
                    started=self.started,
                )
                self._covered = size
            elif final:  # nothing came since stop(): the files are right as they are
                self._report = {**self._report, "state": "complete", "ended": now()}
                self._folder.replace(layout.REPORT, jsonio.dumps(self._report) + b"\n")
            if final:
                self._over = True
                self._journal.close()
                with contextlib.suppress(OSError):  # the report says that the files have all of it
                    self._folder.remove(layout.JOURNAL)
                self._folder.close()
            return self._report

    def close(self) -> None:
        """Stop writing and leave the journal for `probe recover`."""
        if self._journal is not None:
            self._journal.close()
        else:  # drop what still comes, without a word; `append` refers to this object no more
            self._over = True
            self.append = _dropped
        self._folder.close()
