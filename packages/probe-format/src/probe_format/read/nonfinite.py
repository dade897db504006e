"""Find the records where values begin that are not finite and were not asked for, and say in words how each began.

The rule is in spec/statistics.md (What is not finite).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from attrs import frozen

from probe_format.errors import FormatError
from probe_format.names import BETWEEN_RANKS, ApiName, DebugName, ModuleName, ParamsGradName, parsed
from probe_format.schema.finite import MASK, Suspect, broken, kinds_of, suspect_of
from probe_format.schema.parts import Value, parts_of

from .dump import Rank

_NONE: frozenset[str] = frozenset()


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

    @property
    def received(self) -> bool:
        """Return whether it comes from other ranks."""
        return not self.outside and self.name.startswith(BETWEEN_RANKS)

    @cached_property
    def sentence(self) -> str:
        """Return in words what begins here."""
        return begins(self.name, self.given, self.made, self.outside, self.rank.lost.given(self.name))

    @cached_property
    def _bad(self) -> tuple[Value, ...]:
        # Read anew: where a step has become NaN, most records are suspects, and few are looked at.
        parts = parts_of(self.rank.records[self.name].json)
        return tuple(value for value in parts.values if kinds_of(value.tensor))


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
        made, brought = suspect.blamed(MASK if suspect.name in meant else _NONE)
        if kinds is not None:
            made, brought = made & kinds, brought & kinds
        if made:
            yield Origin(rank, suspect.name, False, suspect)
        elif brought:
            yield Origin(rank, _outermost(rank, suspect, brought), True, suspect)


def begins(name: str, given: Sequence[Value], made: Sequence[Value], outside: bool, lost: str = "") -> str:
    """Return in words that a dump stops being finite at a record.

    given, made: the tensors with such values that it got, and that it returned.
    outside: as in `Origin`.
    lost: what is to be added where what it got is said to be finite (`Lost.given`).
    """
    first = f"{name} is the first to hold values that are not finite"
    if outside:
        what = "parameters" if all(v.side == "parameter" for v in given) else "inputs"
        whence = "They were made outside of what was recorded."
        return f"{first}, and gets them among its {what}: {_words(given)}. {whence}"
    form = parsed(name)
    if isinstance(form, ParamsGradName | DebugName):
        return f"{first}: {_words(made)}."
    is_backward = isinstance(form, ApiName | ModuleName) and form.direction == "backward"
    took = "The gradients that it gets are" if is_backward else "Its inputs are"
    state = f"not finite either, but of another kind ({_words(given)})" if given else f"finite{lost}"
    if name.startswith(BETWEEN_RANKS):
        overflow = ", or its reduction overflows" if "reduce" in name else ""
        return f"{first}, and receives them from other ranks{overflow}: {_words(made)}. {took} {state}."
    return f"{name} makes the first value that is not finite. {took} {state}; {_words(made)}."


def none_begins(records: int, known: int, suspect: int, *, lost: bool) -> str:
    """Return a sentence on a dump in which no origin was found: all of it is finite, or none of it can be checked.

    records: how many the dump has.
    known: how many of them have numbers to tell by.
    suspect: how many of them hold a value that is not finite, meant or not.
    lost: whether something is lost that may hold one.
    """
    if not records:
        return "No values were recorded, so none can be checked."
    if not known:
        how = "dump with summary_mode statistics, or md5"
        return f"The {records} records have no statistics, so none can be checked: {how}."
    unknown = ", but for what is lost" if lost else ""
    what = f" ({suspect} records hold infinities that were asked for, or what no call used)"
    return f"Every value that was recorded in {records} records is finite{what if suspect else ''}{unknown}."


def _words(values: Sequence[Value]) -> str:
    forms = [f"{v.tensor.get('dtype')}[{', '.join(map(str, v.tensor['shape']))}]" for v in values[:3]]
    shown = [f"{v.slot} {form} has {broken(v.tensor)}" for v, form in zip(values, forms, strict=False)]
    more = f", and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(shown) + more


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
