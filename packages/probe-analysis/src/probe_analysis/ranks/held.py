"""Hold which ranks hold what: ranks as the bits of a number, and each content with the ranks that have it."""

from collections.abc import Hashable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal

#: Ranks, as bits, -> what they hold alike.
Held = Mapping[int, Any]
#: What tells a content apart -> the ranks that hold it, and the content as the lowest of them has it; None where there
#: are more contents than are kept.
Piles = dict[Hashable, tuple[int, Any]] | None
#: Ranks by what they hold: the largest group first, of equal ones that with the lowest rank.
Parting = tuple[tuple[int, ...], ...]

Kind = Literal["held", "given", "own", "form", "argument", "updated"]
"""What is looked at in a record: the tensors that ranks should hold alike; those that they give to functions, which
follow from data or not; whose gradient of its own a rank uses; the forms and the arguments of what they give; which
weights they update."""
#: How many contents are kept. Of what may follow from data few: it is another on each rank.
MOST: Mapping[Kind, int] = {"held": 256, "own": 256, "given": 8, "form": 8, "argument": 8, "updated": 8}


def lowest(bits: int) -> int:
    """Return the lowest rank of some."""
    return (bits & -bits).bit_length() - 1


def ranks_in(bits: int) -> tuple[int, ...]:
    """Return the numbers of ranks."""
    return tuple(rank for rank, bit in enumerate(reversed(bin(bits)[2:])) if bit == "1")


def bits_of(ranks: Iterable[int]) -> int:
    return all_of(1 << rank for rank in ranks)


def all_of(bits: Iterable[int]) -> int:
    return reduce(or_, bits, 0)


def in_order(groups: Iterable[int]) -> list[int]:
    """Return groups of ranks, the largest first, of equal ones that with the lowest rank."""
    return sorted(groups, key=lambda bits: (-bits.bit_count(), lowest(bits)))


def within(held: Held, group: int) -> Held:
    """Return what the ranks of a group hold."""
    if group in held:  # then no other one has some of it
        return {group: held[group]}
    return {some: content for bits, content in held.items() if (some := bits & group)}


def united(one: Piles, two: Piles, most: int, unions: dict[Any, Any] | None = None) -> Piles:
    """Return what two sets of ranks hold together.

    most: how many contents are kept; of more none is.
    unions: of sets of ranks that were united before, which are the same in many tensors; each is there once.

    Whichever way some sets are united, the answer is the same: contents are told apart by their marks alone, those of
    the lowest rank are kept, and what has too many has too many with any others.
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
    """Put tables of tables into one, and return it: what is in several is united by its `with_`."""
    for table in tables:
        for key, inner in table.items():
            found = into.setdefault(key, {})
            for name, each in inner.items():
                found[name] = found[name].with_(each) if name in found else each
    return into
