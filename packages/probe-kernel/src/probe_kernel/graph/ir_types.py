"""Parse the types of an operator in MindSpore's .ir files: ``(<Tensor[Float32], (2, 3)>) -> (...)``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .model import Type

Sides = tuple[tuple[Type, ...], tuple[Type, ...]]

_DEVICE = re.compile(r"<(?P<dtype>\w+?)x(?P<format>[A-Za-z]\w*)\[const vector\][\[{](?P<shape>[^\]}]*)[\]}]")
_HOST = re.compile(
    r"<(?:Ref\[)?Tensor\[(?P<dtype>\w+)\]\]?(?:x\[const vector\]\[(?P<old>[^\]]*)\]|, \((?P<shape>[^()]*)\))?"
)
_SCALAR = re.compile(r"<(?P<dtype>\w+), NoShape")
_OPEN, _CLOSE = "([{<", ")]}>"


def pieces(text: str, start: int) -> Iterator[str]:
    """Yield the pieces between commas from ``start`` (after a bracket) to the bracket that closes it."""
    depth, piece = 0, start
    quoted = False
    for at in range(start, len(text)):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE and not text.startswith("->", at - 1):
            if depth == 0:
                if text[piece:at].strip():
                    yield text[piece:at].strip()
                return
            depth -= 1
        elif char == "," and depth == 0:
            yield text[piece:at].strip()
            piece = at + 1
    raise ValueError("a bracket is not closed")


def sides_of(detail: str) -> Sides:
    """Return inputs and outputs of ``: (<A>, <B>) -> (<C>)``. MindSpore 1.5 has ``(<A>) -> (<B>) -> (<C>)`` too."""
    groups: list[tuple[Type, ...]] = []
    at = detail.find("(")
    while at >= 0:
        found = list(pieces(detail, at + 1))
        groups.append(tuple(_type(piece) for piece in found))
        arrow = detail.find(") -> (", at)
        while arrow >= 0 and detail.count("(", at, arrow) != detail.count(")", at, arrow) + 1:
            arrow = detail.find(") -> (", arrow + 1)
        at = -1 if arrow < 0 else arrow + 5
    if not groups:
        raise ValueError(f"no types in {detail[:60]!r}")
    if len(groups) == 1:  # the operator Return has no outputs
        return groups[0], ()
    return tuple(one for group in groups[:-1] for one in group), groups[-1]


def _type(text: str) -> Type:
    if match := _DEVICE.match(text):
        return Type(text, match["dtype"], _shape(match["shape"]), match["format"])
    if match := _HOST.match(text):
        return Type(text, match["dtype"], _shape(match["old"] if match["shape"] is None else match["shape"]))
    if match := _SCALAR.match(text):
        return Type(text, match["dtype"])
    return Type(text)


def _shape(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        return None
