"""Find in a journal what each document is made of, in a few bytes for each event and without a copy of any value.

It agrees with `Assembly` on which records, nodes and stacks there are and in which order; a property test holds the two
together.

Names are told apart by their 64-bit hashes, as the names themselves would be most of what is kept. `Records` compares
the names of the events that it puts into one record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from attrs import define, field

from probe_format import jsonio

from .frames import MAGIC
from .packed import PAGE, Packed
from .pieces import VALUE, Lines, event_of, lines_of
from .read_back import ReadBack

__all__ = ["BACK", "ENTER", "EXIT", "OTHER", "PGRAD", "Index", "Nodes", "hashes_of"]

Event = dict[str, Any]

_S, _R, _X, _G = b"srxg"

#: Kinds of events; `OTHER` is a value that is saved, or its gradient.
ENTER, EXIT, BACK, PGRAD, REDO, REDONE, OTHER = range(1, 8)
_KINDS = {
    b'{"k":"enter"': ENTER,
    b'{"k":"exit"': EXIT,
    b'{"k":"back"': BACK,
    b'{"k":"pgrad"': PGRAD,
    b'{"k":"redo"': REDO,
    b'{"k":"redone"': REDONE,
}
#: Kinds that bring forms, and kinds that make nodes.
_LEAVES, _BEGINS = (EXIT, REDONE), (ENTER, BACK)
#: The lines of a journal up to this size are kept until the files are written; a longer one is read again.
KEPT = 4 << 20
#: How many events are taken apart at a time: few enough for the processor's cache.
_AT_ONCE = 256


def hashes_of(names: Iterable[bytes]) -> list[int]:
    """Return what stands for each name, which is JSON."""
    # Of its line in the events, so that nothing has to be cut from that to be hashed.
    return list(map(hash, [b',"n":' + name for name in names]))


@define
class Nodes:
    """The nodes of construct.json: one row for each event that may make one.

    hashes: of the names.
    parents: number of the parent in ``known``; ``~number`` where the event does not change the parent of a known node.
    names: in the same order.
    known: line of a parent -> its number.
    """

    hashes: array[int] = field(factory=lambda: array("q"))
    parents: array[int] = field(factory=lambda: array("i"))
    names: Packed = field(factory=Packed)
    known: dict[bytes, int] = field(factory=dict)


@define
class Index:
    """Say where the events of each record lie.

    at: how far the journal has been read.
    header: that of the journal.
    names, places, kinds, forms: one row for each event of a record: the hash of the name, where it lies, its kind, and
        the number of the form of the gradients that it brings (-1 for none).
    lines: the lines of these events; None where they have to be read again.
    nodes: those of construct.json; empty at L1.
    stacks: number of a stack -> the names of its calls. frames: number of a stack -> its lines.
    shapes: form -> its number, in the order of the numbers.
    numbers, files: what came late (`LateParts`), by the number of the tensor.
    coverage: the last tally.
    faults: (where, message) -> how often.
    """

    at: int = len(MAGIC)
    header: dict[str, Any] = field(factory=dict)
    names: array[int] = field(factory=lambda: array("q"))
    places: array[int] = field(factory=lambda: array("q"))
    kinds: array[int] = field(factory=lambda: array("B"))
    forms: array[int] = field(factory=lambda: array("i"))
    lines: list[Lines] | None = field(factory=list)
    nodes: Nodes = field(factory=Nodes)
    stacks: dict[bytes, Packed] = field(factory=dict)
    frames: dict[int, bytes] = field(factory=dict)
    shapes: dict[bytes, int] = field(factory=dict)
    numbers: dict[int, dict[str, Any]] = field(factory=dict)
    files: set[int] = field(factory=set)
    coverage: dict[str, Any] = field(factory=dict)
    faults: dict[tuple[str, str], int] = field(factory=dict)
    _tree: bool = True

    def read(self, journal: ReadBack, size: int) -> None:
        """Take the events up to ``size``, from where the last call ended. Raises OSError when they cannot be read."""
        while self.at < size:
            self.take(*journal.events(self.at, size))

    def take(self, places: Sequence[int], events: Sequence[bytes], end: int) -> None:
        """Take events, if they are the next ones. end: the place after them."""
        if events and places[0] == self.at:
            for i in range(0, len(events), _AT_ONCE):
                self._take(places[i : i + _AT_ONCE], events[i : i + _AT_ONCE])
            self.at = end

    def _take(self, places: Sequence[int], events: Sequence[bytes]) -> None:
        """Take events. What is frequent is taken here and calls next to nothing, as there may be millions."""
        if places[-1] > KEPT:
            self.lines = None
        kinds, nodes, stacks, shapes, tree = _KINDS, self.nodes, self.stacks, self.shapes, self._tree
        parents, node_names = nodes.known, nodes.names.open
        names: list[int] = []
        at: list[int] = []
        of_kind: list[int] = []
        forms: list[int] = []
        node_hashes: list[int] = []
        node_parents: list[int] = []
        kept = self.lines
        # What is done with each event is done with all of them at once, where that can be.
        cut = list(map(bytes.split, [event[:-1] for event in events], repeat(b"\n")))
        hashes = list(map(hash, [(lines[1:2] or lines)[0] for lines in cut]))
        for place, event, lines, name in zip(places, events, cut, hashes, strict=True):
            if lines[0] not in kinds:
                lines = lines_of(event)
                if lines[0] not in kinds:
                    for other in self._taken(lines):
                        names += (other,)
                        at += (place,)
                        of_kind += (OTHER,)
                        forms += (-1,)
                        if kept is not None:
                            kept += (lines,)
                    tree = self._tree
                    continue
                name = hash(lines[1])
            kind, last = kinds[lines[0]], lines[-1]
            form = -1
            if kind in _LEAVES:
                if last[2] == _G:
                    if last not in shapes:
                        shapes[last] = len(shapes)
                    form = shapes[last]
            elif kind in _BEGINS:
                if tree:
                    parent = lines[2 if kind == ENTER else 3]
                    if parent not in parents:
                        parents[parent] = len(parents)
                    node_hashes += (name,)
                    node_parents += (parents[parent] if kind == ENTER else ~parents[parent],)
                    node_names += (lines[1][VALUE:],)
                why = b"1"
                if kind == BACK:
                    if lines[4:] and lines[4][2] == _R:
                        why = lines[4][VALUE:]
                else:
                    if last[2] == _R:
                        why = last[VALUE:]
                    elif last[2] == _X and lines[-2][2] == _R:
                        why = lines[-2][VALUE:]
                    if lines[3:] and lines[3][2] == _S and why != b"0":
                        if lines[3] not in stacks:
                            stacks[lines[3]] = Packed()
                        stacks[lines[3]].open += (lines[1][VALUE:],)
                if why != b"1":
                    continue
            names += (name,)
            at += (place,)
            of_kind += (kind,)
            forms += (form,)
            if kept is not None:
                kept += (lines,)
        self.names.extend(names)
        self.places.extend(at)
        self.kinds.extend(of_kind)
        self.forms.extend(forms)
        nodes.hashes.extend(node_hashes)
        nodes.parents.extend(node_parents)
        for names_of in (nodes.names, *stacks.values()):
            if names_of.open[PAGE:]:
                names_of.pack()

    def _taken(self, lines: Lines) -> list[int]:
        """Take a rare event; return the hashes of the records that it is of."""
        event = jsonio.loads(event_of(lines))
        kind = event["k"]
        if kind in _HANDLERS:
            _HANDLERS[kind](self, event)
        elif kind == "save":
            return hashes_of(map(jsonio.dumps, (event["n"], *event.get("g", ())[:1])))
        elif kind == "grad":
            return hashes_of([jsonio.dumps(event["n"])])
        return []

    def on_head(self, event: Event) -> None:
        self.header = event["header"]
        self._tree = self.header.get("level") != "L1"

    def on_frames(self, event: Event) -> None:
        self.frames[event["i"]] = jsonio.dumps(event["f"])

    def on_stat(self, event: Event) -> None:
        self.numbers.update(event["r"])

    def on_file(self, event: Event) -> None:
        self.files.update(event["r"])

    def on_fault(self, event: Event) -> None:
        kind = event["w"], event["m"]
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def on_tally(self, event: Event) -> None:
        self.coverage = event["d"]


#: The other kinds.
_HANDLERS = {name[3:]: method for name, method in vars(Index).items() if name.startswith("on_")}
