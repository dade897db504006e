"""Find the first call, over all steps and ranks, where NaN or infinity begins that nobody asked for.

The call makes it, or gets it from outside of all recorded calls. The forward and the backward pass are each told,
with the calls that came before, and values close to overflow.

The rule itself is probe-format's (spec/statistics.md, What is not finite), so that ``probe show --bad`` names the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, field, frozen
from probe_format.jsonio import number
from probe_format.read import begins, none_begins, origins
from probe_format.schema import Value

from probe_analysis.calls.engine import Engine, in_process
from probe_analysis.calls.run import AtCall, Call, Progress, Run, Source, runs_of
from probe_analysis.calls.skipped import Skipped
from probe_analysis.result import Framed

from .lookout import Lookout, Risk

#: How many calls that led to a finding are kept.
BEFORE = 20


@frozen(eq=False)
class Finding(AtCall):
    """Hold a call with values that are not finite, and that it was not asked for.

    run: the rank and step of the call.
    call: the call.
    given: its inputs and parameters that are not finite.
    made: its results that are not finite.
    outside: whether the values came from outside: no recorded call made them, and this one, the outermost that got
        them, makes none of another kind.
    received: whether the values came from other ranks.
    most: how many of the calls before it are told.
    order: how many calls were completed in its rank before the first with such a value: itself, or one inside of it.
    others: what is to be added on the other ranks, where the values may have come from them.
    """

    run: Run
    call: Call
    given: tuple[Value, ...]
    made: tuple[Value, ...]
    outside: bool
    received: bool
    most: int
    order: int
    others: str = ""

    @property
    def before(self) -> tuple[Call, ...]:
        """Return the calls completed before it in its rank, the last one last."""
        return self.run.calls[max(0, self.order - self.most) : self.order]

    @property
    def led(self) -> list[tuple[Call, str]]:
        """Return the calls before it, with the range of what they returned in words."""
        return [(call, ", ".join(map(_range, call.read().side("out")[:3]))) for call in self.before]

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        lost = self.run.rank.lost.given(self.call.name)
        return begins(self.call.name, self.given, self.made, self.outside, lost) + self.others


@frozen(eq=False, repr=False)
class NonFinite(Framed):
    """Hold what is not finite in a dump.

    first: where it begins; None when every number is finite, or meant to be infinite (a mask).
    forward, backward: where it begins in either pass, of the step of the first.
    counts: label of a run -> how many of its records hold a value that is not finite, meant or not.
    risks: values close to the largest or the smallest that their dtype can hold, the closest first.
    calls: how many records were read.
    known: how many of them have numbers to tell by; checksums alone say nothing.
    notes: of each run that has it, what is lost and may hold such a value.
    skipped: the label of each run that cannot be read, and why.
    """

    first: Finding | None
    forward: Finding | None
    backward: Finding | None
    counts: dict[str, int]
    risks: tuple[Risk, ...]
    calls: int
    known: int = 0
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(factory=dict)
    columns = "what run call line sentence"

    @property
    def state(self) -> str:
        return "finite" if self.first is None else "not finite"

    @property
    def sentence(self) -> str:
        """Return the finding in words, or that there is none."""
        if self.first is not None:
            return self.first.sentence
        return none_begins(self.calls, self.known, sum(self.counts.values()), lost=bool(self.notes))

    def blamed(self) -> Iterator[tuple[str, str, Call]]:
        """Yield the first finding, and that of the other pass."""
        found = [("forward", self.forward), ("backward", self.backward)]
        for way, each in sorted(found, key=lambda x: x[1] is not self.first):
            if each is not None:
                yield way, each.sentence, each.call

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each finding and each risk."""
        for way, f in ("forward", self.forward), ("backward", self.backward):
            if f is not None:
                yield f"first in {way}", f.run.label, f.call.name, f.line, f.sentence
        for r in self.risks:
            yield r.kind, r.run.label, r.call.name, "", r.sentence


