"""Take an event apart into the JSON of its keys, without reading the values (spec/journal.md, "Lines")."""

from __future__ import annotations

from probe_format import jsonio

__all__ = ["VALUE", "Lines", "Pieces", "event_of", "lines_of", "pieces_of"]

#: The lines of an event, without its last brace: ``{"k":"exit"``, ``,"n":"Torch.add.0.forward"``, ``,"o":[...]``. The
#: value begins at `VALUE`, and is cut out where it is used, as most are large and not looked at. The order is that of
#: the functions in events.py: first the kind and the name, then the pass (``back``) and the parent.
Lines = list[bytes]
VALUE = 5
#: Letter of a key -> its line. ``partial``, which is the one key with more letters, stands under its first one.
Pieces = dict[int, bytes]

#: The kinds of event that are finished with a line for each key, as their first line, and the keys that they always
#: have; those from elsewhere get lines too.
_ALWAYS = {
    b'{"k":"%b"' % kind: keys
    for kind, keys in (
        (b"enter", ("n", "u")),
        (b"exit", ("n",)),
        (b"back", ("n", "t", "u")),
        (b"pgrad", ("n", "q", "v")),
        (b"redo", ("n",)),
        (b"redone", ("n",)),
    )
}

#: Their keys, in the order in which their lines stand.
_ORDER = (*"nqvtusawprxioeg", "partial")


def lines_of(event: bytes) -> Lines:
    """Return the lines of an event; one of another kind is a single line.

    Values never hold a line break, so the lines are cut out of the event's bytes.
    """
    lines = event[:-1].split(b"\n")
    return lines if lines[0] in _ALWAYS and len(lines) > 1 else _parsed(event)


def event_of(lines: Lines) -> bytes:
    """Return the event that has these lines."""
    return b"\n".join(lines) + b"}"


def pieces_of(lines: Lines) -> Pieces:
    """Return the lines by their keys."""
    return {line[2]: line for line in lines}


def _parsed(event: bytes) -> Lines:
    content = jsonio.loads(event)
    first = b'{"k":%b' % jsonio.dumps(content.pop("k"))
    if first not in _ALWAYS:
        return [event[:-1]]
    content = dict.fromkeys(_ALWAYS[first]) | content
    return [
        first,
        *(b',"%b":%b' % (key.encode(), jsonio.dumps(content[key])) for key in _ORDER if key in content),
    ]
