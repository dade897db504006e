"""Take an event apart into the JSON of its keys, without reading the values (spec/journal.md, "Lines")."""

from __future__ import annotations

from probe_format import jsonio

__all__ = ["pieces"]

Pieces = dict[bytes, bytes]


def pieces(event: bytes) -> Pieces:
    """Return key -> JSON of its value, for any event.

    Values never hold a line break, so those of an event with one line for each key are cut out of its bytes.
    """
    if b"\n" not in event:
        return _parsed(event)
    found: Pieces = {}
    for line in event[:-1].split(b"\n"):  # {"k":"exit"  ,"n":"Torch.add.0.forward"  ,"o":[...]
        if line[3:5] != b'":':
            return _parsed(event)
        found[line[2:3]] = line[5:]
    return found


def _parsed(event: bytes) -> Pieces:
    return {key.encode(): jsonio.dumps(value) for key, value in jsonio.loads(event).items()}