def first_non_finite(
    dump: Source,
    *,
    step: int | None = None,
    rank: int | None = None,
    before: int = BEFORE,
    factor: float = 8.0,
    engine: Engine = in_process,
    progress: Progress | None = None,
) -> NonFinite:
    """Return where a dump stops being finite.

    step, rank: only these; None for all. The first step with such a value decides; within it the rank in which the
        fewest calls come before it, and one that only receives such values after all others.
    before: how many calls that led there are kept.
    factor: a value is a risk where so many times its magnitude overflows its dtype.
    engine: what reads the ranks: `in_process`, `in_processes` or `on_dask`.
    progress: called with (label, runs read, runs in all).
    A rank that cannot be read is skipped, and noted. Raises FormatError when none can be read.
    """
    parts, skipped = [[each] for each in enumerate(runs_of(dump, step=step, rank=rank))], Skipped()
    read = [*skipped.read(partial(_read, before, factor), parts, engine, progress)]
    skipped.unless(read)
    return evolve(_united(read), skipped=skipped)


def non_finite_in(lookouts: Iterable[Lookout]) -> NonFinite:
    """Return where a dump stops being finite, of which all calls were looked at. lookouts: of each of its runs."""
    return _united([_found(lookout, BEFORE) for lookout in lookouts])


def _read(before: int, factor: float, run: Run, _: object) -> NonFinite:
    lookout = Lookout(run, factor)
    for call in run.calls:
        lookout.look(call, call.read())
    return _found(lookout, before)


def _found(lookout: Lookout, before: int) -> NonFinite:
    """Return what is not finite in a run of which all calls were looked at: the first of it in each pass."""
    run, suspects = lookout.run, lookout.suspects
    found: dict[bool, Finding] = {}
    for origin in origins(run.rank, suspects):
        call, order = run.by_name[origin.name], origin.at.order
        if call.backward not in found:
            source = origin.outside, origin.received
            found[call.backward] = Finding(run, call, origin.given, origin.made, *source, before, order)
            if len(found) == 2:
                break
    counts = {run.label: len(suspects)} if suspects else {}
    lost = (f"{run.label}: {run.rank.lost}",) if run.rank.lost else ()
    passes = next(iter(found.values()), None), found.get(False), found.get(True)
    return NonFinite(*passes, counts, tuple(lookout.risks), lookout.calls, lookout.known, lost)


def _united(read: Sequence[NonFinite]) -> NonFinite:
    """Return what is not finite in a dump. read: in each of its runs, in their order."""
    counts = {label: count for each in read for label, count in each.counts.items()}
    risks = sorted((risk for each in read for risk in each.risks), key=lambda risk: risk.distance)
    calls, known = sum(each.calls for each in read), sum(each.known for each in read)
    notes = tuple(note for each in read for note in each.notes)
    return NonFinite(*_firsts(read), counts, tuple(risks), calls, known, notes)


def _firsts(read: Sequence[NonFinite]) -> tuple[Finding | None, Finding | None, Finding | None]:
    """Return where a dump stops being finite, and where in this step the forward and the backward pass do so."""
    begun = sorted((each.first for each in read if each.first is not None), key=_place_of)
    if not begun:
        return None, None, None
    first, step = begun[0], begun[0].run.rank.step
    told = evolve(first, others=_others(first, [f for f in begun if f.run.rank.step == step]))
    in_step = [f for each in read for f in (each.forward, each.backward) if f and f.run.rank.step == step]
    # The first of all is that of its pass: on a rank that received such values, the other pass follows from them.
    passes = ((f for f in in_step if f.call.backward == side) for side in (False, True))
    forward, backward = (
        min(found, key=lambda f: (f is not first, *_place_of(f)), default=None) for found in passes
    )
    return told, told if forward is first else forward, told if backward is first else backward


def _place_of(finding: Finding) -> tuple[int, bool, int]:
    """Return what is less for a finding that is nearer to where a dump stops being finite."""
    return finding.run.rank.step or 0, finding.received, finding.order


def _others(first: Finding, begun: Iterable[Finding]) -> str:
    """Return what to add to the first finding on other ranks. begun: the first of each rank in its step."""
    if first.received:
        return " None of the ranks that were read makes them."
    makes = (f for f in begun if not f.outside and not f.received and f.call.kind in ("api", "module"))
    maker = next(makes, None) if first.outside else None
    if maker is None:
        return ""
    return f" In {maker.run.label}, {maker.call.name} makes such values: these may have come from there."


def _range(value: Value) -> str:
    ends = (number(value.tensor.get(key)) for key in ("Min", "Max"))
    return f"{value.slot} [{', '.join(f'{x:.6g}' if isinstance(x, float) else str(x) for x in ends)}]"
