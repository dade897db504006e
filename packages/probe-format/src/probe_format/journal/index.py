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
from .pieces import VALUE, Pieces, pieces
from .read_back import ReadBack

__all__ = ["FORM", "PLACE", "Index"]

_K, _N, _U, _S, _R, _G, _I, _F, _W, _M, _D = b"knusrgifwmd"

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
                kind = parts[_K][VALUE:]
                if kind in handlers:
                    handlers[kind](at, parts)
            self.at = after

    def on_head(self, at: int, parts: Pieces) -> None:
        self.header = jsonio.loads(parts["header"][VALUE:])
        self._tree = self.header.get("level") != "L1"

    def on_frames(self, at: int, parts: Pieces) -> None:
        self.frames[parts[_I][VALUE:]] = parts[_F][VALUE:]

    def on_enter(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        if self._tree:
            self.parents[name] = self._parent(parts)
        kept = parts[_R][VALUE:] if _R in parts else b"1"
        if kept == b"0":
            return
        if _S in parts and parts[_S][VALUE:] != b"null":
            stack = parts[_S][VALUE:]
            if stack not in self.grouped:
                self.grouped[stack] = []
            self.grouped[stack] += (name,)
        if kept != b"2":
            self.records[name] = at

    def on_exit(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        self._note_form(name, parts)
        if name in self.records:
            self.records[name] = self.records.pop(name) << PLACE | at

    def on_back(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        if self._tree and name not in self.parents:
            self.parents[name] = self._parent(parts)
        if _R in parts and parts[_R][VALUE:] == b"2":
            return
        places = self.records.pop(name, 0)
        if name[-10:] == b'.backward"':  # of a function; a module's name ends in its number
            forward = name[:-10] + b'.forward"'
        else:
            forward = with_direction(name.decode(), "forward").encode()
        if forward in self.forms:
            places = places << PLACE | FORM | self.forms[forward]
        self.records[name] = places << PLACE | at

    def on_redo(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        if name in self.records:
            self.records[name] = self.records[name] << PLACE | at

    def on_redone(self, at: int, parts: Pieces) -> None:
        self._note_form(parts[_N][VALUE:], parts)
        self.on_redo(at, parts)

    def on_pgrad(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        self.records[name] = self.records.get(name, 0) << PLACE | at

    def on_save(self, at: int, parts: Pieces) -> None:
        self.records[parts[_N][VALUE:]] = at
        if _G in parts:
            self.records[jsonio.dumps(jsonio.loads(parts[_G][VALUE:])[0])] = at

    def on_grad(self, at: int, parts: Pieces) -> None:
        self.on_pgrad(at, parts)

    def on_stat(self, at: int, parts: Pieces) -> None:
        self.numbers.update(jsonio.loads(parts[_R][VALUE:]))

    def on_file(self, at: int, parts: Pieces) -> None:
        self.files.update(jsonio.loads(parts[_R][VALUE:]))

    def on_fault(self, at: int, parts: Pieces) -> None:
        kind = jsonio.loads(parts[_W][VALUE:]), jsonio.loads(parts[_M][VALUE:])
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def on_tally(self, at: int, parts: Pieces) -> None:
        self.coverage = parts[_D][VALUE:]

    def _parent(self, parts: Pieces) -> bytes:
        """Return the parent; all children share one object."""
        parent = parts[_U][VALUE:] if _U in parts else b"null"
        return self._same.setdefault(parent, parent)

    def _note_form(self, name: bytes, parts: Pieces) -> None:
        if _G in parts:
            form = parts[_G][VALUE:]
            if form not in self.shapes:
                self.shapes[form] = len(self.shapes)
            self.forms[name] = self.shapes[form]
