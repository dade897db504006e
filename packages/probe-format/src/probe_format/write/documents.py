"""Write the files of one rank in one stream, each complete before it takes its name."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from attrs import define

from probe_format import jsonio, layout
from probe_format.journal.assembly import Documents
from probe_format.safe_files import replace_file
from probe_format.schema.tensor_objects import tensors

from .pages import Pages, pages_of
from .summary import Summary

__all__ = ["FORMAT_VERSION", "documents_bytes", "now", "write_documents", "write_pages"]

FORMAT_VERSION = "1.0"
State = Literal["open", "complete", "recovered"]
_CHUNK = 1 << 20


def documents_bytes(documents: Documents) -> dict[str, bytes]:
    """Return the JSON files of msprobe's layout, the one with the records first.

    The first has one record a line (spec/dump.md). It is dump.json, or debug.json, which is then the only one.
    """
    return {name: b"".join(chunks) for name, chunks in _files(pages_of(documents)).items()}


def write_documents(
    directory: Path,
    documents: Documents,
    *,
    state: State,
    journal_bytes: int | None,
    started: str | None = None,
) -> dict[str, Any]:
    """Write one rank's files, each complete before it takes its name; return the report (spec/report.md)."""
    return write_pages(
        directory, pages_of(documents), state=state, journal_bytes=journal_bytes, started=started
    )


def write_pages(
    directory: Path, pages: Pages, *, state: State, journal_bytes: int | None, started: str | None = None
) -> dict[str, Any]:
    """Do the same as `write_documents` with content that comes line by line."""
    coverage = dict(pages.coverage)
    summary = coverage.pop("summary", None)
    counted = Summary() if summary is None else None
    written: dict[str, _Passed] = {}
    for name, chunks in _files(pages, counted).items():
        if written and not pages.header.get("extra_info", True):
            break
        passed = written[name] = _Passed()
        replace_file(directory / name, passed.through(chunks))
    if pages.faults:
        replace_file(directory / layout.ERRORS, _fault_log(pages.faults))
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
        "records": pages.count,
        **(summary if counted is None else counted.json()),
        "started": started,
        "ended": now(),
        **coverage,
        "tensors": records.tensors,
        "tensor_files": records.tensor_files,
    }
    replace_file(directory / layout.REPORT, jsonio.dumps(report) + b"\n")
    return report


@define
class _Passed:
    """Count what passes on its way to a file.

    tensors, tensor_files: counted in the bytes: inside JSON strings the quotes are escaped, so only keys match.
    """

    size: int = 0
    crc: int = 0
    tensors: int = 0
    tensor_files: int = 0

    def through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield every chunk; each holds whole lines."""
        for chunk in chunks:
            self.size += len(chunk)
            self.crc = zlib.crc32(chunk, self.crc)
            self.tensors += chunk.count(b'"dtype":"')
            self.tensor_files += chunk.count(b'"data_name":"')
            yield chunk


def _files(pages: Pages, summary: Summary | None = None) -> dict[str, Iterator[bytes]]:
    """Return the content of each file, the one with the records first. summary: counts the tensors that pass."""
    head = jsonio.dumps(pages.header)[1:-1]
    lines = pages.records if summary is None else _summed(summary, pages.records)
    records = _chunks(b"{" + head + (b",\n" if head else b"\n") + b'"data": {', lines, b"}}\n")
    if pages.header.get("level") == "debug":
        return {layout.DEBUG: records}
    stack = _chunks(b"{", pages.stack, b"}\n")
    return {
        layout.DUMP: records,
        layout.STACK: stack,
        layout.CONSTRUCT: _chunks(b"{", pages.construct, b"}\n"),
    }


def _chunks(before: bytes, lines: Iterable[bytes | Iterable[bytes]], after: bytes) -> Iterator[bytes]:
    """Yield an object of lines in pieces of about a megabyte."""
    waiting = [before]
    size, between, end = 0, b"\n", after
    for line in lines:
        for piece in (line,) if isinstance(line, bytes) else line:
            waiting += (between, piece)
            between = b""
            size += len(piece)
            if size > _CHUNK:
                yield b"".join(waiting)
                size = 0
                waiting.clear()
        between, end = b",\n", b"\n" + after
    yield b"".join([*waiting, end])


def _summed(summary: Summary, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, and add the tensors in them to the summary."""
    for line in lines:
        for name, record in jsonio.loads(b"{%b}" % line).items():
            for path, tensor in tensors(record):
                norm = jsonio.number(tensor.get("Norm"))
                # A damaged journal may have anything under Norm.
                if isinstance(norm, float) or (type(norm) is int and abs(norm) < 1 << 64):
                    summary.add(name, ".".join(map(str, path)), tensor)
        yield line


def _fault_log(faults: list[dict[str, Any]]) -> bytes:
    lines = [f"{f['count']} x {f['where']}\n{f['message']}\n" for f in faults]
    return "\n".join(lines).encode("utf-8", "replace")


def now() -> str:
    """Return the time, as reports have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
