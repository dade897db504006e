"""What the files of one rank hold, line by line: made from documents, or straight from a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from attrs import frozen

from probe_format import jsonio
from probe_format.journal.assembly import Documents
from probe_format.journal.construct_tree import missing
from probe_format.journal.groups import group_of, groups_of
from probe_format.journal.index import Index, Nodes, hashes_of
from probe_format.journal.packed import Packed
from probe_format.journal.pieces import VALUE
from probe_format.journal.read_back import ReadBack
from probe_format.journal.records import Records

__all__ = ["Pages", "pages_of", "pages_of_journal"]


@frozen
class Pages:
    """Hold the content of one rank's files in lines, ``"name": value``, which can be read once.

    Several of them may come joined, as they are in the file: a step has many. A long line may come in pieces.

    header: the top-level keys of dump.json without ``data``.
    count: how many records there are.
    records, stack, construct: the lines of each file.
    coverage: the last tally, or {}.
    faults: one per kind, with its count.
    """

    header: Mapping[str, Any]
    count: int
    records: Iterable[bytes]
    stack: Iterable[bytes | Iterable[bytes]]
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
    records = Records(index, journal)
    return Pages(
        {key: value for key, value in index.header.items() if key != "deferred"},
        records.count,
        records.lines(),
        _stacks(index),
        _nodes(index.nodes),
        index.coverage,
        [{"where": w, "message": m, "count": n} for (w, m), n in index.faults.items()],
    )


def _lines(mapping: Mapping[str, Any]) -> Iterator[bytes]:
    for key, value in mapping.items():
        yield jsonio.dumps(key) + b": " + jsonio.dumps(value)


def _stacks(index: Index) -> Iterator[Iterable[bytes]]:
    for i, (line, names) in enumerate(index.stacks.items()):
        frames = index.frames.get(int(line[VALUE:]), b"[]")
        yield chain((b'"%d": [[' % i,), _listed(names), (b"],%b]" % frames,))


def _listed(names: Packed) -> Iterator[bytes]:
    """Yield names with commas between them, a page at a time."""
    comma = b""
    for page in names.pages():
        if page:
            yield comma + b",".join(page)
            comma = b","


def _nodes(nodes: Nodes) -> Iterator[bytes]:
    """Yield the lines of the nodes, and then of the parents that are none."""
    hashes, parents = np.frombuffer(nodes.hashes, np.int64), np.frombuffer(nodes.parents, np.int32)
    if not len(hashes):
        return
    groups = groups_of(hashes)
    # The last call that made the node says its parent; without one, the first gradients.
    everything = np.full(len(hashes), True)
    first, last = groups.first(everything), groups.last(parents >= 0)
    of_node = parents[np.where(last >= 0, last, first)]
    of_node = np.where(of_node < 0, ~of_node, of_node)
    # In the order of the events: the number of the parent where a node is new, else -1.
    new = np.full(len(hashes), -1, np.int32)
    new[first] = of_node
    values = [line[VALUE:] for line in nodes.known]
    at = 0
    for page in nodes.names.pages():
        here = zip(page, new[at : at + len(page)].tolist(), strict=True)
        lines = [b"%b: %b" % (name, values[parent]) for name, parent in here if parent >= 0]
        if lines:
            yield b",\n".join(lines)
        at += len(page)
    known = (group_of(groups, hashes_of(values)) >= 0).tolist()
    if [value for is_node, value in zip(known, values, strict=True) if not is_node and value != b"null"]:
        in_order = new[new >= 0][::-1]
        last_of_each = dict.fromkeys(in_order.tolist())
        absent = [jsonio.loads(values[p]) for p in last_of_each if not known[p] and values[p] != b"null"][
            ::-1
        ]

        def group(name: str) -> int:
            return int(group_of(groups, hashes_of([jsonio.dumps(name)]))[0])

        yield from _lines(
            missing(
                absent, lambda name: jsonio.loads(values[of_node[group(name)]]), lambda name: group(name) >= 0
            )
        )
