"""Find in a journal what each document is made of, without a copy of any value.

It agrees with `Assembly` on which records, nodes and stacks there are and in which order; a property test holds the two
together.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from probe_format import jsonio

from .frames import MAGIC
from .pieces import VALUE, Pieces, pieces_of
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
    _begun: dict[bytes, bytes] = field(factory=dict)

    def read(self, journal: ReadBack, size: int) -> None:
        """Take the events up to ``size``, from where the last call ended. Raises OSError when they cannot be read."""
        while self.at < size:
            found, after = journal.events(self.at, size)
            self._take([at for at, _ in found], pieces_of([event for _, event in found]))
            self.at = after

    def _take(self, places: list[int], events: list[Pieces]) -> None:
        """Take events. The frequent kinds are taken here and call nothing, as there may be millions of them."""
        records, parents, forms, grouped, begun = self.records, self.parents, self.forms, self.grouped, self._begun
        for at, parts in zip(places, events, strict=True):
            kind = parts[_K][VALUE:]
            if kind == b'"enter"':
                name = parts[_N][VALUE:]
                if self._tree:
                    parents[name] = self._parent(parts)
                kept = parts[_R][VALUE:] if _R in parts else b"1"
                if kept == b"0":
                    continue
                if _S in parts and parts[_S][VALUE:] != b"null":
                    stack = parts[_S][VALUE:]
                    if stack not in grouped:
                        grouped[stack] = []
                    grouped[stack] += (name,)
                if kept != b"2":
                    records[name] = at
                    begun[name] = name
            elif kind == b'"exit"':
                name = parts[_N][VALUE:]
                if name in begun:  # the same object serves all tables
                    name = begun[name]
                    del begun[name]
                if _G in parts:
                    forms[name] = self._form(parts)
                if name in records:
                    before = records[name]
                    del records[name]
                    records[name] = before << PLACE | at
            elif kind == b'"back"':
                name = parts[_N][VALUE:]
                if self._tree and name not in parents:
                    parents[name] = self._parent(parts)
                if _R in parts and parts[_R][VALUE:] == b"2":
                    continue
                if name[-10:] == b'.backward"':  # of a function
                    forward = name[:-10] + b'.forward"'
                else:  # a module's name ends in its number
                    head, _, last = name.rpartition(b".backward.")
                    forward = b"%b.forward.%b" % (head, last)
                before = 0
                if name in records:
                    before = records[name]
                    del records[name]
                if forward in forms:
                    before = before << PLACE | FORM | forms[forward]
                records[name] = before << PLACE | at
            elif kind == b'"pgrad"' or kind == b'"grad"':
                name = parts[_N][VALUE:]
                before = 0
                if name in records:
                    before = records[name]
                records[name] = before << PLACE | at
            elif kind in _HANDLERS:
                _HANDLERS[kind](self, at, parts)

    def on_head(self, at: int, parts: Pieces) -> None:
        self.header = jsonio.loads(parts["header"][VALUE:])
        self._tree = self.header.get("level") != "L1"

    def on_frames(self, at: int, parts: Pieces) -> None:
        self.frames[parts[_I][VALUE:]] = parts[_F][VALUE:]

    def on_redo(self, at: int, parts: Pieces) -> None:
        name = parts[_N][VALUE:]
        if name in self.records:
            self.records[name] = self.records[name] << PLACE | at

    def on_redone(self, at: int, parts: Pieces) -> None:
        if _G in parts:
            self.forms[parts[_N][VALUE:]] = self._form(parts)
        self.on_redo(at, parts)

    def on_save(self, at: int, parts: Pieces) -> None:
        self.records[parts[_N][VALUE:]] = at
        if _G in parts:
            self.records[jsonio.dumps(jsonio.loads(parts[_G][VALUE:])[0])] = at

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
        if parent not in self._same:
            self._same[parent] = parent
        return self._same[parent]

    def _form(self, parts: Pieces) -> int:
        """Return the number of the form that the event has."""
        form = parts[_G][VALUE:]
        if form not in self.shapes:
            self.shapes[form] = len(self.shapes)
        return self.shapes[form]


#: The other kinds.
_HANDLERS = {b'"%b"' % name[3:].encode(): method for name, method in vars(Index).items() if name.startswith("on_")}
