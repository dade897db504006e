"""Compare one rank of one step of two dumps, call by call: the verdict, the calls to blame, what was not compared."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

from attrs import evolve, frozen
from probe_format.errors import FormatError
from probe_format.names import with_direction
from probe_format.schema import Parts, only_views

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.run import GRADIENTS, Call, Progress, Run

from .call_diff import CAUSES, CallDiff, Comparison
from .causes import Causes
from .comparability import no_causes, not_compared, recorded_otherwise, unlike, what_is_in
from .course import Course, other_functions
from .earlier import Earlier
from .missing import MissingCall
from .moves import Moves
from .pairing import Pairing
from .rounding import expect
from .unused_memory import idle_calls
from .verdict import Verdict, also, verdict_of

#: Called with each call that is compared, its record's marks and what is in it: the first run's, then the second's.
Look = Callable[[Call, Any, Parts], None]


class Blamed(NamedTuple):
    """Hold what is blamed: the cause in a word or two, a sentence, and the call; None where no call is to blame."""

    cause: str
    sentence: str
    call: Call | None


@frozen(slots=False, eq=False, repr=False)
class RunDiff:
    """Hold how one rank of one step differs between two dumps, in little memory.

    blamed: the cause of each call that has one: the verdict's first.
    notes: what was not compared, and why.
    amounts: in words how many pairs were compared, how they were found, and how many are exactly the same.
    pairs, changed: how many pairs there are, and how many of them are not exactly the same.
    lone: the names of the records that only the first run has, and of those that only the second has.
    gradients: the median of the levels at which gradients of parameters differ; 0 where none do.
    left: the marks of tensors that functions wrote in place and that differ: parameters and moments live on.
    alone: in words the first call that only one of the runs has: what it wrote may be seen later. Else empty.
    cells: of each pair the row, as spec/results.md has it; None where that was not asked for.
    """

    pairing: Pairing
    earlier: Earlier
    verdict: Verdict
    blamed: tuple[Blamed, ...]
    notes: tuple[str, ...]
    amounts: str
    pairs: int
    changed: int
    lone: tuple[Sequence[str], Sequence[str]]
    gradients: float
    left: frozenset[int]
    alone: str
    cells: tuple[tuple[Any, ...], ...] | None

    @property
    def a(self) -> Run:
        return self.pairing.a

    @property
    def b(self) -> Run:
        return self.pairing.b

    @cached_property
    def calls(self) -> tuple[CallDiff, ...]:
        """Return every pair, in the order in which the first run completed them: compared again, if need be."""
        return compare_runs(RankStep(self.pairing, self.earlier, keep=True)).calls

    @property
    def alignment(self) -> Alignment:
        return self.pairing.aligned.alignment

    def __repr__(self) -> str:
        both = f"{self.a.label} with {self.b.label}"
        return f"<RunDiff of {both}: {self.verdict.state}, {self.pairs} pairs>"

    def first(self, *, backward: bool) -> Blamed | None:
        """Return the first call with a cause of its own, in the forward or in the backward pass."""
        caused = (x for x in self.blamed if x.cause in CAUSES)
        return next((x for x in caused if x.call and x.call.backward == backward), None)

    def each(self) -> Iterator[CallDiff]:
        """Yield every pair. Where they are compared again for that, they do not stay in memory."""
        again = "calls" not in vars(self)
        try:
            yield from self.calls
        finally:
            if again:
                self.forget()

    def rows(self) -> Iterable[tuple[Any, ...]]:
        """Return the row of each pair."""
        return (call.cells for call in self.each()) if self.cells is None else self.cells

    def forget(self) -> None:
        """Let go of what was read. It is read and compared again when it is asked for."""
        vars(self).pop("calls", None)
        self.pairing.forget()
        self.earlier.forget()


@frozen(eq=False)
class RankStep:
    """Hold one rank of a step, before it is compared. keep: whether all of the comparison stays in memory."""

    pairing: Pairing
    earlier: Earlier
    keep: bool = False

    @property
    def label(self) -> str:
        return self.pairing.label

    def forget(self) -> None:
        """Let go of what was read, but where it is to stay."""
        if not self.keep:
            self.pairing.forget()
            self.earlier.forget()


def compare_runs(of: RankStep, told: Progress | None = None, look: Look | None = None) -> RunDiff:
    """Compare two runs. Raises FormatError where they cannot be read, or have nothing in common."""
    earlier, both = of.earlier, of.pairing.aligned
    a, b, alignment = both.a, both.b, both.alignment
    how = Comparison(a, b, of.pairing.options.load)
    every, lone = _compared(how, alignment, told, look), alignment.lone(a, b)
    other = None if how.across else recorded_otherwise(a, b)
    others = frozenset[str]() if other is not None else other_functions(alignment, lone)
    expected = of.pairing.options.tolerance, both.floors
    course, found = _judged(every, alignment, others, how, expected, earlier)
    calls, missing = course.calls, None
    if a.calls and b.calls and other is None and not how.across:
        missing = MissingCall(a, b, alignment, lone, course, next(iter(found), None)).verdict()
    verdict = missing or _empty(a, b) or _verdict(how, calls, found, earlier)
    if verdict.state != "different" and unlike(how, alignment):
        why = "the two dumps have neither numbers nor checksums of one kind in common"
        raise FormatError(f"{a.label}: {why}. Dump both with the same summary_mode.")
    exact = sum(call.exact for call in calls)
    wrappers = f", {len(alignment.wrappers)} of wrappers left out" if alignment.wrappers else ""
    run = RunDiff(
        of.pairing,
        earlier,
        verdict,
        tuple(_blamed(how, calls, verdict)),
        (*not_compared(how, calls, other, alignment.beyond(a, b)), *no_causes(course)),
        f"{_counted(calls)} matched ({alignment.how}{wrappers}); {exact} records are exactly the same",
        len(calls),
        len(calls) - exact,
        ([call.name for call in alignment.only_a], [call.name for call in alignment.only_b]),
        _of_gradients(calls),
        _left(calls),
        _alone(a.label, lone),
        tuple(call.cells for call in calls) if of.pairing.options.rows else None,
    )
    if of.keep:
        vars(run)["calls"] = tuple(calls)
    return run


def _compared(
    how: Comparison, alignment: Alignment, told: Progress | None, look: Look | None
) -> list[CallDiff]:
    """Return how the calls of each pair differ. Raises FormatError where there are none."""
    a, b = how.a, how.b
    if a.calls and b.calls and not alignment.pairs:
        what = f"{what_is_in(a)} against {what_is_in(b)}"
        raise FormatError(f"{a.label} and {b.label} have no call in common: {what}.")
    calls: list[CallDiff] = []
    for each in how.each(alignment.pairs):
        calls.append(each)
        pair = each.pair
        if look is not None:
            for run, call in ((a, pair.a), (b, pair.b)):
                look(call, run.form(call).marks, run.read(call))
        if told is not None and len(calls) % 256 == 0:
            told(a.label, len(calls), len(alignment.pairs))
    return calls


def _judged(
    calls: Sequence[CallDiff],
    alignment: Alignment,
    others: frozenset[str],
    how: Comparison,
    expected: tuple[float | None, Mapping[str, float]],
    earlier: Earlier,
    *,
    with_idle: bool = True,
) -> tuple[Course, list[CallDiff]]:
    """Return the calls in their order, and those with a cause, the first to be named first.

    expected: the last two arguments of `expect`.
    with_idle: whether differences of calls that do nothing count. They don't where one of them would be named.
    """
    course = Course(how.a, calls, how.told.levels, others, earlier.left)
    odd = expect(course, *expected)
    follows, moved = earlier.state == "different", earlier.state != "same"
    moves = Moves(earlier.before, how, calls)
    found = Causes(course, odd, follows, earlier.gradients, how.across, moved, moves).found()
    names = [each.pair.a.name for each in found]
    asked = with_idle and any(map(only_views, names))
    idle = idle_calls(how, alignment.pairs) if asked else frozenset[str]()
    if idle.isdisjoint(names):
        return course, found
    calls = [CallDiff(x.pair) if x.pair.a.name in idle else evolve(x, cause=None, detail="") for x in calls]
    return _judged(calls, alignment, others, how, expected, earlier, with_idle=False)


def _blamed(how: Comparison, calls: Sequence[CallDiff], verdict: Verdict) -> Iterator[Blamed]:
    if verdict.state != "same":
        yield Blamed(verdict.cause, verdict.sentence, verdict.call)
    for each in calls:
        if each.cause is not None and each.pair.a is not verdict.call:
            yield Blamed(each.cause, verdict_of(how, each), each.pair.a)


def _left(calls: Sequence[CallDiff]) -> frozenset[int]:
    wrote = (x for x in calls if x.changed and x.pair.a.what.endswith("_") and not x.pair.a.backward)
    return frozenset(level.mark for each in wrote for _, level in each.levels("out"))


def _alone(label: str, lone: Iterable[Sequence[Call]]) -> str:
    for which, calls in zip(("first", "second"), lone, strict=True):
        for call in calls:
            if call.kind in ("module", "api") and not call.backward:
                return f" Before it, in {label}, {call.name} is called in the {which} run alone."
    return ""


def _of_gradients(calls: Sequence[CallDiff]) -> float:
    levels = [x.returned for x in calls if x.pair.a.kind in GRADIENTS and x.changed]
    return median(levels) if levels else 0.0


def _empty(a: Run, b: Run) -> Verdict | None:
    """Return the verdict on runs of which one or both have no records; None where both have."""
    if a.calls and b.calls:
        return None
    if not a.calls and not b.calls:
        return Verdict("same", "Nothing was recorded in either of the two.")
    which, other = ("first", "second") if a.calls else ("second", "first")
    count = f"{len(a.calls or b.calls)} records"
    return Verdict("different", f"Nothing was recorded in the {other} run; the {which} has {count}.")


def _verdict(
    how: Comparison, calls: Sequence[CallDiff], found: Sequence[CallDiff], earlier: Earlier
) -> Verdict:
    """Return the verdict on two runs whose calls were all made by both. found: the calls with a cause."""
    if not found:
        return _without_cause(how, calls, earlier)
    first = found[0]
    sentence = verdict_of(how, first)
    if first.cause == "parameters" and earlier.before is not None:
        look = "look at the optimizer's step, or at what runs between the steps"
        how_far = " within what rounding explains" if earlier.agreed == "within tolerance" else ""
        sentence += f" All of {earlier.before.label} agrees{how_far}: {look}."
    if first.cause in ("input", "parameters") and not first.pair.a.backward:
        sentence += earlier.alone
    return Verdict("different", sentence + also(found), first.pair.a, str(first.cause), first.pair.a.order)


def _without_cause(how: Comparison, calls: Sequence[CallDiff], earlier: Earlier) -> Verdict:
    inexact = next((c for c in calls if c.differs), None)
    if inexact is None:
        return Verdict("same", f"All {_counted(calls)} are the same in both, as far as they were recorded.")
    call = inexact.pair.a
    if earlier.differs:
        sentence = f"Numbers differ from {call.name} on, as {earlier.differs} differs before it."
        return Verdict("different", sentence, call, "earlier", call.order)
    most = f"All {_counted(calls)} are the same within what rounding explains."
    sentence = f"{most} {verdict_of(how, inexact, 'within tolerance')}"
    return Verdict("within tolerance", sentence, call, "rounding", call.order)


def _counted(found: Sequence[CallDiff]) -> str:
    """Return in words how many records there are, and of how many calls: most have a forward and a backward one."""
    both = (d.pair.a for d in found if d.pair.a.kind in ("module", "api"))
    calls = {with_direction(call.name, "forward") if call.backward else call.name for call in both}
    if len(calls) == len(found):
        return f"{len(calls)} calls"
    return f"{len(found)} records" + (f" of {len(calls)} calls" if calls else "")
