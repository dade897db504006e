"""Write the records that an `Index` has found: most are joined from pieces of their events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from probe_format import jsonio
from probe_format.names import with_direction

from .assembly import Assembly
from .index import FORM, PLACE, Index
from .late_parts import LateParts
from .pieces import VALUE, Pieces, pieces_of
from .read_back import ReadBack

__all__ = ["Records"]

_K, _A, _W, _O, _P, _X, _E, _I, _T, _Q, _V = b"kawopxeitqv"

_MASK = (1 << PLACE) - 1
#: How many records are made at a time: their events are in memory together.
_AT_ONCE = 64
_EXTRA = b'{"in_backward":true}'
#: A path of one number, as it stands before the first value of a list of pairs, and before the others.
_SLOTS = {text % i: i for text in (b"[[%d],", b",[[%d],") for i in range(256)}


class Records:
    """The records of one step, made one by one from its journal."""

    def __init__(self, index: Index, journal: ReadBack) -> None:
        """Look at a journal as far as it was read into ``index``."""
        self._index = index
        self._journal = journal
        self._deferred = bool(index.header.get("deferred"))
        self._numbers, self._files = dict(index.numbers), set(index.files)
        self._forms = list(index.shapes)
        self._slots = [_flat(form) for form in self._forms]

    def lines(self) -> Iterator[bytes]:
        """Yield the records as lines, ``"name": {...}``, some at a time. Raises OSError when it cannot be read."""
        rest = iter(self._index.records.items())
        while some := list(islice(rest, _AT_ONCE)):
            yield b",\n".join(self._some(some))

    def _some(self, items: list[tuple[bytes, int]]) -> list[bytes]:
        """Return the lines of some records. items: their names and places."""
        rows: list[tuple[bytes, list[int], int, int]] = []
        wanted: list[int] = []
        end = 0
        for name, places in items:
            forms: list[int] = []
            own: list[int] = []
            start = end
            while places:
                place = places & _MASK
                if place & FORM:
                    forms = [place ^ FORM, *forms]
                else:
                    own = [place, *own]
                    end += 1
                places >>= PLACE
            wanted += own
            rows += ((name, forms, start, end),)
        events = self._journal.events_at(wanted)
        all_pieces = pieces_of(events)
        lines: list[bytes] = []
        for name, forms, start, end in rows:
            late = self._deferred and any(b'"$' in event for event in events[start:end])
            line = None if late else _joined(all_pieces[start:end], self._slots[forms[0]] if forms else None)
            lines += (b"%b: %b" % (name, line or self._assembled(name)),)
        return lines

    def _assembled(self, name: bytes) -> bytes:
        """Return a record of any form, as `probe recover` makes it."""
        state = Assembly(late=LateParts(self._deferred, early_numbers=self._numbers, early_files=self._files))
        text, places = jsonio.loads(name), self._index.records[name]
        for shift in range((places.bit_length() - 1) // PLACE * PLACE, -1, -PLACE):
            place = places >> shift & _MASK
            if place & FORM:
                state.skeletons[with_direction(text, "forward")] = jsonio.loads(self._forms[place ^ FORM])
            else:
                state.take(jsonio.loads(self._journal.event(place)))
        state.cut_short()
        return jsonio.dumps(state.data[text])


def _joined(parts: list[Pieces], slots: tuple[int | None, int | None] | None) -> bytes | None:
    """Return a record that is made of pieces of its events, None for another one.

    slots: how many a backward record has on each side, where that is known and not nested.
    """
    kind = parts[0][_K][VALUE:]
    if kind == b'"enter"':
        return _call(parts)
    if kind == b'"back"':
        return _gradients(parts, slots)
    return _parameters(parts) if kind == b'"pgrad"' else None


def _flat(form: bytes) -> tuple[int | None, int | None] | None:
    """Return the numbers of slots in the ``input`` and ``output`` of a backward record; None if they are nested.

    A side that is not recorded has None.
    """
    sides = jsonio.loads(form)
    if isinstance(sides, list) and len(sides) == 2 and all(type(n) in (int, type(None)) for n in sides):
        return sides[0], sides[1]
    return None


def _call(parts: list[Pieces]) -> bytes | None:
    """Return the record of a call that returned, and that was not recomputed."""
    enter, *more = parts
    if not more or more[1:] or more[0][_K][VALUE:] != b'"exit"' or _E in more[0]:
        return None
    found: tuple[bytes, ...] = ()
    if _A in enter:
        found += (b'"input_args":' + enter[_A][VALUE:],)
    if _W in enter:
        found += (b'"input_kwargs":' + enter[_W][VALUE:],)
    if _O in more[0]:
        found += (b'"output":' + more[0][_O][VALUE:],)
    if _P in enter:
        found += (b'"parameters":' + enter[_P][VALUE:],)
    if _X in enter:
        if enter[_X][VALUE:] != _EXTRA:
            return None
        found += (_EXTRA[1:-1],)
    return b"{%b}" % b",".join(found)


def _gradients(parts: list[Pieces], slots: tuple[int | None, int | None] | None) -> bytes | None:
    """Return the record of one backward pass through a call whose arguments and results are not nested."""
    if slots is None:
        return None
    inputs, outputs = slots
    values = {}
    if inputs is not None:
        values[_I] = [b"null"] * inputs
    if outputs is not None:
        values[_O] = [b"null"] * outputs
    for part in parts:
        if part[_K][VALUE:] != b'"back"' or part[_T] != parts[0][_T] or "partial" in part:
            return None
        for side in (_I, _O):
            if side in part:
                path = b""
                try:
                    for text in part[side][VALUE + 1 : -1].split(b"\t"):  # [[0],  {...}]  ,[[1],  {...}]
                        if path:
                            values[side][_SLOTS[path]] = text[:-1]
                        path = b"" if path else text
                except LookupError:  # a longer path, or a slot that the form does not have
                    return None
                if path:
                    return None
    found: tuple[bytes, ...] = ()
    if inputs is not None:
        found += (b'"input":[%b]' % b",".join(values[_I]),)
    if outputs is not None:
        found += (b'"output":[%b]' % b",".join(values[_O]),)
    return b"{%b}" % b",".join(found)


def _parameters(parts: list[Pieces]) -> bytes | None:
    """Return the record of the gradients of parameters that arrived once each."""
    found: dict[bytes, bytes] = {}
    for part in parts:
        name = part[_Q][VALUE:]
        if part[_K][VALUE:] != b'"pgrad"' or name in found:
            return None
        found[name] = part[_V][VALUE:]
    return b"{%b}" % b",".join([b"%b:[%b]" % item for item in found.items()])
