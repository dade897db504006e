"""Write the records that an `Index` has found: most are joined from lines of their events."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import numpy as np

from probe_format import jsonio
from probe_format.names import with_direction

from .assembly import Assembly
from .groups import Groups, Numbers, group_of, groups_of
from .index import BACK, ENTER, EXIT, OTHER, PGRAD, Index, hashes_of
from .late_parts import LateParts
from .pieces import VALUE, Lines, event_of, lines_of, pieces_of
from .read_back import ReadBack
from .value_paths import blank_slots

__all__ = ["Records"]

#: The slots in the ``input`` and ``output`` of a backward record, with what they hold while they are empty: null, or
#: nested nulls. None for a side that is not recorded.
Slots = tuple[list[bytes] | None, list[bytes] | None]
#: A record in its pieces, ``"name": {...}``.
Line = tuple[bytes, ...]

_A, _W, _O, _P, _X, _E, _I = b"awopxei"

#: How many records are made at a time: their events are in memory together.
_AT_ONCE = 256
_ENTER, _EXIT, _BACK, _PGRAD = (b'{"k":"%b"' % kind for kind in (b"enter", b"exit", b"back", b"pgrad"))
_EXTRA = b',"x":{"in_backward":true}'
#: The keys of a forward record in their order, and the letters under which its events have them.
_CALL = ((b"input_args", _A), (b"input_kwargs", _W), (b"output", _O), (b"parameters", _P))
#: A path of one number, as it stands before the first value of a list of pairs, and before the others.
_SLOTS = {text % i: i for text in (b"[[%d],", b",[[%d],") for i in range(256)}
#: What makes a record, and what moves one to the end of the file.
_MAKES = np.isin(np.arange(256), (ENTER, BACK, PGRAD, OTHER))
_MOVES = np.isin(np.arange(256), (EXIT, BACK))


class Records:
    """The records of one step, made one by one from its journal.

    count: how many they are.
    """

    def __init__(self, index: Index, journal: ReadBack) -> None:
        """Look at a journal as far as it was read into ``index``."""
        self._index = index
        self._journal = journal
        self._deferred = bool(index.header.get("deferred"))
        self._numbers, self._files = dict(index.numbers), set(index.files)
        self._shapes = [form[VALUE:] for form in index.shapes]
        self._slots = [_slots(form) for form in self._shapes]
        self._places = np.frombuffer(index.places, np.int64)
        self._forms = np.frombuffer(index.forms, np.int32)
        self._groups, self._order = _ordered(index)
        self.count = len(self._order)
        # Of the forms that each group brings: the first and the last.
        brings = self._forms >= 0
        self._first_form, self._last_form = self._groups.first(brings), self._groups.last(brings)

    def lines(self) -> Iterator[bytes]:
        """Yield the records as lines, ``"name": {...}``, some at a time. Raises OSError when it cannot be read."""
        for start in range(0, self.count, _AT_ONCE):
            yield b"".join(self._some(*self._groups.of(self._order[start : start + _AT_ONCE])))

    def _some(self, rows: list[int], ends: list[int]) -> list[bytes]:
        """Return the lines of some records, in pieces. rows: of all their events; ends: where those of each end."""
        events = self._events(rows)
        slots = self._slots_of(events, rows, ends)
        found: list[bytes] = []
        at, between = 0, b""
        for end in ends:
            own = events[at:end]
            if self._deferred and any(b'"$' in line for lines in own for line in lines):
                record = None
            else:
                record = _joined(own, slots.get(at))
            found += (between,)
            found += self._assembled(rows[at:end], own) if record is None else record
            at, between = end, b",\n"
        return found

    def _events(self, rows: list[int]) -> list[Lines]:
        kept = self._index.lines
        if kept is not None:
            return [kept[row] for row in rows]
        return [lines_of(event) for event in self._journal.events_at(self._places[rows].tolist())]

    def _slots_of(self, events: list[Lines], rows: list[int], ends: list[int]) -> dict[int, Slots]:
        """Return the slots of the backward records that have had one form, by the place of their first event."""
        first = [at for at in [0, *ends[:-1]] if events[at][0] == _BACK]
        lines = [events[at][1] for at in first]
        # Of a function, or of a module, whose name ends in its number.
        lines = [
            line[:-10] + b'.forward"'
            if line[-10:] == b'.backward"'
            else b"%b.forward.%b" % line.rpartition(b".backward.")[::2]
            for line in lines
        ]
        forwards = group_of(self._groups, list(map(hash, lines)))
        brings = zip(
            first,
            forwards.tolist(),
            self._first_form[forwards].tolist(),
            self._last_form[forwards].tolist(),
            strict=True,
        )
        usual = [
            (at, row) for at, group, row, last in brings if group >= 0 and row == last and row < rows[at]
        ]
        found = {at: self._slots[self._forms[row]] for at, row in usual}
        return {at: slots for at, slots in found.items() if slots is not None}

    def _assembled(self, rows: list[int], events: list[Lines]) -> Line:
        """Return the line of a record of any form, as `probe recover` makes it."""
        state = Assembly(late=LateParts(self._deferred, early_numbers=self._numbers, early_files=self._files))
        name = self._name(rows[0], events[0])
        text = jsonio.loads(name)
        todo = dict(zip(rows, events, strict=True))
        forms = self._forms_for(text) if any(lines[0] == _BACK for lines in events) else {}
        for row in sorted({*todo, *forms}):
            if row in forms:
                state.skeletons[with_direction(text, "forward")] = jsonio.loads(forms[row])
            else:
                state.take(jsonio.loads(event_of(todo[row])))
        state.cut_short()
        return name, b": ", jsonio.dumps(state.data[text])

    def _forms_for(self, backward: str) -> dict[int, bytes]:
        """Return the forms that a backward record has had, by the rows that brought them."""
        forward = jsonio.dumps(with_direction(backward, "forward"))
        (group,) = group_of(self._groups, hashes_of([forward]))
        rows = self._groups.of(np.array([group]))[0] if group >= 0 else []
        return {row: self._shapes[self._forms[row]] for row in rows if self._forms[row] >= 0}

    def _name(self, row: int, lines: Lines) -> bytes:
        """Return the name of the record that an event is of; that of a saved value may be of two."""
        if lines[1:]:
            return lines[1][VALUE:]
        event = jsonio.loads(event_of(lines))
        names = [jsonio.dumps(name) for name in (event["n"], *event.get("g", ())[:1])]
        return names[hashes_of(names).index(self._index.names[row])]


def _ordered(index: Index) -> tuple[Groups, Numbers]:
    """Return the events by name, and which of the groups are records, in the order of dump.json."""
    kinds = np.frombuffer(index.kinds, np.uint8)
    groups = groups_of(np.frombuffer(index.names, np.int64))
    made, moved = groups.first(_MAKES[kinds]), groups.last(_MOVES[kinds])
    position = np.where(moved >= made, moved, made)
    records = np.flatnonzero(made < len(kinds))
    return groups, records[np.argsort(position[records])]


def _joined(events: list[Lines], slots: Slots | None) -> Line | None:
    """Return the line of a record that is made of lines of its events, None for another one.

    slots: those of a backward record, where they are known.
    """
    first, *more = events
    for lines in more:
        if lines[1:2] != first[1:2]:  # of a saved value there is one line only
            raise OSError(errno.EIO, "two names have the same hash", first[1][VALUE:].decode())
    kind = first[0]
    if kind == _ENTER:
        return _call(first, more[0]) if more and not more[1:] and more[0][0] == _EXIT else None
    if kind == _BACK:
        return None if slots is None else _gradients(events, *slots)
    return _parameters(events) if kind == _PGRAD else None


def _slots(form: bytes) -> Slots | None:
    """Return the empty slots of a backward record; None for a form that this module does not know."""
    sides = jsonio.loads(form)
    if not isinstance(sides, list) or len(sides) != 2:
        return None
    inputs, outputs = (
        None if shape is None else list(map(jsonio.dumps, blank_slots(shape))) for shape in sides
    )
    return inputs, outputs


def _call(enter: Lines, leave: Lines) -> Line | None:
    """Return the line of a call that returned, and that was not recomputed."""
    *_, arguments, keywords = enter
    ending: Line = (b"}",)
    if keywords[2] == _P:
        ending = (b',"parameters":', keywords[VALUE:], b"}")
        *_, arguments, keywords, _ = enter
    if keywords[2] == _W and arguments[2] == _A and leave[2:] and leave[2][2] == _O:  # nearly all of them
        return (
            *(enter[1][VALUE:], b': {"input_args":', arguments[VALUE:]),
            *(b',"input_kwargs":', keywords[VALUE:], b',"output":', leave[2][VALUE:], *ending),
        )
    parts = {**pieces_of(leave), **pieces_of(enter)}
    if _E in parts or parts.get(_X, _EXTRA) != _EXTRA:
        return None
    found = [b'"%b":%b' % (key, parts[letter][VALUE:]) for key, letter in _CALL if letter in parts]
    if _X in parts:
        found += (_EXTRA[VALUE + 1 : -1],)
    return enter[1][VALUE:], b": {", b",".join(found), b"}"


def _gradients(events: list[Lines], inputs: list[bytes] | None, outputs: list[bytes] | None) -> Line | None:
    """Return the record of one backward pass whose gradients are of no tensor inside another value.

    inputs, outputs: its empty slots.
    """
    values = {side: [*slots] for side, slots in ((_I, inputs), (_O, outputs)) if slots is not None}
    for lines in events:
        if lines[0] != _BACK or lines[2] != events[0][2]:  # another pass
            return None
        for line in lines[4:]:
            path = b""
            try:
                side = values[line[2]]
                for text in line[VALUE + 1 : -1].split(b"\t"):  # [[0],  {...}]  ,[[1],  {...}]
                    if path:
                        side[_SLOTS[path]] = text[:-1]
                    path = b"" if path else text
            except LookupError:  # another key, a longer path, or a slot that the form does not have
                return None
            if path:
                return None
    record: Line = (events[0][1][VALUE:], b": {")
    if _I in values:
        record += (b'"input":[', b",".join(values[_I]), b"]")
    if _O in values:
        record += (b',"output":[' if _I in values else b'"output":[', b",".join(values[_O]), b"]")
    return *record, b"}"


def _parameters(events: list[Lines]) -> Line | None:
    """Return the record of the gradients of parameters that arrived once each."""
    found: dict[bytes, bytes] = {}
    for lines in events:
        if lines[0] != _PGRAD or lines[2][VALUE:] in found:
            return None
        found[lines[2][VALUE:]] = lines[3][VALUE:]
    return (
        *(events[0][1][VALUE:], b": {"),
        *(b",".join([b"%b:[%b]" % item for item in found.items()]), b"}"),
    )
