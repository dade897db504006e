"""Write the JSON files of one rank piece by piece, and its report; each file takes its name when it is complete."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from attrs import define, evolve, frozen

from probe_format import jsonio, layout
from probe_format.checksum import crc32
from probe_format.journal.pages import Pages
from probe_format.plain_files import read_plain
from probe_format.safe_files import Folder
from probe_format.schema.dump import parse_object
from probe_format.schema.form import path_text
from probe_format.schema.tensor_objects import tensors

from .claim import held_report
from .coverage import Summary

FORMAT_VERSION = "1.0"
_NEWLINE = ord("\n")
State = Literal["open", "complete", "recovered"]


@frozen
class Documents:
    """Hold the content of one rank's files, for callers that have all of it in memory.

    header: the top-level keys of dump.json without ``data``.
    data: record name -> record, in completion order.
    stack: the content of stack.json, in the grouped layout (spec/stack.md).
    construct: node -> parent or None.
    coverage: the last tally, or {}.
    faults: one per kind, with its count.
    """

    header: Mapping[str, Any]
    data: Mapping[str, Any]
    stack: Mapping[str, list[list[str]]]
    construct: Mapping[str, str | None]
    coverage: Mapping[str, Any]
    faults: list[dict[str, Any]]

    def pages(self) -> Pages:
        nodes = {} if self.header.get("level") == "L1" else self.construct
        records, stack, construct = (
            (b",\n%b: %b" % (*map(jsonio.dumps, pair),) for pair in each.items())
            for each in (self.data, self.stack, nodes)
        )
        return Pages(self.header, records, stack, construct, self.coverage, self.faults)


def write_documents(
    directory: Path, documents: Documents, *, state: State, journal_bytes: int | None
) -> dict[str, Any]:
    """Write one rank's files, each complete before it takes its name; return the report (spec/report.md)."""
    with Folder(directory) as folder:
        return write_pages(folder, documents.pages(), state=state, journal_bytes=journal_bytes)


def write_pages(
    folder: Folder, pages: Pages, *, state: State, journal_bytes: int | None, started: str | None = None
) -> dict[str, Any]:
    """Do the same as `write_documents` with content that comes line by line."""
    coverage = dict(pages.coverage)
    summary = coverage.pop("summary", None)
    counted = _Counted(None if summary is not None else Summary())
    written: dict[str, _Passed] = {}
    for name, chunks in evolve(pages, records=counted.through(pages)).files().items():
        if written and not pages.header.get("extra_info", True):
            break
        has_files = not written and pages.header.get("dump_data_dir", name) is not None
        passed = written[name] = _Passed(not written, has_files)
        folder.replace(name, passed.through(chunks))
    if pages.faults:
        told = "\n".join(f"{f['count']} x {f['where']}\n{f['message']}\n" for f in pages.faults)
        folder.replace(layout.ERRORS, told.encode("utf-8", "replace"))
    records = next(iter(written.values()))
    report = {
        "format_version": FORMAT_VERSION,
        "state": state,
        "header": dict(pages.header),
        "files": {name: {"bytes": p.size, "crc32": f"{p.crc:08x}"} for name, p in written.items()},
        "journal": None if journal_bytes is None else {"bytes": journal_bytes},
        "counts": coverage.pop("counts", {}),
        "not_seen": coverage.pop("not_seen", []),
        "unmatched": coverage.pop("unmatched", []),
        "faults": pages.faults,
        "records": counted.records,
        **(summary if counted.summary is None else counted.summary.json()),
        "started": started,
        "ended": now(),
        **coverage,
        "tensors": records.tensors,
        "tensor_files": records.tensor_files,
    }
    folder.replace(layout.REPORT, jsonio.dumps(report) + b"\n")
    return report


def amend_report(directory: Path, amend: Callable[[dict[str, Any]], object]) -> None:
    """Change the report of a step that has ended, which other processes may do as well. amend: changes the document.

    Raises OSError when it cannot, and FormatError when there is no whole report.
    """
    with held_report(directory), Folder(directory, layout.dump_path_of(directory)) as folder:
        report = parse_object(read_plain(directory / layout.REPORT), str(directory / layout.REPORT))
        amend(report)
        folder.replace(layout.REPORT, jsonio.dumps(report) + b"\n")


@define
class _Counted:
    """Count the records that pass on their way to a file.

    summary: gets the tensors in them; None where the report's summary is known already.
    """

    summary: Summary | None
    records: int = 0

    def through(self, pages: Pages) -> Iterator[bytes]:
        for lines in pages.records:
            if self.summary is not None:
                lines = pages.filled(lines)
                self._add(self.summary, lines)
            # One newline for each record: in strings it is escaped. bytes.count() takes ten times as long.
            self.records += int(np.count_nonzero(np.frombuffer(lines, np.uint8) == _NEWLINE))
            yield lines

    def _add(self, summary: Summary, lines: bytes) -> None:
        for name, record in jsonio.loads(b"{%b}" % lines[1:]).items():
            for path, tensor in tensors(record):
                norm = jsonio.number(tensor.get("Norm"))
                # A damaged journal may have anything under Norm.
                if isinstance(norm, float) or (type(norm) is int and abs(norm) < 1 << 64):
                    summary.add(name, path_text(path), tensor)


@define
class _Passed:
    """Count the bytes and the tensors that pass on their way to a file.

    has_tensors, has_files: whether tensors, and tensor files, may be named in it.
    tensors, tensor_files: counted in the bytes: inside JSON strings the quotes are escaped, so only keys match.
    """

    has_tensors: bool
    has_files: bool

    size: int = 0
    crc: int = 0
    tensors: int = 0
    tensor_files: int = 0

    def through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield every chunk; each holds whole lines."""
        for chunk in chunks:
            self.size += len(chunk)
            self.crc = crc32(chunk, self.crc)
            if self.has_tensors:
                self.tensors += chunk.count(b'"dtype":"')
            if self.has_files:
                self.tensor_files += chunk.count(b'"data_name":"')
            yield chunk


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
