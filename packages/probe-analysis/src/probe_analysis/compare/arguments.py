"""Compare the arguments of two calls that are not tensors: numbers, flags, texts, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen
from probe_format.values import plain


@frozen
class ArgumentDifference:
    """Name an argument that two calls got with another value.

    slot: its place in the record, as ``input_kwargs.eps``.
    a, b: the values in words; empty where one side has no such argument.
    """

    slot: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.slot} {self.a or 'not given'} against {self.b or 'not given'}"


def compare_arguments(
    a: Sequence[tuple[str, Any]], b: Sequence[tuple[str, Any]], *, both: bool = False
) -> tuple[ArgumentDifference, ...]:
    """Return the arguments that differ, in the order of the slots of ``a``.

    a, b: (slot, value) of each.
    both: count only those that are given on both sides (two frameworks write defaults in other ways).
    """
    if a == b:
        return ()
    one, two = dict(a), dict(b)
    slots = [slot for slot in one if slot in two] if both else list(dict.fromkeys([*one, *two]))
    found = []
    for slot in slots:
        x, y = plain(one.get(slot)), plain(two.get(slot))
        if x != y:
            words = (repr(value) if slot in given else "" for value, given in ((x, one), (y, two)))
            found.append(ArgumentDifference(slot, *words))
    return tuple(found)
