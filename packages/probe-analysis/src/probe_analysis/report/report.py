"""Make the HTML page of a dump, or of two dumps and how they differ."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field, frozen
from probe_format import Dump, Rank
from probe_format import open as open_dump
from probe_format.errors import DamagedError, FormatError
from probe_format.schema import Parts, Stack
from probe_format.watch import watch_files

from probe_analysis.align.mapping import Mapping
from probe_analysis.calls.run import Call, Progress, Run, Source, runs_of
from probe_analysis.diff.diff import Diff, diff_runs
from probe_analysis.diff.pairing import Options
from probe_analysis.nonfinite.first import NonFinite, non_finite_in
from probe_analysis.nonfinite.lookout import Lookout
from probe_analysis.whole_file import write_whole

from .facts import RecordColumns
from .findings import Compared, compared, finding, nonfinite_finding, verdict_finding
from .page import html_of
from .run_columns import RunColumns, Writer
from .watched import watched_finding, watched_in


@frozen(eq=False)
class Report:
    """Hold a page, and what it is made of.

    diff: how the two dumps differ; None for one dump.
    non_finite: where the first dump stops being finite; None where it could not be checked.
    unread: label of a run -> that it, or what of it, is not on the page, and why.
    """

    html: str = field(repr=False)
    diff: Diff | None
    non_finite: NonFinite | None
    unread: dict[str, str]

    def write(self, path: str | Path) -> None:
        write_whole(path, self.html)


def report(
    a: Source,
    b: Source | None = None,
    *,
    noise: Source | None = None,
    mapping: Mapping | None = None,
    tolerance: float | None = None,
    step: int | None = None,
    rank: int | None = None,
    load: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Return a page that shows a dump, or two and how they differ.

    noise, mapping, tolerance, load: as in `diff`.
    step, rank: only these; None for all.
    progress: called with (what is read, calls read, calls in all).
    Raises FormatError when a dump cannot be read at all, or the two cannot be compared.
    """
    dumps = [_opened(each, alone=b is None) for each in (a, b) if each is not None]
    draft = _Draft()
    for number, dump in enumerate(dumps):
        draft.open(dump, step, rank)
        draft.look_at_watched(number, dumps, step, rank)
    found, error = None, None
    if b is not None:  # first, since each record is taken for the page when it is compared
        thirds = [] if noise is None else list(runs_of(noise, step=step, rank=rank))
        (ones, twos), options = draft.opened, Options(mapping, tolerance, load)
        try:
            found = diff_runs(ones, twos, thirds, options, progress=progress, look=draft.take)
        except FormatError as damaged:
            error = damaged
    for number, dump in enumerate(dumps):
        draft.read(number, dump, progress)
    with draft.checking("The comparison"):
        if error is not None:
            raise error
        if found is not None:
            draft.compare(found)
    non_finite = [draft.check(number, len(dumps)) for number in range(len(dumps))]
    return Report(html_of(draft.document(dumps)), found, non_finite[0], draft.told())


def _opened(source: Source, *, alone: bool) -> Dump:
    """Open a dump. alone: whether the page has no other; then the files of task `watch` are enough for a dump."""
    if isinstance(source, Dump):
        return source
    try:
        return open_dump(source)
    except FormatError:
        if alone and watch_files(source):
            return Dump(Path(source), ())
        raise


@frozen(slots=False)
class _WithoutStacks(Rank):
    """Read a rank whose stack.json is damaged: of no call is it known where it was made."""

    @cached_property
    def stack(self) -> Stack:
        return Stack()


