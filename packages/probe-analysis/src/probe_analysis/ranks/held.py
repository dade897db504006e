"""Tell which ranks hold which content, each set of ranks being the bits of a number, and unite such tables.

Say also which kinds of content are compared between ranks, and how many contents of each kind are kept.
"""

from collections.abc import Hashable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal

#: Sets of ranks, as bits -> the content that all ranks of the set hold.
Held = Mapping[int, Any]
#: The mark of a content -> the ranks that hold it, as bits, and the content as the lowest of these ranks has it. None
#: where there are more contents than are kept.
Piles = dict[Hashable, tuple[int, Any]] | None
#: Groups of ranks that hold the same: the largest group first, of equal sizes the group with the lowest rank.
Parting = tuple[tuple[int, ...], ...]

Kind = Literal["held", "given", "own", "form", "argument", "updated"]
"""What is compared between ranks. held: tensors that should be equal. given: tensors that ranks give to functions,
which may follow from data. form: slots, shapes and dtypes of the given tensors. argument: the other arguments.
own: the parameter whose gradient an update takes as the rank's own backward pass left it. updated: the weights that a
rank updates."""
#: How many contents of a kind are kept. Few of the kinds that may follow from data: they differ on each rank.
MOST: Mapping[Kind, int] = {"held": 256, "own": 256, "given": 8, "form": 8, "argument": 8, "updated": 8}


def lowest(bits: int) -> int:
    """Return the lowest rank of a set."""
    return (bits & -bits).bit_length() - 1


def ranks_in(bits: int) -> tuple[int, ...]:
    """Return the ranks of a set as numbers, the lowest first."""
    return tuple(rank for rank, bit in enumerate(reversed(bin(bits)[2:])) if bit == "1")


def bits_of(ranks: Iterable[int]) -> int:
    """Return the set of these ranks."""
    return all_of(1 << rank for rank in ranks)


def all_of(bits: Iterable[int]) -> int:
    """Return the union of sets of ranks."""
    return reduce(or_, bits, 0)


def in_order(groups: Iterable[int]) -> list[int]:
    """Return sets of ranks, the largest first, of equal sizes the set with the lowest rank."""
    return sorted(groups, key=lambda bits: (-bits.bit_count(), lowest(bits)))


def within(held: Held, group: int) -> Held:
    """Return the part of ``held`` that is about the ranks of a group."""
    if group in held:  # no rank is in two sets
        return {group: held[group]}
    return {some: content for bits, content in held.items() if (some := bits & group)}


def united(one: Piles, two: Piles, most: int, unions: dict[Any, Any] | None = None) -> Piles:
    """Return the contents of two piles in one; None where there are more than ``most``.

    unions: the unions of sets of ranks that were made before, to use again: many tensors have the same sets.

    The order in which piles are united does not change the answer: contents are told apart by their marks alone, the
    content of the lowest rank is kept, and too many contents stay too many whatever is added.
    """
    if one is None or two is None:
        return None
    found, unions = {**one, **two}, {} if unions is None else unions
    for mark in one.keys() & two.keys():
        (known, first), (bits, content) = one[mark], two[mark]
        key = id(known), id(bits)
        if key not in unions:
            union = known | bits
            unions[key] = unions.setdefault(union, union), lowest(known) < lowest(bits)
        union, is_first = unions[key]
        found[mark] = union, first if is_first else content
    return found if len(found) <= most else None


def joined(into: dict[Any, Any], *tables: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merge tables of tables into ``into``, and return it. Entries that several tables have are united by `with_`."""
    for table in tables:
        for key, inner in table.items():
            found = into.setdefault(key, {})
            for name, each in inner.items():
                found[name] = found[name].with_(each) if name in found else each
    return into
