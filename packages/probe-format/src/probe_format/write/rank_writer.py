"""Write one rank's dump: events to the journal as they happen, the JSON files when a step ends."""

from __future__ import annotations

import datetime
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from probe_format import jsonio, layout
from probe_format.journal import events
from probe_format.journal.assembly import Assembly, Documents
from probe_format.journal.frames import MAGIC, Count, JournalWriter
from probe_format.safe_files import make_folder, refuse_links, replace_file
from probe_format.schema.tensor_objects import tensors

from .summary import Summary

__all__ = ["FORMAT_VERSION", "Append", "RankWriter", "documents_bytes", "write_documents"]

FORMAT_VERSION = "1.0"


class Append(Protocol):
    """A function that writes one event; when it returns, the event survives the death of the process.

    count: raised together with the event, so that counts agree with the files.

    Raises OSError when the event cannot be written.
    """

    def __call__(self, event: events.Event, count: Count | None = None) -> None: ...


class RankWriter:
    """Write one rank's directory of one step, from its first event until the step is over.

    append: writes an event, that of the journal itself once there is one. After the last `finish` nothing is written
        or counted: another thread was too late for this step.
    """

    append: Append

    def __init__(self, directory: Path, header: Mapping[str, Any], *, late: bool = False) -> None:
        """Create ``directory`` and its journal, and write the header event. Raises OSError when it cannot.

        header: the top-level keys of dump.json without ``data``.
        late: create nothing before there is a record (or a fault), and nothing at all when none comes, whenever the
        process ends.
        """
        self.directory = directory
        self.header = dict(header)
        self.tensor_directory = directory / layout.TENSORS
        self.started = _now()
        self._pid = os.getpid()
        self._waiting: list[events.Event] = []
        self._journal: JournalWriter | None = None
        self._lock = threading.RLock()
        self._covered = -1
        self._over = False
        self._report: dict[str, Any] = {}
        if late:
            self.append = self._append_late
        else:
            self._open()
        self.append(events.head(self.header))

    def _append_late(self, event: events.Event, count: Count | None = None) -> None:
        """Keep an event until there is a journal; open it when the event is more than a preparation."""
        with self._lock:
            if self._over:
                return
            if self._journal is None and not _opens(event):
                self._waiting.append(event)
                if count is not None:
                    count.n += 1
                return
            self.begin()
            assert self._journal is not None
            self._journal.append(event, count)

    def begin(self) -> None:
        """Create a late directory now, for a file that precedes its first record. Raises OSError when it cannot."""
        with self._lock:
            if self._journal is None and not self._over:
                self._open()

    def _open(self) -> None:
        directory = self.tensor_directory if self.header.get("dump_data_dir") else self.directory
        refuse_links(self.tensor_directory, self.directory)
        make_folder(directory, layout.dump_path_of(self.directory))
        self._journal = journal = JournalWriter(self.directory / layout.JOURNAL, self._lock)
        waited, self._waiting = self._waiting, []
        for event in waited:
            journal.append(event)
        self.append = journal.append

    @property
    def forked(self) -> bool:
        """Return whether this object is a fork()ed child's copy, which must write nothing."""
        return os.getpid() != self._pid

    def finish(
        self, *, final: bool, last: Callable[[], dict[str, Any] | None] = lambda: None
    ) -> dict[str, Any]:
        """Write dump.json, stack.json, construct.json and report.json; return the report.

        final: whether the step is over. Then the journal is closed and, as the files have its content, removed; else
        it stays, and the report says how much of it the files cover.
        last: returns one more event, the last in these files: the counts of their content.

        A late writer without a record writes nothing, and its report is empty.
        """
        with self._lock:
            event = last()
            if event is not None:
                self.append(event)
            if self._journal is None:
                self._over = self._over or final
                return self._report
            size = self._journal.size
            if size != self._covered:
                self._report = write_documents(
                    self.directory,
                    self._documents(size),
                    state="complete" if final else "open",
                    journal_bytes=None if final else size,
                    started=self.started,
                )
                self._covered = size
            elif final:  # nothing came since stop(): the files are right as they are
                self._report = {**self._report, "state": "complete", "journal": None, "ended": _now()}
                replace_file(self.directory / layout.REPORT, jsonio.dumps(self._report) + b"\n")
            if final:
                self._over = True
                self._journal.close()
                os.unlink(self._journal.path)
            return self._report

    def _documents(self, size: int) -> Documents:
        assert self._journal is not None
        state, at = Assembly(), len(MAGIC)
        while at < size:
            found, at = self._journal.read(at, size)
            for _, event in found:
                state.take(jsonio.loads(event))
        state.cut_short()
        return state.documents()

    def close(self) -> None:
        """Stop writing and leave the journal for `probe recover`."""
        if self._journal is not None:
            self._journal.close()