@define(eq=False)
class _Draft:
    """Collect what is on a page.

    records: the id of a rank -> what was read of it.
    columns: the id of a rank -> its run on the page.
    watched: what task `watch` has left. late: findings that come after the others.
    unread: label of a run -> why it is not on the page. stackless: the same of the stacks alone.
    """

    writer: Writer = field(factory=Writer)
    opened: list[list[Run]] = field(factory=list)
    records: dict[int, RecordColumns] = field(factory=dict)
    errors: list[FormatError | None] = field(factory=list)
    runs: list[RunColumns] = field(factory=list)
    columns: dict[int, RunColumns] = field(factory=dict)
    comparisons: list[Compared] = field(factory=list)
    findings: list[dict[str, Any]] = field(factory=list)
    watched: list[dict[str, Any]] = field(factory=list)
    late: list[dict[str, Any]] = field(factory=list)
    unread: dict[str, str] = field(factory=dict)
    stackless: dict[str, str] = field(factory=dict)

    def open(self, dump: Dump, step: int | None, rank: int | None) -> None:
        """Keep the runs of a dump; their records come later."""
        runs = runs_of(dump, step=step, rank=rank) if dump.steps else ()
        self.opened.append([self._with_stacks(run, dump) for run in runs])
        texts, facts = self.writer.texts, self.writer.facts
        self.records |= {id(run.rank): RecordColumns(texts, facts, Lookout(run)) for run in self.opened[-1]}

    def _with_stacks(self, run: Run, dump: Dump) -> Run:
        """Return a run; where its stacks cannot be read, one without them, which is noted."""
        try:
            _ = run.rank.stack
        except FormatError as error:
            self.stackless[f"{run.label} of {dump.path}"] = str(error)
            return Run(run.label, _WithoutStacks(**asdict(run.rank, recurse=False)))
        return run

    def look_at_watched(self, number: int, dumps: list[Dump], step: int | None, rank: int | None) -> None:
        """Keep what task `watch` has left of a dump; note in ``unread`` what is damaged."""
        path = dumps[number].path
        try:
            found = watched_in(path, step=step, rank=rank)
        except FormatError as damaged:
            self.unread[f"what was watched in {path}"] = str(damaged)
            return
        if found is not None:
            self.watched.append({"dump": number, **found})
            self.late.append(watched_finding(found, _which(number, len(dumps))))

    def take(self, call: Call, record: Any, parts: Parts) -> None:
        self.records[id(call.rank)].take(call, record, parts)

    def read(self, number: int, dump: Dump, progress: Progress | None) -> None:
        """Read the records of a dump's runs that are not read yet; note in ``unread`` the runs that are damaged.

        Raises FormatError when no run of the dump can be read.
        """
        error = None
        before = len(self.runs)
        for run in self.opened[number]:
            records = self.records[id(run.rank)]
            try:
                columns = self.writer.run(records, len(self.runs), number, progress)
            except FormatError as damaged:
                error = damaged
                self.unread[which := f"{run.label} of {dump.path}"] = str(damaged)
                self.stackless.pop(which, None)
                continue
            error = error or records.error
            self.columns[id(run.rank)] = columns
            self.runs.append(columns)
        if error is not None and len(self.runs) == before:
            raise error
        self.errors.append(error)

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """Go on where a damaged run makes the block fail, with a finding that says so. what: the finding's title."""
        try:
            yield
        except FormatError as error:
            if not self.unread and not isinstance(error, DamagedError):
                raise
            why = f"This could not be found out: {error}"
            self.findings.append(finding({"kind": "finite"}, "unknown", what, why))

    def compare(self, found: Diff) -> None:
        """Keep how the runs differ, for the page.

        Raises DamagedError when a run that the page cannot show decides the verdict.
        """
        told = [run for run in found.runs if {id(run.a.rank), id(run.b.rank)} <= self.columns.keys()]
        shown = evolve(found, runs=tuple(told))
        if not told or (found.verdict.state != "same" and shown.verdict is not found.verdict):
            raise DamagedError(next(iter(self.unread.values())))
        for run in told:
            one, two = (self.columns[id(each.rank)] for each in (run.a, run.b))
            self.comparisons.append(compared(run, one, two, self.writer.texts))
        self.findings.append(verdict_finding(shown, self.comparisons))

    def check(self, number: int, of: int) -> NonFinite | None:
        """Return where a dump stops being finite, and keep that as a finding; None where a damaged run hides it.

        of: how many dumps the page shows.
        """
        if not self.opened[number]:
            return None
        which = _which(number, of)
        with self.checking(which):
            error = self.errors[number]
            if error is not None:
                raise error
            found = non_finite_in(self.records[id(run.rank)].lookout for run in self.opened[number])
            self.findings.append(nonfinite_finding(found, self.columns, number, which))
            return found
        return None

    def told(self) -> dict[str, str]:
        """Return label of a run -> what of it is not on the page, and why."""
        whole = {label: f"it is not on the page: {why}" for label, why in self.unread.items()}
        stacks = "its calls are on the page without their stacks"
        return whole | {label: f"{stacks}: {why}" for label, why in self.stackless.items()}

    def document(self, dumps: list[Dump]) -> dict[str, Any]:
        return {
            "dumps": [str(dump.path) for dump in dumps],
            "findings": [*self.findings, *self.late],
            "watched": self.watched,
            "runs": [run.document for run in self.runs],
            "comparisons": [each.document for each in self.comparisons],
            "facts": self.writer.facts.columns(),
            "stacks": self.writer.stacks,
            "unread": [list(each) for each in self.told().items()],
            "texts": list(self.writer.texts),  # last: all that is above puts texts there
        }


def _which(number: int, of: int) -> str:
    return "" if of == 1 else ("The first dump", "The second dump")[number]
