"""Find calls where an argument, dtype or shape differs between two runs, but not in the same call of other layers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from attrs import frozen
from probe_format.schema import Side

from probe_analysis.compare.distance import ArgumentDifference

from .call_diff import CallDiff, Cause, ValueDiff
from .course import Course
from .rounding import score

ALMOST = 0.7
"""The share of its limit from which on a difference in numbers confirms another cause."""

#: Where a form differs -> the cause.
_CAUSES: Mapping[Side, Cause] = {"in": "input", "parameter": "parameters", "out": "output"}

What = ArgumentDifference | ValueDiff


@frozen(eq=False)
class OddForms:
    """Look at the forms of the calls of two runs. odd, follows, across: as in `Causes`, and `Comparison`."""

    course: Course
    odd: Sequence[CallDiff]
    follows: bool
    across: bool

    def found(self) -> Iterator[tuple[CallDiff, Cause, What]]:
        """Yield each call where an argument or form differs, not so in most siblings, its cause, and what differs."""
        different = [(each, slots) for each in self.course.calls if (slots := self._different(each))]
        several = self._several(different)
        mixed = any(several.values())
        for each, slots in different:
            call = each.pair.a
            other = call.kind == "api" and self.course.around(call) in self.course.others
            for slot, what in slots.items():
                if other and (isinstance(what, ValueDiff) or several.get((each, slot)) is not False):
                    continue  # another implementation calls functions with other arguments, in each layer
                if mixed and isinstance(what, ValueDiff) and (what.side == "in" or call.backward):
                    continue  # runs of two dtypes: an input has it of the call before, a gradient of its tensor
                if several.get((each, slot)) is False or self._counts(each, what, mixed=mixed):
                    yield each, _CAUSES[what.side] if isinstance(what, ValueDiff) else "arguments", what
                    break

    def _several(
        self, different: Sequence[tuple[CallDiff, Mapping[str, What]]]
    ) -> Mapping[tuple[CallDiff, str], bool]:
        """Return for each difference of a call with siblings whether most siblings have the same difference.

        It also counts where most modules alike have it in any call of the function: some call the function once more.
        """
        alike = Counter((self.course.key(each), slot) for each, slots in different for slot in slots)
        places = {
            (self.course.key(each).rpartition("|")[0], _words(what), self.course.around(each.pair.a))
            for each, slots in different
            for what in slots.values()
            if each.pair.a.kind == "api"
        }
        modules = Counter(place[:2] for place in places)
        return {
            (each, slot): 2 * max(alike[key, slot], modules[key.rpartition("|")[0], _words(what)]) >= count
            for each, slots in different
            if (count := len(self.course.siblings(each))) > 2
            for key in [self.course.key(each)]
            for slot, what in slots.items()
        }

    def _different(self, each: CallDiff) -> Mapping[str, What]:
        """Return slot -> the argument or form that differs; nothing of a module that is another implementation."""
        call = each.pair.a
        if not (each.arguments or each.forms) or (call.kind != "api" and self.course.usual(call.name)):
            return {}
        found: dict[str, What] = {x.slot: x for x in each.arguments if not x.of_setting}
        forms = [v for v in each.forms if v.level is None or v.level.largest < math.inf]
        # A gradient that only one run passes on is missing in a call that comes later.
        sides = ("in",) if call.backward else ("in", "out")
        idle = self._idle(each, {v.slot for v in forms if v.side in sides and v.is_lone})
        return found if self.across else found | {v.slot: v for v in forms if v.slot not in idle}

    def _idle(self, each: CallDiff, lone: Set[str]) -> Set[str]:
        """Return the slots of ``lone`` that do not matter, as only another implementation takes or returns them.

        These are all of ``lone`` where the results that both runs return agree, and else none.
        """
        if not lone or score(self.course, each, "output") > 1.0:
            return frozenset()
        made = (value.slot for value in self.course.run.read(each.pair.a).side("out"))
        return lone if any(slot not in lone for slot in made) else frozenset()

    def _counts(self, each: CallDiff, what: What, *, mixed: bool) -> bool:
        """Return whether a difference is a cause, where no siblings tell whether it should be there.

        mixed: whether something differs in most calls alike, which is how the runs were set up.
        """
        if isinstance(what, ValueDiff):
            return not mixed and not self.course.others and not (self.follows and what.side != "out")
        if each.forms:
            return False
        plain = not what.a or not what.b or all(x.lstrip("-").isdigit() for x in (what.a, what.b))
        return not plain or each in self.odd or score(self.course, each, "output") > ALMOST


def _words(what: What) -> str:
    """Return what is different, without the numbers of a value."""
    if isinstance(what, ArgumentDifference):
        return str(what)
    return f"{what.slot} {what.distance.what.partition(',')[0]}"
