"""Make the events of a journal (spec/journal.md): one function for each kind, and the table of their keys."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from probe_format import jsonio

__all__ = [
    "EVENTS",
    "FORWARD_PARTS",
    "GRADIENT_PARTS",
    "NODE",
    "STRUCTURE",
    "Event",
    "Kind",
    "back",
    "enter",
    "exit",
    "fault",
    "file",
    "fill",
    "frames",
    "grad",
    "head",
    "pgrad",
    "redo",
    "redone",
    "save",
    "stat",
    "tally",
]

#: The frequent ones are finished JSON, with line breaks between the keys (spec/journal.md).
Event = dict[str, Any] | bytes
Json = Any

#: Values of the key ``r``: only a node of construct.json; a node and its stack, no record (task structure).
NODE: Literal[0] = 0
STRUCTURE: Literal[2] = 2


@frozen
class Kind:
    """Describe the keys of one kind of event.

    keys: all that it may have besides ``k``, in the order of the specification.
    values: those of them that hold an encoded value (spec/values.md).
    pairs: those of them that hold a list of ``[path, encoded value]``.
    opens: whether it creates a folder that waited for its first record.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    opens: bool = True


EVENTS: dict[str, Kind] = {
    "head": Kind(("header",), opens=False),
    "frames": Kind(("i", "f"), opens=False),
    "enter": Kind(("n", "u", "s", "a", "w", "p", "x", "r"), values=("a", "w", "p")),
    "exit": Kind(("n", "o", "e", "g"), values=("o",)),
    "redo": Kind(("n", "a", "w"), values=("a", "w")),
    "redone": Kind(("n", "o", "g"), values=("o",)),
    "back": Kind(("n", "u", "t", "i", "o", "partial", "r"), pairs=("i", "o")),
    "pgrad": Kind(("n", "q", "v"), values=("v",)),
    "save": Kind(("n", "v", "g"), values=("v",)),
    "grad": Kind(("n", "p", "v")),  # not a value to encode early: later gradients change it
    "stat": Kind(("r",)),
    "file": Kind(("r",)),
    "fault": Kind(("w", "m")),
    "tally": Kind(("d",), opens=False),
}
"""Every kind of event by its ``k``."""

FORWARD_PARTS = {"input_args": "a", "input_kwargs": "w", "parameters": "p"}
"""Keys of a forward record, and the keys of ``enter`` and ``redo`` that they come from."""

GRADIENT_PARTS = {"input": "i", "output": "o"}
"""Keys of a backward record, and the keys of ``back`` that they come from."""


def head(header: Mapping[str, Any]) -> dict[str, Any]:
    """Make the event that begins a journal, or corrects its header.

    header: the top-level keys of dump.json without ``data``, and ``deferred``.
    """
    return {"k": "head", "header": header}


def frames(number: int, lines: Iterable[str]) -> dict[str, Any]:
    """Make the event that defines stack ``number``, with its frames innermost first."""
    return {"k": "frames", "i": number, "f": list(lines)}


def enter(
    name: str,
    parent: str | None,
    *,
    stack: int | None = None,
    arguments: Json = None,
    keywords: Json = None,
    parameters: Mapping[str, Json] | None = None,
    extra: Mapping[str, Json] | None = None,
    kept: Literal[0, 2] | None = None,
) -> bytes:
    """Make the event of a call that begins. Keys whose argument is None are left out.

    name: of the forward record.
    parent: the node in which the call is made, None at the top.
    stack: the number of an earlier `frames` event.
    arguments, keywords, parameters: encoded, for the keys of the record that `FORWARD_PARTS` names.
    extra: further keys of the record.
    kept: `NODE` or `STRUCTURE` where there will be no record.
    """
    event = b'{"k":"enter"\n,"n":%b\n,"u":%b' % (_quoted(name), _quoted(parent))
    if stack is not None:
        event += b'\n,"s":%d' % stack
    if arguments is not None:
        event += b'\n,"a":' + (arguments if type(arguments) is bytes else _json(arguments))
    if keywords is not None:
        event += b'\n,"w":' + (keywords if type(keywords) is bytes else _json(keywords))
    if parameters is not None:
        event += b'\n,"p":' + _json(parameters)
    if kept is not None:
        event += b'\n,"r":%d' % kept
    if extra is not None:
        event += b'\n,"x":' + _json(extra)
    return event + b"}"


def exit(name: str, *, output: Json = None, raised: str | None = None, gradients: Json = None) -> bytes:
    """Make the event of a call that ends. Keys whose argument is None are left out.

    output: the encoded values that it returned, a list or an object.
    raised: the exception that it raised instead.
    gradients: the forms of the backward record's ``input`` and ``output``; None for one not recorded.
    """
    event = b'{"k":"exit"\n,"n":' + _quoted(name)
    if output is not None:
        event += b'\n,"o":' + (output if type(output) is bytes else _json(output))
    if raised is not None:
        event += b'\n,"e":' + jsonio.dumps(raised)
    if gradients is not None:
        event += b'\n,"g":' + _form(gradients)
    return event + b"}"


