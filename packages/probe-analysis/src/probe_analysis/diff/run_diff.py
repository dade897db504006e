"""Compare one rank of one step with that of another dump, call by call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import evolve, frozen
from probe_format.errors import FormatError
from probe_format.names import with_direction
from probe_format.schema import Parts, only_views

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import GRADIENTS, Call, Progress, Run

from .call_diff import CallDiff, Comparison
from .causes import Causes
from .course import Course, other_functions
from .expected import expect
from .idle import idle_calls
from .likeness import no_causes, not_compared, recorded_otherwise, unlike, what_is_in
from .missing import MissingCall
from .moves import Moves
from .verdict import Verdict, also, verdict_of

#: Called with each call that is compared, its record's marks and what is in it: the first run's, then the second's.
Look = Callable[[Call, Any, Parts], None]


@frozen(eq=False, repr=False)
class RunDiff:
    """Hold how one rank of one step differs between two dumps.

    calls: every pair, in the order in which the first run completed them.
    notes: what was not compared, and why.
    """

    a: CompactRun
    b: CompactRun
    alignment: Alignment
    calls: tuple[CallDiff, ...]
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def amounts(self) -> str:
        """Return in words how many pairs were compared, how they were found, and how many are exactly the same."""
        wrappers = f", {len(self.alignment.wrappers)} of wrappers left out" if self.alignment.wrappers else ""
        exact = sum(call.exact for call in self.calls)
        matched = f"{_counted(self.calls)} matched ({self.alignment.how}{wrappers})"
        return f"{matched}; {exact} records are exactly the same"

    def __repr__(self) -> str:
        both = f"{self.a.label} with {self.b.label}"
        return f"<RunDiff of {both}: {self.verdict.state}, {len(self.calls)} pairs>"

    def first(self, *, backward: bool) -> CallDiff | None:
        """Return the first call with a cause of its own, in the forward or in the backward pass."""
        named = self.verdict.found  # a module with other parameters ends after the calls that use them
        if named is not None and named.cause is not None and named.pair.a.backward == backward:
            return named
        return next((c for c in self.calls if c.cause is not None and c.pair.a.backward == backward), None)

    @property
    def left(self) -> frozenset[int]:
        """Return the marks of what functions wrote in place and that differs: parameters and moments live on."""
        wrote = (x for x in self.calls if x.changed and x.pair.a.what.endswith("_") and not x.pair.a.backward)
        return frozenset(level.mark for each in wrote for _, level in each.levels("out"))

    def blamed(self) -> Iterator[tuple[str, str, Call | None]]:
        """Yield the cause of each call that has one, a sentence, and the call: the verdict's first."""
        verdict, first = self.verdict, self.verdict.found
        if verdict.state != "same":
            other = "earlier" if verdict.state == "different" else "rounding"
            cause = "only one run" if first is None else first.cause or other
            yield cause, verdict.sentence, verdict.call
        how = Comparison(self.a, self.b, load=False)
        for each in self.calls:
            if each.cause is not None and each is not first:
                yield each.cause, verdict_of(how, each), each.pair.a

    @property
    def alone(self) -> str:
        """Return in words the first call that only one of the runs has: what it wrote may be seen later. Else empty."""
        for which, calls in zip(("first", "second"), self.alignment.lone(self.a, self.b), strict=True):
            for call in calls:
                if call.kind in ("module", "api") and not call.backward:
                    return f" Before it, in {self.a.label}, {call.name} is called in the {which} run alone."
        return ""


