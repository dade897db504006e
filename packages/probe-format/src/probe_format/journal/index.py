"""Find in a journal what each document is made of, without a copy of any value.

It agrees with `Assembly` on which records, nodes and stacks there are and in which order; a property test holds the two
together.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from probe_format import jsonio
from probe_format.names import with_direction

from .events import EVENTS
from .frames import MAGIC
from .pieces import Pieces, pieces
from .read_back import ReadBack

__all__ = ["FORM", "PLACE", "Index"]

#: How many bits a place in the journal has, and the bit that tells the number of a form from a place.
PLACE = 48
FORM = 1 << (PLACE - 1)


@define
class Index:
    """Say where the events of each record lie. Names, and whatever else is bytes, are JSON.

    at: how far the journal has been read.
    header: that of the journal.
    records: name -> the places of its events, one number of `PLACE` bits behind the other; in the order of dump.json.
        Before each `back` stands the number of its form, if it has one, with the bit `FORM`.
    parents: the nodes and their parents, which construct.json has; empty at L1.
    grouped: number of a stack -> the names of its calls.
    frames: number of a stack -> its lines.
    forms: forward name -> the number of the form that its backward record has.
    shapes: form -> its number, in the order of the numbers.
    numbers, files: what came late (`LateParts`), by the number of the tensor.
    coverage: the last tally.
    faults: (where, message) -> how often.
    """

    at: int = len(MAGIC)
    header: dict[str, Any] = field(factory=dict)
    records: dict[bytes, int] = field(factory=dict)
    parents: dict[bytes, bytes] = field(factory=dict)
    grouped: dict[bytes, list[bytes]] = field(factory=dict)
    frames: dict[bytes, bytes] = field(factory=dict)
    forms: dict[bytes, int] = field(factory=dict)
    shapes: dict[bytes, int] = field(factory=dict)
    numbers: dict[int, dict[str, Any]] = field(factory=dict)
    files: set[int] = field(factory=set)
    coverage: bytes = b"{}"
    faults: dict[tuple[str, str], int] = field(factory=dict)
    _tree: bool = True
    _same: dict[bytes, bytes] = field(factory=dict)

    def read(self, journal: ReadBack, size: int) -> None:
        """Take the events up to ``size``, from where the last call ended. Raises OSError when they cannot be read."""
        handlers = {b'"%b"' % kind.encode(): getattr(self, f"on_{kind}") for kind in EVENTS}
        while self.at < size:
            found, after = journal.events(self.at, size)
            for at, event in found:
                parts = pieces(event)
                kind = parts[b"k"]
                if kind in handlers:
                    handlers[kind](at, parts)
            self.at = after

    def on_head(self, at: int, parts: Pieces) -> None:
        self.header = jsonio.loads(parts[b"header"])
        self._tree = self.header.get("level") != "L1"

    def on_frames(self, at: int, parts: Pieces) -> None:
        self.frames[parts[b"i"]] = parts[b"f"]

    def on_enter(self, at: int, parts: Pieces) -> None:
        name = parts[b"n"]
        if self._tree:
            parent = parts.get(b"u", b"null")
            self.parents[name] = self._same.setdefault(parent, parent)
        kept = parts.get(b"r", b"1")
        if kept == b"0":
            return
        if b"s" in parts and parts[b"s"] != b"null":
            try:
                self.grouped[parts[b"s"]] += (name,)
            except KeyError:
                self.grouped[parts[b"s"]] = [name]
        if kept != b"2":
            self.records[name] = at

    def on_exit(self, at: int, parts: Pieces) -> None:
        name = parts[b"n"]
        if b"g" in parts:
            self._form(name, parts[b"g"])
        if name in self.records:
            self.records[name] = self.records.pop(name) << PLACE | at

    def on_back(self, at: int, parts: Pieces) -> None:
        name = parts[b"n"]
        if self._tree and name not in self.parents:
            parent = parts.get(b"u", b"null")
            self.parents[name] = self._same.setdefault(parent, parent)
        if b"r" in parts and parts[b"r"] == b"2":
            return
        places = self.records.pop(name, 0)
        forward = _forward(name)
        if forward in self.forms:
            places = places << PLACE | FORM | self.forms[forward]
        self.records[name] = places << PLACE | at

    def on_redo(self, at: int, parts: Pieces) -> None:
        name = parts[b"n"]
        if name in self.records:
            self.records[name] = self.records[name] << PLACE | at

    def on_redone(self, at: int, parts: Pieces) -> None:
        if b"g" in parts:
            self._form(parts[b"n"], parts[b"g"])
        self.on_redo(at, parts)

    def on_pgrad(self, at: int, parts: Pieces) -> None:
        name = parts[b"n"]
        self.records[name] = self.records.get(name, 0) << PLACE | at

    def on_save(self, at: int, parts: Pieces) -> None:
        self.records[parts[b"n"]] = at
        if b"g" in parts:
            self.records[jsonio.dumps(jsonio.loads(parts[b"g"])[0])] = at

    def on_grad(self, at: int, parts: Pieces) -> None:
        self.on_pgrad(at, parts)

    def on_stat(self, at: int, parts: Pieces) -> None:
        self.numbers.update(jsonio.loads(parts[b"r"]))

    def on_file(self, at: int, parts: Pieces) -> None:
        self.files.update(jsonio.loads(parts[b"r"]))

    def on_fault(self, at: int, parts: Pieces) -> None:
        key = jsonio.loads(parts[b"w"]), jsonio.loads(parts[b"m"])
        self.faults[key] = self.faults.get(key, 0) + 1

    def on_tally(self, at: int, parts: Pieces) -> None:
        self.coverage = parts[b"d"]

    def _form(self, name: bytes, form: bytes) -> None:
        if form not in self.shapes:
            self.shapes[form] = len(self.shapes)
        self.forms[name] = self.shapes[form]


def _forward(backward: bytes) -> bytes:
    """Return the name of the forward record of a call."""
    if backward[-10:] == b'.backward"':  # a function's; a module's ends in its number
        return backward[:-10] + b'.forward"'
    return with_direction(backward.decode(), "forward").encode()
