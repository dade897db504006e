"""Lay out what the files of one rank hold, line by line, and join it to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from probe_format import jsonio, layout

from .holes import HOLE

#: About so many bytes are joined at a time.
_CHUNK = 1 << 20


def _as_it_is(text: bytes) -> bytes:
    return text


@frozen
class Pages:
    """Hold the content of one rank's files in lines, ``"name": value``, which can be read once.

    header: the top-level keys of dump.json without ``data``.
    records, stack, construct: the lines of each file, some at a time, each after a comma and the end of a line. A long
        line may come in pieces.
    coverage: the last tally, or {}.
    faults: one per kind, with its count.
    filled: takes lines of records, and returns them with their holes filled.
    """

    header: Mapping[str, Any]
    records: Iterable[bytes]
    stack: Iterable[bytes]
    construct: Iterable[bytes]
    coverage: Mapping[str, Any]
    faults: list[dict[str, Any]]
    filled: Callable[[bytes], bytes] = _as_it_is

    def files(self) -> dict[str, Iterator[bytes]]:
        """Return the text of each file in chunks, the one with the records first."""
        head = jsonio.dumps(self.header)[1:-1]
        before = b"{" + head + (b",\n" if head else b"\n") + b'"data": {'
        chunks = _chunks(before, self.records, b"}}\n")
        records = (self.filled(chunk) if HOLE in chunk else chunk for chunk in chunks)
        if self.header.get("level") == "debug":
            return {layout.DEBUG: records}
        return {
            layout.DUMP: records,
            layout.STACK: _chunks(b"{", self.stack, b"}\n"),
            layout.CONSTRUCT: _chunks(b"{", self.construct, b"}\n"),
        }


def _chunks(before: bytes, lines: Iterable[bytes], after: bytes) -> Iterator[bytes]:
    """Yield an object of lines in pieces of about a megabyte."""
    waiting, size, end = [before], 0, after
    for piece in filter(None, lines):
        waiting.append(piece if end is not after else piece[1:])
        end = b"\n" + after
        size += len(piece)
        if size > _CHUNK:
            yield b"".join(waiting)
            size = 0
            waiting.clear()
    yield b"".join([*waiting, end])
