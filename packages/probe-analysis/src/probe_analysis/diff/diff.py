"""Compare two dumps: every step and rank that both have, call by call."""

import math
from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen
from probe_format.errors import FormatError
from probe_format.names import with_direction
from probe_format.schema import only_views

from probe_analysis.align.alignment import Alignment, align
from probe_analysis.align.mapping import Mapping
from probe_analysis.calls.run import Progress, Run, Source, runs_of
from probe_analysis.compare.tolerance import Tolerance
from probe_analysis.frame import Framed, frame_of

from .call_diff import CallDiff, Comparison, Look
from .likeness import left_out, recorded_otherwise, unlike, what_is_in
from .owner import idle_calls, with_owner
from .verdict import State, Verdict, alone_before, missing_call, verdict_of

_OTHER_FORM = (
    "the gradients that functions pass on are not compared: "
    "msprobe writes them in another order and number than Probe"
)


@frozen(eq=False, repr=False)
class RunDiff:
    """Hold how one rank of one step differs between two dumps.

    calls: every pair, in the order in which the first run completed them.
    notes: what was not compared, and why.
    """

    a: Run
    b: Run
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


@frozen(eq=False, repr=False)
class Diff(Framed):
    """Hold how two dumps differ.

    runs: for each step and rank of both, in the order of the steps.
    only_a, only_b: the labels of what only one has.
    """

    runs: tuple[RunDiff, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Return the first verdict of a difference; without one, that of the first run that is not exact.

        The first step with one decides; within it the rank in which the fewest calls come before it, as collectives
        carry a difference to the other ranks: what one of them returns is named where no rank has a call to blame.
        """
        order: tuple[State, ...] = ("different", "within tolerance", "same")
        state = min((r.verdict.state for r in self.runs), key=order.index)
        found = [r for r in self.runs if r.verdict.state == state]
        in_step = [r.verdict for r in found if r.a.rank.step == found[0].a.rank.step]
        return min(in_step, key=lambda v: (v.received, v.place))

    @property
    def sentence(self) -> str:
        """Return the state and the sentence of the verdict."""
        return f"{self.verdict.state}: {self.verdict.sentence}"

    def frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each pair of calls, in the order of execution.

        brought, made, allowed: as in `CallDiff`. slot, difference: of the tensor that is the farthest apart.
        """
        columns = "run call other cause brought made allowed slot difference"
        return frame_of(columns, ((run.a.label, *call.cells) for run in self.runs for call in run.calls))


def diff(
    a: Source,
    b: Source,
    *,
    noise: Source | None = None,
    mapping: Mapping | None = None,
    tolerance: Tolerance | None = None,
    step: int | None = None,
    rank: int | None = None,
    load: bool = True,
    progress: Progress | None = None,
) -> Diff:
    """Compare two dumps, by Probe or by msprobe, of the same framework or of two.

    noise: a third dump, of the run of ``a`` repeated: a difference then counts only beyond four times what these two
        differ by.
    mapping: names of ``a`` as ``b`` has them, where they differ.
    tolerance: how much rounding explains; by dtype and length of the sums when None.
    step, rank: only these; None for all that both have.
    load: whether saved tensors are compared element by element, where both dumps have them.
    progress: called with (label, calls compared, calls in all).
    Raises FormatError when a dump cannot be read, or the two have no step and rank in common.
    """
    ones, twos = (list(runs_of(dump, step=step, rank=rank)) for dump in (a, b))
    thirds = list(runs_of(noise, step=step, rank=rank)) if noise is not None else []
    return diff_runs(ones, twos, thirds, mapping=mapping, tolerance=tolerance, load=load, progress=progress)


def diff_runs(
    ones: Sequence[Run],
    twos: Sequence[Run],
    noise: Sequence[Run] = (),
    *,
    mapping: Mapping | None = None,
    tolerance: Tolerance | None = None,
    load: bool = True,
    progress: Progress | None = None,
    look: Look | None = None,
) -> Diff:
    """Compare the runs of two dumps, as `diff` does.

    look: called with each record that is read, once; those that only one run has are not.
    """
    tolerance = tolerance or Tolerance()
    thirds = {_place(run): run for run in noise}
    pairs, only_a, only_b = _paired(ones, twos)
    if not pairs:
        raise FormatError(
            f"The two dumps have no step and rank in common: the first has {', '.join(r.label for r in ones)}, "
            f"the second {', '.join(r.label for r in twos)}. Give one step folder or rank folder of each."
        )
    found: list[RunDiff] = []
    for x, y in pairs:
        earlier = [run for run in found if run.a.rank.step != x.rank.step]
        follows = any(run.verdict.state == "different" for run in earlier)
        third = thirds.get(_place(x)) or (next(iter(thirds.values())) if len(thirds) == 1 else None)
        apart = None if third is None else _noise(Comparison(x, third, tolerance, load))
        comparison = Comparison(x, y, tolerance, load, follows, apart, look)
        found.append(_compare(comparison, align(x, y, mapping), earlier, progress))
    return Diff(tuple(found), tuple(r.label for r in only_a), tuple(r.label for r in only_b))


def _place(run: Run) -> tuple[int | None, int | None, str | None]:
    return run.rank.step, run.rank.number, run.rank.mode


def _paired(ones: Sequence[Run], twos: Sequence[Run]) -> tuple[list[tuple[Run, Run]], list[Run], list[Run]]:
    """Return the runs of the same step and rank; two single runs belong together whatever they are."""
    if len(ones) == len(twos) == 1:
        return [(ones[0], twos[0])], [], []
    second = {_place(run): run for run in twos}
    pairs = [(run, second[_place(run)]) for run in ones if _place(run) in second]
    taken = {id(run) for pair in pairs for run in pair}
    return pairs, [r for r in ones if id(r) not in taken], [r for r in twos if id(r) not in taken]


def _compare(
    how: Comparison, alignment: Alignment, earlier: Sequence[RunDiff], told: Progress | None
) -> RunDiff:
    a, b = how.a, how.b
    if a.calls and b.calls and not alignment.pairs:
        what = f"{what_is_in(a)} against {what_is_in(b)}"
        raise FormatError(f"{a.label} and {b.label} have no call in common: {what}.")
    calls: list[CallDiff] = []
    for found in how.in_order(alignment.pairs):
        calls.append(found)
        if told is not None and len(calls) % 256 == 0:
            told(a.label, len(calls), len(alignment.pairs))
    first = next((c for c in calls if c.cause is not None), None)
    if first is not None and only_views(first.pair.a.name):
        idle = idle_calls(alignment.pairs)
        if first.pair.a.name in idle:
            calls = list(evolve(how, look=None).in_order(alignment.pairs, idle))
    # where with_owner moves the cause to a module, this is still where it shows first
    limit = next((c.pair.a.order for c in calls if c.cause is not None), math.inf)
    calls, first = with_owner(calls)
    other = None if how.across else recorded_otherwise(a, b)
    verdict = _verdict(how, alignment, calls, other is not None, earlier, first, limit)
    if verdict.state != "different" and unlike(alignment):
        why = "the two dumps have neither numbers nor checksums of one kind in common"
        raise FormatError(f"{a.label}: {why}. Dump both with the same summary_mode.")
    said = (None if how.passed_on else _OTHER_FORM, other, left_out(calls))
    notes = [note for note in said if note is not None]
    lost = (("first", a.rank.lost), ("second", b.rank.lost))
    notes += [f"in the {which} run: {what}" for which, what in lost if what]
    for which, names in zip(("second", "first"), alignment.beyond(a, b), strict=True):
        if names:
            notes.append(f"the {which} run was cut off in this step: {len(names)} records come after its end")
    return RunDiff(a, b, alignment, tuple(calls), verdict, tuple(notes))


def _noise(twice: Comparison) -> dict[str, float]:
    """Return record -> how far two runs of the same program are apart there."""
    found = {}
    for pair in align(twice.a, twice.b).pairs:
        apart = (value.distance.relative for value in twice.of(pair).values)
        found[pair.a.name] = max((relative for relative in apart if relative < math.inf), default=0.0)
    return found


def _verdict(
    how: Comparison,
    alignment: Alignment,
    calls: Sequence[CallDiff],
    partial: bool,
    earlier: Sequence[RunDiff],
    first: CallDiff | None,
    limit: float,
) -> Verdict:
    """Return the verdict on two runs.

    partial: whether the runs recorded other calls, so that one that a run lacks is no finding.
    limit: the place of the first call that shows it.
    """
    a, b = how.a, how.b
    if not a.calls or not b.calls:
        if not a.calls and not b.calls:
            return Verdict("same", "Nothing was recorded in either of the two.")
        which, other = ("first", "second") if a.calls else ("second", "first")
        count = f"{len(a.calls or b.calls)} records"
        return Verdict("different", f"Nothing was recorded in the {other} run; the {which} has {count}.")
    missing = None if partial or how.across else missing_call(alignment, a, b, first, limit)
    if missing is not None:
        return missing
    if first is None:
        inexact = next((c for c in calls if c.brought or c.made), None)
        if inexact is None:
            same = f"All {_counted(calls)} are the same in both, as far as they were recorded."
            return Verdict("same", same)
        call = inexact.pair.a
        before = next((run for run in reversed(earlier) if run.verdict.state == "different"), None)
        if before is not None:
            sentence = f"Numbers differ from {call.name} on, as {before.a.label} differs before it."
            return Verdict("different", sentence, call, inexact, call.order)
        most = f"All {_counted(calls)} are the same within what rounding explains."
        sentence = f"{most} {verdict_of(inexact, 'within tolerance')}"
        return Verdict("within tolerance", sentence, call, inexact, call.order)
    sentence = verdict_of(first)
    before = next((run for run in reversed(earlier) if run.a.rank.number == a.rank.number), None)
    if first.cause == "parameters" and before is not None:
        sentence += f" All of {before.a.label} agrees: look at the optimizer's step, or at what runs between the steps."
    if first.cause in ("input", "parameters") and not first.pair.a.backward:
        sentence += alone_before(earlier)
    return Verdict("different", sentence, first.pair.a, first, limit)


def _counted(found: Sequence[CallDiff]) -> str:
    """Return in words how many records there are, and of how many calls: of most a forward and a backward one."""
    calls = {with_direction(d.pair.a.name, "forward") for d in found if d.pair.a.kind in ("module", "api")}
    if len(calls) == len(found):
        return f"{len(calls)} calls"
    return f"{len(found)} records" + (f" of {len(calls)} calls" if calls else "")