def _opens(event: events.Event) -> bool:
    return isinstance(event, bytes) or events.EVENTS[event["k"]].opens


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def documents_bytes(documents: Documents) -> dict[str, bytes]:
    """Return the JSON files of msprobe's layout, the one with the records first.

    The first has one record a line (spec/dump.md). It is dump.json, or debug.json, which is then the only one.
    """
    records = _records(documents)
    if documents.header.get("level") == "debug":
        return {layout.DEBUG: records}
    construct: Mapping[str, str | None] = {} if documents.header.get("level") == "L1" else documents.construct
    return {
        layout.DUMP: records,
        layout.STACK: _lines(documents.stack),
        layout.CONSTRUCT: _lines(construct),
    }


def _records(documents: Documents) -> bytes:
    head = jsonio.dumps(documents.header)[1:-1]
    records = b",\n".join(
        jsonio.dumps(name) + b": " + jsonio.dumps(record) for name, record in documents.data.items()
    )
    data = b'"data": {\n' + records + b"\n}" if records else b'"data": {}'
    return b"{" + head + (b",\n" if head else b"\n") + data + b"}\n"


def _lines(mapping: Mapping[str, Any]) -> bytes:
    body = b",\n".join(jsonio.dumps(k) + b": " + jsonio.dumps(v) for k, v in mapping.items())
    return b"{\n" + body + b"\n}\n" if body else b"{}\n"


def write_documents(
    directory: Path,
    documents: Documents,
    *,
    state: Literal["open", "complete", "recovered"],
    journal_bytes: int | None,
    started: str | None = None,
) -> dict[str, Any]:
    """Write one rank's files, each complete before it takes its name; return the report (spec/report.md)."""
    files = {}
    blobs = documents_bytes(documents)
    records = next(iter(blobs.values()))
    if not documents.header.get("extra_info", True):
        blobs = dict([next(iter(blobs.items()))])
    for name, blob in blobs.items():
        replace_file(directory / name, blob)
        files[name] = {"bytes": len(blob), "crc32": f"{zlib.crc32(blob):08x}"}
    if documents.faults:
        replace_file(directory / layout.ERRORS, _fault_log(documents.faults))
    report = _report(documents, state, files, journal_bytes, started)
    # Counted in the bytes written: inside JSON strings the quotes are escaped, so only keys match.
    report["tensors"] = records.count(b'"dtype":"')
    report["tensor_files"] = records.count(b'"data_name":"')
    replace_file(directory / layout.REPORT, jsonio.dumps(report) + b"\n")
    return report


def _report(
    documents: Documents,
    state: str,
    files: Mapping[str, Any],
    journal_bytes: int | None,
    started: str | None,
) -> dict[str, Any]:
    """Return the content of report.json."""
    coverage = dict(documents.coverage)
    summary = coverage.pop("summary", None)
    if summary is None:
        summary = _summarise(documents.data)
    return {
        "format_version": FORMAT_VERSION,
        "state": state,
        "header": documents.header,
        "files": dict(files),
        "journal": None if journal_bytes is None else {"bytes": journal_bytes},
        "counts": coverage.pop("counts", {}),
        "not_seen": coverage.pop("not_seen", []),
        "unmatched": coverage.pop("unmatched", []),
        "faults": documents.faults,
        "records": len(documents.data),
        **summary,
        "started": started,
        "ended": _now(),
        **coverage,
    }


def _summarise(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the norms and first_non_finite of encoded records."""
    summary = Summary()
    for name, record in data.items():
        for path, tensor in tensors(jsonio.loads(jsonio.dumps(record))):  # encoded parts become trees
            norm = jsonio.number(tensor.get("Norm"))
            # A damaged journal may have anything under Norm.
            if isinstance(norm, float) or (type(norm) is int and abs(norm) < 1 << 64):
                summary.add(name, ".".join(map(str, path)), tensor)
    return summary.json()


def _fault_log(faults: list[dict[str, Any]]) -> bytes:
    lines = [f"{f['count']} x {f['where']}\n{f['message']}\n" for f in faults]
    return "\n".join(lines).encode("utf-8", "replace")
