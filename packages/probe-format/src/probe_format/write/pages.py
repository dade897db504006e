"""What the files of one rank hold, line by line: made from documents, or straight from a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from attrs import frozen

from probe_format import jsonio
from probe_format.journal.assembly import Documents
from probe_format.journal.construct_tree import missing
from probe_format.journal.index import Index
from probe_format.journal.read_back import ReadBack
from probe_format.journal.records import Records

__all__ = ["Pages", "pages_of", "pages_of_journal"]

_AT_ONCE = 1024


@frozen
class Pages:
    """Hold the content of one rank's files in lines, ``"name": value``, which can be read once.

    Several of them may come joined, as they are in the file: a step has many.

    header: the top-level keys of dump.json without ``data``.
    count: how many records there are.
    records, stack, construct: the lines of each file.
    coverage: the last tally, or {}.
    faults: one per kind, with its count.
    """

    header: Mapping[str, Any]
    count: int
    records: Iterable[bytes]
    stack: Iterable[bytes]
    construct: Iterable[bytes]
    coverage: Mapping[str, Any]
    faults: list[dict[str, Any]]


def pages_of(documents: Documents) -> Pages:
    """Return the lines of documents."""
    flat = documents.header.get("level") == "L1"
    return Pages(
        documents.header,
        len(documents.data),
        _lines(documents.data),
        _lines(documents.stack),
        _lines({} if flat else documents.construct),
        documents.coverage,
        documents.faults,
    )


def pages_of_journal(index: Index, journal: ReadBack) -> Pages:
    """Return the lines of a journal as far as it was read into ``index``."""
    return Pages(
        {key: value for key, value in index.header.items() if key != "deferred"},
        len(index.records),
        Records(index, journal).lines(),
        _stacks(index),
        _nodes(index.parents),
        jsonio.loads(index.coverage),
        [{"where": w, "message": m, "count": n} for (w, m), n in index.faults.items()],
    )


def _lines(mapping: Mapping[str, Any]) -> Iterator[bytes]:
    for key, value in mapping.items():
        yield jsonio.dumps(key) + b": " + jsonio.dumps(value)


def _stacks(index: Index) -> Iterator[bytes]:
    for i, (number, names) in enumerate(index.grouped.items()):
        yield b'"%d": [[%b],%b]' % (i, b",".join(names), index.frames.get(number, b"[]"))


def _nodes(parents: Mapping[bytes, bytes]) -> Iterator[bytes]:
    rest = iter(parents.items())
    while some := list(islice(rest, _AT_ONCE)):
        yield b",\n".join([b"%b: %b" % item for item in some])
    absent = [p for p in parents.values() if p != b"null" and p not in parents]
    if absent:
        last_of_each = list(dict.fromkeys(reversed(absent)))[::-1]
        yield from _lines(
            missing(
                [jsonio.loads(p) for p in last_of_each],
                lambda name: jsonio.loads(parents[jsonio.dumps(name)]),
                lambda name: jsonio.dumps(name) in parents,
            )
        )