def redo(name: str, arguments: Json, keywords: Json) -> bytes:
    """Make the event of a call that is recomputed, with the encoded values of these arguments."""
    return b'{"k":"redo"\n,"n":%b\n,"a":%b\n,"w":%b}' % (_quoted(name), _json(arguments), _json(keywords))


def redone(name: str, *, output: Json = None, gradients: Json = None) -> bytes:
    """Make the event of a recomputation that ends; the arguments are those of `exit`."""
    event = b'{"k":"redone"\n,"n":' + _quoted(name)
    if output is not None:
        event += b'\n,"o":' + _json(output)
    if gradients is not None:
        event += b'\n,"g":' + _form(gradients)
    return event + b"}"


def back(
    name: str,
    number: int,
    parent: str | None,
    *,
    inputs: Json = None,
    outputs: Json = None,
    partial: bool = False,
    kept: Literal[2] | None = None,
) -> bytes:
    """Make the event of gradients from one backward pass. Keys whose argument is None are left out.

    name: of the backward record.
    number: how many backward passes went through this call before.
    parent: the node of the enclosing backward pass, None at the top.
    inputs, outputs: ``[path, encoded value]`` pairs of the record's ``input`` and ``output``.
    partial: whether some of them are sums that never became whole.
    kept: `STRUCTURE` where there will be no record.
    """
    event = [b'{"k":"back"\n,"n":%b\n,"t":%d\n,"u":%b' % (_quoted(name), number, _quoted(parent))]
    if kept is not None:
        event += (b'\n,"r":%d' % kept,)
    for before, pairs in ((b'\n,"i":[', inputs), (b'\n,"o":[', outputs)):
        if pairs is not None:
            event += (before,)
            between = b""
            for path, value in pairs:
                try:
                    event += (between, b"[[%d],\t%b]" % (*path, value))
                except TypeError:  # a longer path, or a value that is not finished
                    event += (between, b"[%b,\t%b]" % (jsonio.dumps(path), jsonio.dumps(value)))
                between = b"\t,"
            event += (b"]",)
    event += (b'\n,"partial":true}' if partial else b"}",)
    return b"".join(event)


def pgrad(name: str, parameter: str, value: Json) -> bytes:
    """Make the event of a parameter's gradient, with its encoded value, for the record ``name``."""
    return b'{"k":"pgrad"\n,"n":%b\n,"q":%b\n,"v":%b}' % (_quoted(name), _quoted(parameter), _json(value))


#: A name as JSON. It is asked for again at once: a call's end follows its begin, and calls share their parent.
_quoted: Callable[[str | None], bytes] = functools.lru_cache(1024)(jsonio.dumps)


def _json(value: Json) -> bytes:
    """Return an encoded value as JSON; values of a list that are finished already are only joined."""
    if type(value) is bytes:
        return value
    if type(value) is list:
        try:
            return b"[%b]" % b",".join(value)
        except TypeError:  # not all are finished
            pass
    return b"{}" if value == {} else jsonio.dumps(value)


def _form(gradients: Json) -> bytes:
    try:
        return b"[%d,%d]" % (*gradients,)
    except TypeError:  # not two numbers of slots
        return jsonio.dumps(gradients)


def save(name: str, value: Json, gradients: tuple[str, Json] | None = None) -> dict[str, Any]:
    """Make the event of a value that is saved by name.

    value: encoded.
    gradients: the name and the form of the record of its gradients, None where there will be none.
    """
    event: dict[str, Any] = {"k": "save", "n": name, "v": value}
    if gradients is not None:
        event["g"] = list(gradients)
    return event


def grad(name: str, path: Iterable[int | str], value: Json) -> dict[str, Any]:
    """Make the event of a gradient that arrived at ``path`` of the gradient record ``name``."""
    return {"k": "grad", "n": name, "p": list(path), "v": value}


def stat(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Make the event of statistics that came late: ``[number of the tensor, {statistics}]`` rows."""
    return {"k": "stat", "r": rows}


def file(numbers: Sequence[int]) -> dict[str, Any]:
    """Make the event that confirms, by their numbers, tensor files that are complete on disk."""
    return {"k": "file", "r": numbers}


def fill(fillers: Sequence[tuple[int, bytes]]) -> tuple[dict[str, Any], list[bytes]]:
    """Make the event of what came late: the numbers of holes, each with what belongs there."""
    return {"k": "fill", "r": [number for number, _ in fillers]}, [filler for _, filler in fillers]


def fault(where: str, message: str) -> dict[str, Any]:
    """Make the event of a failure inside Probe."""
    return {"k": "fault", "w": where, "m": message}


def tally(content: Mapping[str, Any]) -> dict[str, Any]:
    """Make the event that says what was seen and recorded so far (spec/journal.md has its keys)."""
    return {"k": "tally", "d": content}
