"""Compare two dumps, every step and rank that both have, call by call, and give one verdict on the whole."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from attrs import field, frozen
from probe_format.errors import FormatError

from probe_analysis.align.mapping import Mapping
from probe_analysis.calls.compact_run import letting_go
from probe_analysis.calls.engine import Engine, in_process
from probe_analysis.calls.run import Call, Progress, Run, Source, runs_of
from probe_analysis.calls.skipped import Skipped
from probe_analysis.result import Framed

from .earlier import Past
from .pairing import Options, Pairing
from .run_diff import Look, RankStep, RunDiff, compare_runs
from .verdict import STATES, State, Verdict


@frozen(eq=False, repr=False)
class Diff(Framed):
    """Hold how two dumps differ.

    runs: for each step and rank of both, in the order of the steps.
    only_a, only_b: the labels of what only one has.
    skipped: the label of each rank that cannot be read in one of them, and why.
    """

    runs: tuple[RunDiff, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    skipped: Skipped = field(factory=Skipped)
    columns = "run call other cause inputs results allowed slot difference cosine max_ulp"

    @property
    def verdict(self) -> Verdict:
        """Return the first verdict of a difference; without one, that of the first run that is not exact.

        The first step with one decides; within it the rank in which the fewest calls come before it, as collectives
        carry a difference to the other ranks: the result of a collective is named where no rank has another to blame.
        """
        state = max((r.verdict.state for r in self.runs), key=STATES.index)
        found = [r for r in self.runs if r.verdict.state == state]
        in_step = [r.verdict for r in found if r.a.rank.step == found[0].a.rank.step]
        return min(in_step, key=lambda v: (v.received, v.place))

    @property
    def sentence(self) -> str:
        """Return the state and the sentence of the verdict."""
        return f"{self.verdict.state}: {self.verdict.sentence}"

    @property
    def state(self) -> State:
        return self.verdict.state

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was not compared, run by run, and what only one of the dumps has."""
        which = ("first", self.only_a), ("second", self.only_b)
        alone = (f"{label}: in the {of} dump alone" for of, labels in which for label in labels)
        return *(f"{run.a.label}: {note}" for run in self.runs for note in run.notes), *alone

    def blamed(self) -> Iterator[tuple[str, str, Call | None]]:
        """Yield the calls with a cause of their own, those of the run that decides first."""
        decides = self.verdict
        for run in sorted(self.runs, key=lambda run: run.verdict is not decides):
            if run.verdict.state == decides.state:
                yield from run.blamed

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each pair of calls, in the order of execution."""
        return ((run.a.label, *cells) for run in self.runs for cells in run.rows())


def diff(
    a: Source,
    b: Source,
    *,
    noise: Source | None = None,
    mapping: Mapping | None = None,
    tolerance: float | None = None,
    step: int | None = None,
    rank: int | None = None,
    load: bool = True,
    rows: bool = False,
    engine: Engine = in_process,
    progress: Progress | None = None,
) -> Diff:
    """Compare two dumps, by Probe or by msprobe, of the same framework or of two.

    noise: a third dump, of the run of ``a`` repeated: what these two differ by is then expected of the others.
    mapping: names of ``a`` as ``b`` has them, where they differ.
    tolerance: the relative difference that one call may make by itself; by dtype and length of the sums when None.
    step, rank: only these; None for all that both have.
    load: whether saved tensors are compared element by element, where both dumps have them.
    rows: whether the rows are kept; else, unless each step has one rank, ranks are compared again when rows are
        asked for.
    engine: what compares the ranks of a step: `in_process`, `in_processes` or `on_dask`.
    progress: called with (label, ranks compared, ranks in all) of a step; with calls, where it has one rank.
    A rank that cannot be read, or has nothing in common with its other, is skipped, and noted.
    Raises FormatError when all are, or the two have no step and rank in common.
    """
    ones, twos = (list(runs_of(dump, step=step, rank=rank)) for dump in (a, b))
    thirds = list(runs_of(noise, step=step, rank=rank)) if noise is not None else []
    options = Options(mapping, tolerance, load, rows)
    return diff_runs(ones, twos, thirds, options, engine=engine, progress=progress)


@letting_go()
def diff_runs(
    ones: Sequence[Run],
    twos: Sequence[Run],
    noise: Sequence[Run],
    options: Options,
    *,
    engine: Engine = in_process,
    progress: Progress | None = None,
    look: Look | None = None,
) -> Diff:
    """Compare the runs of two dumps, as `diff` does.

    look: called once with each record of the calls that both runs have. With it, all comparisons stay in memory.
    """
    pairs, only_a, only_b = _paired(ones, twos)
    if not pairs:
        raise FormatError(
            f"The two dumps have no step and rank in common: the first has {', '.join(r.label for r in ones)}, "
            f"the second {', '.join(r.label for r in twos)}. Give one step folder or rank folder of each."
        )
    thirds = _others(ones, noise)
    any_third = noise[0] if len(noise) == 1 else None
    found, before = list[RunDiff](), list[RunDiff]()
    skipped, past = Skipped(), Past()
    alone = len({one.rank.step for one, _ in pairs}) == len(pairs)
    keep, engine = alone or look is not None, in_process if alone else engine
    work = partial(_compared, progress if alone else None, look)
    for _, step in groupby(pairs, lambda pair: pair[0].rank.step):
        each = [Pairing(one, two, options, thirds.get(id(one), any_third)) for one, two in step]
        parts = [[(n, RankStep(x, past.of(x), keep))] for n, x in enumerate(each)]
        now = [*skipped.read(work, parts, engine, None if alone else progress)]
        for run in before if look is None else ():
            run.forget()
        past, before = past.after(now), now
        found += now
    skipped.unless(found)
    return Diff(tuple(found), tuple(r.label for r in only_a), tuple(r.label for r in only_b), skipped)


def _compared(progress: Progress | None, look: Look | None, step: RankStep, _: object) -> RunDiff:
    return compare_runs(step, progress, look)


def _place(run: Run) -> tuple[int | None, int | None, str | None]:
    return run.rank.step, run.rank.number, run.rank.mode


def _paired(ones: Sequence[Run], twos: Sequence[Run]) -> tuple[list[tuple[Run, Run]], list[Run], list[Run]]:
    """Return the runs of the same step and rank; two single runs belong together whatever they are."""
    if len(ones) == len(twos) == 1:
        return [(ones[0], twos[0])], [], []
    others = _others(ones, twos)
    taken = {id(run) for run in others.values()}
    pairs = [(run, others[id(run)]) for run in ones if id(run) in others]
    return pairs, [r for r in ones if id(r) not in others], [r for r in twos if id(r) not in taken]


def _others(ones: Sequence[Run], twos: Sequence[Run]) -> dict[int, Run]:
    """Return the id of a run -> the run of the same step and rank in another dump.

    Processes that share a rank are told apart by their folders. Those that the other dump has under other names, as
    `proc12` for `rank`, are taken in order, where both have as many of them.
    """
    named = {(_place(run), run.folder): run for run in twos}
    found = {id(run): named.pop(key) for run in ones if (key := (_place(run), run.folder)) in named}
    left = defaultdict[object, tuple[list[Run], list[Run]]](lambda: ([], []))
    for some, runs in enumerate(([run for run in ones if id(run) not in found], named.values())):
        for run in runs:
            left[_place(run)][some].append(run)
    for alone, those in left.values():
        if len(alone) == len(those):
            found |= zip(map(id, alone), those, strict=True)
    return found
