"""Take an event apart into the JSON of its keys, without reading the values (spec/journal.md, "Lines")."""

from __future__ import annotations

from collections.abc import Iterable

from probe_format import jsonio

__all__ = ["VALUE", "Pieces", "key", "pieces", "pieces_of"]

#: Letter of a key -> its line, ``,"n":"Torch.add.0.forward"``; the value begins at `VALUE`, and is cut out where it is
#: used, as most are large and not looked at. Keys of more than one letter stand as they are.
Pieces = dict[int | str, bytes]
VALUE = 5


def key(name: str) -> int | str:
    """Return the key under which `pieces` has the key ``name`` of an event."""
    return ord(name) if len(name) == 1 else name


def pieces(event: bytes) -> Pieces:
    """Return the line of each key, for any event."""
    return pieces_of((event,))[0]


def pieces_of(events: Iterable[bytes]) -> list[Pieces]:
    """Return the pieces of each event.

    Values never hold a line break, so those of an event with one line for each key are cut out of its bytes.
    """
    found: list[Pieces] = []
    for event in events:
        parts: Pieces = {}
        if b"\n" in event:
            for line in event[:-1].split(b"\n"):  # {"k":"exit"  ,"n":"Torch.add.0.forward"  ,"o":[...]
                if line[4:5] != b":":
                    parts = {}
                    break
                parts[line[2]] = line
        found += (parts or _parsed(event),)
    return found


def _parsed(event: bytes) -> Pieces:
    return {key(name): b',"_":' + jsonio.dumps(value) for name, value in jsonio.loads(event).items()}
