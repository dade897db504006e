"""Find the first call, over all ranks, that returns NaN or infinity where it got and was asked for none.

The rule itself is probe-format's (spec/statistics.md, What is not finite), so that ``probe show --bad`` names the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import field, frozen
from probe_format.jsonio import number
from probe_format.read import Suspect, begins, none_begins, origins
from probe_format.schema import Value

from probe_analysis.calls.run import AtCall, Call, Run, Source, runs_of
from probe_analysis.frame import Framed, frame_of

from .watch import Risk, Watch


@frozen(eq=False)
class Finding(AtCall):
    """Hold a call with values that are not finite, and that it was not asked for.

    run: the rank and step of the call.
    call: the call.
    given: those of its inputs and parameters that are not finite.
    made: those of its results.
    outside: whether it got what no recorded call made, and makes nothing of another kind; then it is the outermost
        call that got it.
    before: the calls completed before it in its rank, the last one last.
    order: how many calls were completed in its rank before the first with such a value: itself, or one inside of it.
    """

    run: Run
    call: Call
    given: tuple[Value, ...]
    made: tuple[Value, ...]
    outside: bool
    before: tuple[Call, ...] = field(repr=False)
    order: int

    @property
    def led(self) -> list[tuple[Call, str]]:
        """Return the calls before it, with the range of what they returned in words."""
        return [(call, ", ".join(map(_range, call.read().side("out")[:3]))) for call in self.before]

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        lost = self.run.rank.lost.given(self.call.name)
        return begins(self.call.name, self.given, self.made, self.outside, lost)


@frozen(eq=False, repr=False)
class NonFinite(Framed):
    """Hold what is not finite in a dump.

    first: where it begins; None when every number is finite, or meant to be infinite (a mask).
    forward, backward: where it begins in either pass, of the step of the first.
    counts: label of a run -> how many of its records hold a value that is not finite, meant or not.
    risks: values close to the largest or the smallest that their dtype can hold, the closest first.
    calls: how many records were read.
    known: how many of them have numbers to tell by; checksums alone say nothing.
    lost: of each run that has it, what is lost and may hold such a value.
    """

    first: Finding | None
    forward: Finding | None
    backward: Finding | None
    counts: dict[str, int]
    risks: tuple[Risk, ...]
    calls: int
    known: int = 0
    lost: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the finding in words, or that there is none."""
        if self.first is not None:
            return self.first.sentence
        return none_begins(self.calls, self.known, sum(self.counts.values()), lost=bool(self.lost))

    def frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each finding and each risk: what, run, call, line, sentence."""
        found = ("first in forward", self.forward), ("first in backward", self.backward)
        rows = [(what, f.run.label, f.call.name, f.line, f.sentence) for what, f in found if f is not None]
        rows += [(r.kind, r.run.label, r.call.name, "", r.sentence) for r in self.risks]
        return frame_of("what run call line sentence", rows)


def first_non_finite(
    dump: Source, *, step: int | None = None, rank: int | None = None, before: int = 20, factor: float = 8.0
) -> NonFinite:
    """Return where a dump stops being finite.

    step, rank: only these; None for all. The first step with such a value decides; within it the rank in which the
        fewest calls come before it.
    before: how many calls that led there are kept.
    factor: how close to the limits of its dtype a value is a risk.
    Raises FormatError when the dump cannot be read.
    """
    watches = []
    for run in runs_of(dump, step=step, rank=rank):
        watch = Watch(run, factor)
        for call in run.calls:
            watch.look(call, call.read())
        watches.append(watch)
    return non_finite_in(watches, before=before)


def non_finite_in(watches: Iterable[Watch], *, before: int = 20) -> NonFinite:
    """Return where a dump stops being finite, of which all calls were looked at.

    watches: of each of its runs.
    before: as in `first_non_finite`.
    """
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    risks: list[Risk] = []
    lost: list[str] = []
    calls = known = 0
    for watch in watches:
        if what := watch.run.rank.lost:
            lost.append(f"{watch.run.label}: {what}")
        calls += watch.calls
        known += watch.known
        risks += watch.risks
        suspects = watch.suspects
        findings += _firsts(watch.run, suspects, before)
        if suspects:
            counts[watch.run.label] = len(suspects)
    first = min(findings, key=lambda f: (f.run.rank.step or 0, f.order), default=None)
    in_step = [f for f in findings if first is not None and f.run.rank.step == first.run.rank.step]
    risks.sort(key=lambda risk: risk.distance)
    passes = ((f for f in in_step if f.call.backward == side) for side in (False, True))
    forward, backward = (min(found, key=lambda f: f.order, default=None) for found in passes)
    return NonFinite(first, forward, backward, counts, tuple(risks), calls, known, tuple(lost))


def _firsts(run: Run, suspects: Sequence[Suspect], before: int) -> list[Finding]:
    """Return the first finding of each pass in one run."""
    found: dict[bool, Finding] = {}
    for origin in origins(run.rank, suspects):
        call, order = run.by_name[origin.name], origin.at.order
        if call.backward not in found:
            led = run.calls[max(0, order - before) : order]
            found[call.backward] = Finding(run, call, origin.given, origin.made, origin.outside, led, order)
            if len(found) == 2:
                break
    return list(found.values())


def _range(value: Value) -> str:
    ends = (number(value.tensor.get(key)) for key in ("Min", "Max"))
    return f"{value.slot} [{', '.join(f'{x:.6g}' if isinstance(x, float) else str(x) for x in ends)}]"
