"""Hold the content of one rank's JSON files as lines, and join these to the text of the files.

A value may have a hole for what comes later, which is filled as the lines are joined (spec/journal.md, "Holes").
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from attrs import define, field, frozen

from probe_format import jsonio, layout
from probe_format.statistics import WHOLE

from .places import Places, Reference
from .value_paths import Room

#: What encloses a hole: JSON never holds this byte, as strings have it escaped.
HOLE = b"\x1a"

_NO_NUMBERS = b',"unsupported":"statistics: the process ended before this was written"'
_UNFILLED = {
    b"n": b"".join(b',"%b":null' % key.encode() for key in WHOLE) + _NO_NUMBERS,
    b"c": _NO_NUMBERS,
    b"f": b',"lost":"tensor file: the process ended before this was written"',
}


def hole(letter: Literal["n", "c", "f"], number: int) -> bytes:
    """Return a hole, for a place in an object where further members may stand.

    letter: what is missing: numbers, content of which no numbers are wanted, or the confirmation of a file.
    number: of this hole, from 1, unique within the step.
    """
    return b"\x1a%c%d\x1a" % (letter.encode(), number)


def lost(why: str) -> bytes:
    """Return the JSON for the slot of a gradient that came, or was on its way, and is not known (spec/values.md)."""
    return b'{"type":"lost","value":null,"lost":%b}' % jsonio.dumps(why)


@define
class Fillers:
    """Hold what the holes of a step are filled with. Either may come first, the filler or the value with the hole.

    room: how much may be put in, where the holes come from a file: each filler counts as a slot for each 64 bytes.
    """

    room: Room | None = None
    _known: dict[int, bytes] = field(factory=dict)
    _places: "array[int]" = field(factory=lambda: array("q"))

    def add(self, number: int, filler: Reference) -> None:
        if isinstance(filler, bytes):
            self._known[number] = filler
        else:
            missing = number + 1 - len(self._places)
            if missing > 0:
                self._places.extend([-1] * (missing + len(self._places) // 8))
            self._places[number] = filler

    def filled(self, text: bytes, places: Places) -> bytes:
        """Return values with their holes filled; where the filler never came, with a word on that."""
        parts = text.split(HOLE)
        for i in range(1, len(parts), 2):
            parts[i] = self.filled(self._filler(parts[i], places), places)
            if self.room is not None:
                self.room.take(1 + len(parts[i]) // 64)
        return b"".join(parts)

    def _filler(self, name: bytes, places: Places) -> bytes:
        number = int(name[1:])
        if number in self._known:
            return self._known[number]
        place = self._places[number] if number < len(self._places) else -1
        return _UNFILLED[name[:1]] if place < 0 else places.value(place)


#: About so many bytes are joined at a time.
_CHUNK = 1 << 20


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
    filled: Callable[[bytes], bytes] = lambda text: text

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