def compare_runs(
    how: Comparison,
    alignment: Alignment,
    expected: tuple[float | None, Mapping[str, float]],
    earlier: Sequence[RunDiff],
    told: Progress | None,
    look: Look | None,
) -> RunDiff:
    """Compare two runs. expected: the last two arguments of `expect`. earlier: what was found in the steps before."""
    a, b = how.a, how.b
    calls = _compared(how, alignment, told, look)
    other = None if how.across else recorded_otherwise(a, b)
    others = frozenset[str]() if other is not None else other_functions(alignment, a, b)
    course, found = _judged(calls, others, how, expected, earlier)
    if any(only_views(each.pair.a.name) for each in found):
        idle = idle_calls(how, alignment.pairs)
        if any(each.pair.a.name in idle for each in found):
            calls = [
                CallDiff(x.pair) if x.pair.a.name in idle else evolve(x, cause=None, detail="") for x in calls
            ]
            course, found = _judged(calls, others, how, expected, earlier)
    missing = None
    if a.calls and b.calls and other is None and not how.across:
        missing = MissingCall(a, b, alignment, course, next(iter(found), None)).verdict()
    verdict = missing or _empty(a, b) or _verdict(how, calls, found, earlier)
    if verdict.state != "different" and unlike(how, alignment):
        why = "the two dumps have neither numbers nor checksums of one kind in common"
        raise FormatError(f"{a.label}: {why}. Dump both with the same summary_mode.")
    notes = *not_compared(how, calls, other, alignment.beyond(a, b)), *no_causes(course)
    return RunDiff(a, b, alignment, tuple(calls), verdict, notes)


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
    others: frozenset[str],
    how: Comparison,
    expected: tuple[float | None, Mapping[str, float]],
    earlier: Sequence[RunDiff],
) -> tuple[Course, list[CallDiff]]:
    """Return the calls in their order, and those with a cause, the first to be named first."""
    before = _before(how, earlier)
    course = Course(how.a, calls, how.told.levels, others, before.left if before is not None else frozenset())
    odd = expect(course, *expected)
    follows = any(run.verdict.state == "different" for run in earlier)
    moved = any(run.verdict.state != "same" for run in earlier)
    step = None if before is None else (Comparison(before.a, before.b, load=False), before.calls)
    moves = Moves(step, (how, calls))
    return course, Causes(course, odd, follows, _of_gradients(earlier), how.across, moved, moves).found()


def _before(how: Comparison, earlier: Sequence[RunDiff]) -> RunDiff | None:
    """Return the same rank of the step before."""
    return next((run for run in reversed(earlier) if run.a.rank.number == how.a.rank.number), None)


def _of_gradients(earlier: Sequence[RunDiff]) -> float:
    """Return the level at which the gradients of an earlier step were apart, in the median of those that were."""
    each = ([c.returned for c in run.calls if c.pair.a.kind in GRADIENTS and c.changed] for run in earlier)
    return max((median(levels) for levels in each if levels), default=0.0)


def _empty(a: Run, b: Run) -> Verdict | None:
    """Return the verdict on runs of which one has no records; None where both have."""
    if a.calls and b.calls:
        return None
    if not a.calls and not b.calls:
        return Verdict("same", "Nothing was recorded in either of the two.")
    which, other = ("first", "second") if a.calls else ("second", "first")
    count = f"{len(a.calls or b.calls)} records"
    return Verdict("different", f"Nothing was recorded in the {other} run; the {which} has {count}.")


def _verdict(
    how: Comparison, calls: Sequence[CallDiff], found: Sequence[CallDiff], earlier: Sequence[RunDiff]
) -> Verdict:
    """Return the verdict on two runs whose calls were all made by both. found: the calls with a cause."""
    if not found:
        return _without_cause(how, calls, earlier)
    first = found[0]
    sentence = verdict_of(how, first)
    if first.cause == "parameters":
        before = _before(how, earlier)
        if before is not None:
            look = "look at the optimizer's step, or at what runs between the steps"
            how_far = " within what rounding explains" if before.verdict.state == "within tolerance" else ""
            sentence += f" All of {before.a.label} agrees{how_far}: {look}."
    if first.cause in ("input", "parameters") and not first.pair.a.backward:
        sentence += next((run.alone for run in earlier if run.alone), "")
    return Verdict("different", sentence + also(found), first.pair.a, first, first.pair.a.order)


def _without_cause(how: Comparison, calls: Sequence[CallDiff], earlier: Sequence[RunDiff]) -> Verdict:
    inexact = next((c for c in calls if c.differs), None)
    if inexact is None:
        return Verdict("same", f"All {_counted(calls)} are the same in both, as far as they were recorded.")
    call = inexact.pair.a
    before = next((run for run in reversed(earlier) if run.verdict.state == "different"), None)
    if before is not None:
        sentence = f"Numbers differ from {call.name} on, as {before.a.label} differs before it."
        return Verdict("different", sentence, call, inexact, call.order)
    most = f"All {_counted(calls)} are the same within what rounding explains."
    sentence = f"{most} {verdict_of(how, inexact, 'within tolerance')}"
    return Verdict("within tolerance", sentence, call, inexact, call.order)


def _counted(found: Sequence[CallDiff]) -> str:
    """Return in words how many records there are, and of how many calls: of most a forward and a backward one."""
    both = (d.pair.a for d in found if d.pair.a.kind in ("module", "api"))
    calls = {with_direction(call.name, "forward") if call.backward else call.name for call in both}
    if len(calls) == len(found):
        return f"{len(calls)} calls"
    return f"{len(found)} records" + (f" of {len(calls)} calls" if calls else "")
