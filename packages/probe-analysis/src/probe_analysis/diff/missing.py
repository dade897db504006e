"""Find the first call that only one of two runs has and that may be why they differ, and make the verdict on it."""

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen
from probe_format.names import with_direction

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import GRADIENTS, Call, Run

from .call_diff import CallDiff
from .course import Course
from .verdict import Verdict


@frozen(eq=False)
class _Lone:
    """Hold a call that only one run has.

    place: in the order of the first run.
    run, there: the run that has it, and the other.
    which, other: these in words.
    """

    place: float
    call: Call
    run: Run
    there: Run
    which: str
    other: str

    def verdict(self, sentence: str, call: Call | None = None) -> Verdict:
        return Verdict("different", sentence, call or self.call, place=self.place)


def _lone_calls(
    found: Alignment, a: CompactRun, b: CompactRun, lone: Iterable[Sequence[Call]]
) -> Iterator[_Lone]:
    orders = sorted((pair.b.order, pair.a.order) for pair in found.pairs)
    only_a, only_b = lone
    for call in only_a:
        yield _Lone(call.order, call, a, b, "first", "second")
    for call in only_b:
        at = bisect.bisect_left(orders, (call.order,))
        yield _Lone(orders[at][1] - 0.5 if at < len(orders) else math.inf, call, b, a, "second", "first")


@frozen(eq=False)
class MissingCall:
    """Look for the call that explains the difference.

    lone: as `Alignment.lone` says. first: the first call with a cause; None without one.
    """

    a: CompactRun
    b: CompactRun
    alignment: Alignment
    lone: Iterable[Sequence[Call]]
    course: Course
    first: CallDiff | None

    def verdict(self) -> Verdict | None:
        """Return the verdict on the call that comes before the first other difference and explains it; else None."""
        limit = math.inf if self.first is None else self.first.pair.a.order
        lone = [*_lone_calls(self.alignment, self.a, self.b, self.lone)]
        if not lone:
            return None
        alone = {id(each.call) for each in lone}
        both = [call for pair in self.alignment.pairs for call in (pair.a, pair.b)]
        modules = {(id(call.rank), call.path) for call in both if call.kind == "module"}
        paired = {id(call) for call in both}
        near = (each for each in sorted(lone, key=lambda each: each.place) if each.place <= limit)
        verdicts = (self._of(each, alone, paired, modules) for each in near if self._explains(each))
        return next((each for each in verdicts if each is not None), None)

    def _of(
        self, each: _Lone, alone: set[int], paired: set[int], modules: set[tuple[int, str]]
    ) -> Verdict | None:
        """Return the verdict on one call; None where it is no finding."""
        call = each.call
        if call.backward and call.kind in ("module", "api"):
            forward = each.run.by_name.get(with_direction(call.name, "forward"))
            if forward is not None and id(forward) in paired:
                return each.verdict(_no_gradient(each, forward))
            return (
                self._alone(each, forward, alone) if forward is not None and self._takes_gradients else None
            )
        if call.kind in GRADIENTS and (id(call.rank), call.path) in modules:
            return each.verdict(f"{call.name} has gradients in the {each.which} run alone.")
        return self._alone(each, call, alone) if self._in_forward else None

    @property
    def _in_forward(self) -> bool:
        first = self.first
        return first is not None and not first.pair.a.backward and first.cause in ("input", "output")

    @property
    def _takes_gradients(self) -> bool:
        """Return whether a difference came with a gradient, which may be that of a call that only one run has."""
        first = self.first
        if first is None or not first.pair.a.backward:
            return False
        return first.cause == "input" or first.pair.a.kind in GRADIENTS

    def _explains(self, each: _Lone) -> bool:
        """Return whether a call that only one run has may be the cause of the first difference.

        Not where most modules like the one around it call other functions: that is another implementation.
        """
        call, first = each.call, self.first
        if call.kind not in ("module", "api"):
            return True
        parent, module = call.parent, call.kind == "module"
        if each.run is self.b:
            parent = next((pair.a.name for pair in self.alignment.pairs if pair.b.name == parent), parent)
        if parent is None or parent not in self.course.named:
            return first is None or module or first.cause == "input" or first.pair.a.kind != "module"
        if self.course.usual(parent):
            return False
        if first is None or module:
            return module
        around = set[str]()  # the modules whose own code may make the difference
        if first.cause != "input":
            around.add(first.pair.a.name)
        if first.cause == "input" or first.pair.a.kind == "api":
            around.add(self.course.around(first.pair.a) or "")
        return parent in around | {with_direction(name, "forward") for name in around if "." in name}

    def _alone(self, each: _Lone, call: Call, alone: set[int]) -> Verdict:
        """Return the verdict on a call, or on the outermost module around it that only one run has as well."""
        for name in call.modules:
            around = each.run.by_name.get(name)
            if around is None or id(around) not in alone:
                break
            call = around
        assert self.first is not None
        after = f"the first number that differs after it is in {self.first.pair.a.name}"
        return each.verdict(f"{call.name} is called in the {each.which} run alone; {after}.", call)


def _no_gradient(each: _Lone, forward: Call) -> str:
    said = f"No gradient comes to {forward.name} in the {each.other} run; in the {each.which} one it does."
    if not any(call.backward for call in each.there.calls):
        said += " It has no backward records at all: no backward pass, or data_mode left them out."
    return said
