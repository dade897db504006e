"""Make the events of a journal (spec/journal.md): one function for each kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from probe_format.statistics import KEYS

#: A small JSON object, and the values: each is finished JSON, possibly with holes, that nobody looks inside again.
#: Values are kept, so those that may come from orjson are copied here: its bytes take 1 KB or more, however short.
Event = tuple[dict[str, Any], Sequence[bytes]]
#: The number of slots of a part, or nested nulls where values are nested; None for a part that is not recorded.
Form = Any
#: A place in a backward record: ``i`` or ``o`` for its inputs and outputs, then the path there.
Slot = Sequence[int | str]

#: Values of the key ``r``: only a node of construct.json; a node and its stack, no record (task structure).
NODE: Literal[0] = 0
STRUCTURE: Literal[2] = 2

#: The keys of a gradient that came with a later backward pass: its numbers alone.
LATER_PASS = (*KEYS, "md5", "sketch", "unsupported")

#: The kinds that prepare records: they do not create a folder that waits for its first record.
_PREPARATIONS = ("head", "frames", "tally", "over")


def opens(event: Event) -> bool:
    """Return whether an event creates a folder that waited for its first record."""
    return event[0].get("k") not in _PREPARATIONS


def head(header: Mapping[str, Any], room: int = 0) -> Event:
    """Make the event that begins a journal, or corrects its header.

    header: the top-level keys of dump.json without ``data``.
    room: how many bytes it reserves for a fault, as the disk may be full later; 0 where it is not the first event.
    """
    return {"k": "head", "header": header} | ({"room": " " * room} if room else {}), ()


def frames(number: int, lines: Iterable[str]) -> Event:
    """Make the event that defines stack ``number``, with its frames innermost first."""
    return {"k": "frames", "i": number, "f": list(lines)}, ()


def enter(
    name: str,
    parent: str | None,
    letters: str = "",
    values: Sequence[bytes] = (),
    *,
    stack: int | None = None,
    extra: Mapping[str, Any] | None = None,
    kept: Literal[0, 2] | None = None,
) -> Event:
    """Make the event of a call that begins. Keys whose argument is None are left out.

    parent: the node in which the call is made, None at the top.
    letters, values: what the record has of (a)rguments, key(w)ords, (p)arameters and (b)uffers, in this order.
    stack: the number of an earlier `frames` event.
    extra: further keys of the record, with plain JSON.
    kept: `NODE` or `STRUCTURE` where there will be no record.
    """
    content: dict[str, Any] = {"k": "enter", "n": name, "u": parent}
    if stack is not None:
        content["s"] = stack
    if kept is not None:
        content["r"] = kept
    if extra:
        content["x"] = extra
    content["v"] = letters
    return content, values


def exit(name: str, *, output: bytes | None = None, raised: str | None = None) -> Event:
    """Make the event of a call that ends. output: what it returned; raised: the exception that it raised instead."""
    if raised is not None:
        return {"k": "exit", "n": name, "e": raised}, ()
    return {"k": "exit", "n": name}, () if output is None else (output,)


def redo(name: str, arguments: bytes, keywords: bytes) -> Event:
    """Make the event of a call that begins to be recomputed, with the values of its arguments."""
    return {"k": "redo", "n": name}, (arguments, keywords)


def redone(name: str, *, output: bytes | None = None) -> Event:
    """Make the event of a recomputed call that ends."""
    return {"k": "redone", "n": name}, () if output is None else (output,)


def back(
    name: str,
    number: int,
    parent: str | None,
    *,
    form: tuple[Form, Form] | None = None,
    slots: Sequence[Slot] = (),
    values: Sequence[bytes] = (),
    waiting: Sequence[Slot] = (),
    partial: bool = False,
    kept: Literal[2] | None = None,
) -> Event:
    """Make the event of gradients from one backward pass.

    number: how many backward passes went through this call before.
    parent: the node of the enclosing backward pass, None at the top.
    form: of the record's ``input`` and ``output``, None where it is not known.
    slots, values: where gradients arrived, and the gradients.
    waiting: the slots that wait for more gradients of this pass; given with its first ones.
    partial: whether some of them are sums that never became whole.
    kept: `STRUCTURE` where there will be no record.
    """
    content: dict[str, Any] = {"k": "back", "n": name, "t": number, "u": parent}
    if kept is not None:
        content["r"] = kept
        return content, ()
    if form is not None:
        content["g"] = form
    if waiting:
        content["w"] = waiting
    if partial:
        content["partial"] = True
    content["v"] = slots
    return content, values


def over() -> Event:
    """Make the event after which slots that still wait hold nothing: no gradient is on its way any more."""
    return {"k": "over"}, ()


def pgrad(name: str, parameter: str, value: bytes) -> Event:
    """Make the event of a parameter's gradient, for the record ``name``."""
    return {"k": "pgrad", "n": name, "q": parameter}, (value,)


def save(
    name: str,
    value: bytes,
    gradients: tuple[str, Form] | None = None,
    waiting: Sequence[Sequence[int | str]] = (),
) -> Event:
    """Make the event of a value that is saved by name.

    gradients: the name and the form of the record of its gradients, None where there will be none.
    waiting: the paths in it whose gradients will come with the first backward pass.
    """
    content: dict[str, Any] = {"k": "save", "n": name}
    if gradients is not None:
        content["g"] = gradients
    if waiting:
        content["w"] = waiting
    return content, (b"%b" % value,)


def grad(name: str, path: Iterable[int | str], value: bytes, number: int = 0) -> Event:
    """Make the event of a gradient that arrived at ``path`` of the gradient record ``name``.

    number: how many arrived there before; after the first, ``value`` is an object with the numbers only.
    """
    content: dict[str, Any] = {"k": "grad", "n": name, "p": list(path)}
    if number:
        content["t"] = number
    return content, (b"%b" % value,)


def fill(fillers: Sequence[tuple[int, bytes]]) -> Event:
    """Make the event that fills holes, by their numbers."""
    return {"k": "fill", "h": [number for number, _ in fillers]}, [filler for _, filler in fillers]


def fault(where: str, message: str) -> Event:
    """Make the event of a failure inside Probe."""
    return {"k": "fault", "w": where, "m": message}, ()


def tally(content: Mapping[str, Any]) -> Event:
    """Make the event that says what was seen and recorded so far (spec/journal.md has its keys)."""
    return {"k": "tally", "d": content}, ()
