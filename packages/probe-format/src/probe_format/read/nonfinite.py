"""Find the calls that make values which are not finite, and were not asked for.

The rule is in spec/statistics.md (What is not finite).
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

from attrs import frozen

from probe_format.errors import FormatError
from probe_format.schema.finite import kinds_asked_for, kinds_of
from probe_format.schema.parts import Parts, Value, parts_of
from probe_format.schema.written import only_views, writes_into

from .dump import Rank

#: What a mask is made of. Where it comes with the inputs it is meant, as long as nothing but it follows.
_MASK = frozenset(("-Inf",))
_NONE: frozenset[str] = frozenset()


@frozen(eq=False)
class Suspect:
    """Hold a record that has a value which is not finite, whoever made it.

    order: its place among the records of the rank, which is that of completion.
    given, made: the kinds of such values among what the call got, and what it returned.
    asked: the kinds that its other arguments ask for.
    """

    name: str
    order: int
    given: frozenset[str]
    made: frozenset[str]
    asked: frozenset[str] = _NONE


@frozen(slots=False, eq=False)
class Origin:
    """Point to a record where values that are not finite, and were not asked for, begin.

    name: the record; where the value comes from outside of what was recorded, the outermost call that was given it.
    outside: whether it comes from outside: it is among what the call got, and no call returned it.
    at: where it was met first; the record itself, or one inside of it.
    """

    rank: Rank
    name: str
    outside: bool
    at: Suspect

    @cached_property
    def given(self) -> tuple[Value, ...]:
        """Return the tensors with values that are not finite that the call got."""
        return tuple(value for value in self._bad if value.side != "out")

    @cached_property
    def made(self) -> tuple[Value, ...]:
        """Return the tensors with values that are not finite that the call returned."""
        return tuple(value for value in self._bad if value.side == "out")

    @cached_property
    def _bad(self) -> tuple[Value, ...]:
        # Read anew: where a step has become NaN, most records are suspects, and few are looked at.
        parts = parts_of(self.rank.records[self.name].json)
        return tuple(value for value in parts.values if kinds_of(value.tensor))


def suspect_of(name: str, order: int, parts: Parts) -> Suspect | None:
    """Return a record as a suspect; None where all of it is finite."""
    given = made = held = _NONE
    for value in parts.values:
        kinds = kinds_of(value.tensor)
        if not kinds:
            continue
        if value.side == "out":
            made |= kinds
        elif writes_into(name, value.slot):
            held |= kinds
        else:
            given |= kinds
    if not given and not made and not held:
        return None
    given |= held & made  # what was written over is gone, and may have been memory that nobody wrote before
    return Suspect(
        name, order, given, made, _NONE.union(*(kinds_asked_for(value) for _, value in parts.others))
    )


def suspects(rank: Rank) -> Iterator[Suspect]:
    """Yield the records that have a value which is not finite, in the order of the file."""
    for order, record in enumerate(rank.records):
        found = suspect_of(record.name, order, parts_of(record.json))
        if found is not None:
            yield found


def origins(rank: Rank, found: Iterable[Suspect], kinds: frozenset[str] | None = None) -> Iterator[Origin]:
    """Yield where values that are not finite begin, in the order of the file; the first of them is to blame.

    found: the suspects of the rank, in this order.
    kinds: look for these alone, as ``frozenset(["NaN"])``; for all when None.
    """
    meant: set[str] = set()  # modules around a call that was asked for infinities
    for suspect in found:
        if suspect.asked:
            meant.update(rank.construct.ancestors(suspect.name))
        allowed = suspect.asked | (_MASK if suspect.name in meant else _NONE)
        made = suspect.made - suspect.given - allowed
        brought = suspect.given - allowed - _MASK
        if kinds is not None:
            made, brought = made & kinds, brought & kinds
        if made:
            yield Origin(rank, suspect.name, False, suspect)
        elif brought and not only_views(suspect.name):
            yield Origin(rank, _outermost(rank, suspect, brought), True, suspect)


def _outermost(rank: Rank, suspect: Suspect, brought: frozenset[str]) -> str:
    """Return the name of the outermost call around a suspect that was given the same: outer calls begin earlier."""
    outermost = suspect.name
    for name in rank.construct.ancestors(suspect.name):
        if name not in rank.records:
            continue
        try:
            around = suspect_of(name, suspect.order, parts_of(rank.records[name].json))
        except FormatError:
            continue
        if around is not None and around.given & brought:
            outermost = name
    return outermost
