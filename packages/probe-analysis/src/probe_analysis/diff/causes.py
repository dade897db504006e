"""Find the calls where a difference between two runs begins, rather than follows from other calls, and note why.

Parameters are looked at first, then what is odd in form (a dtype, an argument), then numbers: forward, backward,
gradients of parameters. Modules are judged first; functions tell where inside of a module it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from attrs import frozen
from probe_format.names import with_direction

from probe_analysis.calls.run import GRADIENTS
from probe_analysis.compare.distance import ArgumentDifference
from probe_analysis.compare.estimates import beyond
from probe_analysis.compare.level import CONVERTED, PARAMETER, ROUNDINGS, STEPPED

from .call_diff import CallDiff, Cause, ValueDiff
from .course import Course
from .form import ALMOST, OddForms
from .moves import Moves, Name
from .rounding import score

_NEAR = 6
"""A difference beyond the limit may have begun up to so many calls before, where it exceeded `ALMOST` of it."""


Scored = tuple[int, float, Cause, CallDiff]
"""The number of a call, the share of its limit that its inputs, or results, have, which of the two, and the call."""


@frozen
class Blame:
    """Hold a call that may have a cause.

    what: what is different, where that is not the value that is the farthest apart: an argument, a value, or the call
        inside that gets it.
    """

    call: CallDiff
    cause: Cause
    what: ArgumentDifference | ValueDiff | CallDiff | None = None

    @property
    def follows(self) -> bool:
        """Return whether the difference may follow from another one."""
        return self.cause not in ("parameters", "arguments") and bool(self.call.levels("in"))

    def note(self) -> CallDiff:
        """Write the cause down at the call."""
        self.call.cause = self.cause
        if isinstance(self.what, CallDiff):
            worst = self.what.worst("in")
            words = "" if worst is None else f": {worst.slot} {worst.distance.what}"
            self.call.detail = f"what its own code gives to {self.what.pair.a.name} does not{words}"
        elif isinstance(self.what, ValueDiff):
            self.call.detail = f"{self.what.slot} {self.what.distance.what}"
        elif self.what is not None:
            self.call.arguments = (self.what, *(x for x in self.call.arguments if x is not self.what))
        return self.call


@frozen(slots=False, eq=False)
class Causes:
    """Find the causes of the differences between two runs.

    odd: the calls that made different numbers from equal ones, though calls like them made equal numbers.
    follows: whether an earlier step has a cause, so that what comes in may differ because of that.
    brought: the level at which gradients were apart in earlier steps: weights may be as far apart.
    moved: whether anything was apart in earlier steps: buffers that they wrote may be too.
    moves: how far the step before may have brought each parameter apart.
    """

    course: Course
    odd: Sequence[CallDiff]
    follows: bool
    brought: float
    across: bool
    moved: bool
    moves: Moves

    def found(self) -> list[CallDiff]:
        """Return the calls with a cause, each with it noted: the one to name, and those that cannot follow from it."""
        blamed: dict[int, Blame] = {}
        for each in self._blamed():
            blamed.setdefault(id(each.call), each)
        found: list[CallDiff] = []
        around: set[str] = set()
        for each in blamed.values():
            follows = each.follows or (each.cause == "output" and each.call.pair.a.name in around)
            if not found or not follows:
                found.append(each.note())
                around.update(self.course.modules(each.call.pair.a))
        return found

    def _blamed(self) -> Iterator[Blame]:
        """Yield the calls that may have a cause, in the order in which they should be looked at."""
        if not self.follows:
            yield from self._parameters()
            yield from self._buffers()
        forms = OddForms(self.course, self.odd, self.follows, self.across).found()
        yield from sorted((Blame(*each) for each in forms), key=lambda each: each.call.pair.a.backward)
        counted = (each for each in self.odd if self.course.around(each.pair.a) not in self.course.others)
        first = min(counted, key=lambda each: each.pair.a.backward, default=None)
        numbers = [self._by_parameter(each) for each in self._numbers()]
        if first is not None and not self.follows:
            inside = (first.pair.a.name in self.course.modules(each.call.pair.a) for each in numbers[:1])
            if not any(inside):  # else the numbers say which call inside of a module it is
                yield self._own(first)
        yield from numbers

    @cached_property
    def _all_moved(self) -> bool:
        """Return whether most modules have parameters that are farther apart than the gradients of earlier steps."""
        levels = (each.levels("parameter") for each in self.course.units if not each.pair.a.backward)
        worst = [max(level.largest for _, level in found) for found in levels if found]
        return 2 * sum(each > max(PARAMETER, self.brought) for each in worst) >= len(worst)

    def _stepped(self, name: Name) -> float:
        """Return the level of a parameter that follows from the gradients of earlier steps."""
        if not self.brought or self._all_moved:
            return self.brought
        return max(self.brought, STEPPED, self.moves.reach.get(name, 0.0))

    def _parameters(self) -> Iterator[Blame]:
        """Yield the modules that have other parameters, or buffers."""
        for each in self.course.units:
            for slot, level in () if each.pair.a.backward or not each.changed else each.levels("parameter"):
                if slot.startswith("buffers.") and (self.moved or each.pair.a.count):
                    continue  # an earlier call may have written it
                form = next(v for v in each.values if v.slot == slot).distance.form
                limit = CONVERTED * each.floor / ROUNDINGS if form else PARAMETER
                name = each.pair.a.path, slot.partition(".")[2]
                if level.largest > max(limit, self._stepped(name)) or self.moves.rates.get(name, 0.0) > 1.0:
                    yield Blame(each, "parameters")
                    break

    def _buffers(self) -> Iterator[Blame]:
        """Yield the functions that get another buffer, or, where no module is recorded, another parameter."""
        for each in self.course.calls:
            call = each.pair.a
            if not each.changed or call.kind != "api" or call.backward:
                continue
            roles = {slot: call.role(slot) for slot, *_ in self.course.run.form(call).tensors}
            if self.course.around(call) is not None:  # its parameters are the module's
                roles = {slot: x for slot, x in roles.items() if x in ("running_mean", "running_var")}
            for slot, level in each.levels("in") if any(roles.values()) else ():
                role = roles.get(slot)
                apart = role and level.largest > max(PARAMETER, self._stepped((call.path, role)))
                if apart and level.mark not in self.course.made:
                    yield Blame(each, "input")

    def _scored(self) -> list[Scored]:
        """Return the calls that are almost beyond their limit, or beyond it, those of the forward pass first."""
        found: list[Scored] = []
        units = self.course.units
        gradients = ((n, x) for n, x in enumerate(units) if x.pair.a.kind in GRADIENTS)
        marks = {n: self.course.levels.mark[self.course.rows(x, "out")].tolist() for n, x in gradients}
        last = {mark: n for n, its in marks.items() for mark in its}
        for n, each in enumerate(units):
            if n in marks:  # a tied weight's gradient is complete with the last of its modules
                n = max((last[mark] for mark in marks[n]), default=n)
            followed = self.follows and each.pair.a.kind in GRADIENTS
            causes: tuple[Cause, ...] = ("output",) if self.follows else ("input", "output")
            for cause in causes if each.changed and not followed else ():
                own = each.given if cause == "input" else each.made
                if own / each.limit > ALMOST and (share := score(self.course, each, cause)) > ALMOST:
                    found.append((n, share, cause, each))
        return sorted(found, key=lambda x: (x[3].pair.a.backward, x[0]))

    def _numbers(self) -> Iterator[Blame]:
        """Yield the calls whose numbers are farther apart than follows from what they got."""
        found = self._scored()
        beyond = [i for i, x in enumerate(found) if x[1] > 1.0]
        if not beyond:
            return
        at = found[beyond[0]]
        if at[3].pair.a.backward:
            yield from self._forward_of(at, found)
        for earlier in reversed(found[: beyond[0]]):  # it may have begun before it was that large
            if earlier[3].pair.a.backward == at[3].pair.a.backward and at[0] - earlier[0] <= _NEAR:
                at = earlier
        for _, share, cause, each in (at, *(found[i] for i in beyond if found[i] is not at)):
            yield self._own(each) if cause == "output" else self._placed(share, each)

    def _forward_of(self, at: Scored, found: Sequence[Scored]) -> Iterator[Blame]:
        """Blame the module around a call in the backward pass whose forward pass was almost beyond the limit too."""
        around = with_direction(self.course.around(at[3].pair.a) or "", "forward")
        first = next((x[3] for x in found if self.course.around(x[3].pair.a) == around), None)
        if first is not None and not first.pair.a.backward and self._alike(first) == 1:
            module = self.course.named[around]
            yield self._within(module) or Blame(module, "output", first)

    def _by_parameter(self, blame: Blame) -> Blame:
        """Blame instead the parameter in a call that is farther apart than what an earlier step explains."""
        forward = self.brought and not self.follows and not blame.call.pair.a.backward
        name, limit = blame.call.pair.a.name, max(PARAMETER, self.brought)
        for each in self.course.units if forward else ():
            apart = any(level.largest > limit for _, level in each.levels("parameter"))
            if apart and name in (each.pair.a.name, *self.course.modules(each.pair.a)):
                return Blame(each, "parameters")
        return blame

    def _placed(self, share: float, each: CallDiff) -> Blame:
        """Blame the code around a call that got what no recorded call made. share: of its limit."""
        outer = each
        while True:
            around = self.course.around(outer.pair.a)
            if around is None:
                return Blame(outer, "input")
            parent = self.course.named[around]
            largest = max((beyond(x.norm, x.rest, each.entry) for _, x in parent.levels("in")), default=0.0)
            if max(largest, parent.given) / each.limit < min(share, 3.0) / 3.0:
                break
            outer = parent
        listed = self.course.around(parent.pair.a) is None or self._alike(outer) > 1
        return self._within(parent) or (Blame(outer, "input") if listed else Blame(parent, "output", outer))

    def _alike(self, each: CallDiff) -> int:
        """Return how many calls in the module around a call are like it, itself included; several are layers."""
        around = self.course.around(each.pair.a)
        return sum(self.course.around(x.pair.a) == around for x in self.course.siblings(each))

    def _own(self, each: CallDiff) -> Blame:
        """Blame a call that makes a difference or, where it is a module, the function in its own code that does."""
        inside = self.course.parts.get(each.pair.a.name, ())
        handed = next((x for x in inside if x.changed and score(self.course, x, "input") > 1.0), None)
        return self._within(each) or Blame(each, "output", handed)

    def _within(self, module: CallDiff) -> Blame | None:
        """Blame the function of a module's own code that differs first; None where none tells."""
        name, back = module.pair.a.name, module.pair.a.backward
        if with_direction(name, "forward") in self.course.others or module.pair.a.kind != "module":
            return None
        exact = not module.levels("in", "parameter")
        for each in self.course.inside.get(name, ()):
            if not each.changed or each.pair.a.backward != back:
                continue
            if score(self.course, each, "input") > 1.0:
                return Blame(each, "input")
            untouched = exact and not each.levels("in")
            if (untouched and each.levels("out")) or score(self.course, each, "output") > 1.0:
                return Blame(each, "output")
        return None
