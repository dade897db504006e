"""Make a page of a dump, or of two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from probe_format import Dump
from probe_format import open as open_dump
from probe_format.errors import DamagedError, FormatError

from probe_analysis.align import Mapping
from probe_analysis.calls import runs_of
from probe_analysis.compare import Tolerance
from probe_analysis.diff import Diff, diff
from probe_analysis.nonfinite import NonFinite, first_non_finite

from .compared import Compared, compared
from .coverage import coverage_of
from .findings import nonfinite_finding, unchecked, verdict_finding
from .page import html_of
from .run_columns import Progress, RunColumns, Writer

__all__ = ["Report", "report"]


@frozen(eq=False)
class Report:
    """Hold a page, and what it is made of.

    html: the whole page.
    diff: how the two dumps differ; None for one dump.
    non_finite: where the first dump stops being finite; None where it could not be checked.
    unread: label of a run -> why it is not on the page.
    """

    html: str
    diff: Diff | None
    non_finite: NonFinite | None
    unread: dict[str, str]

    def write(self, path: str | Path) -> None:
        """Write the page into a file."""
        Path(path).write_text(self.html, "utf-8")


def report(
    a: str | Path | Dump,
    b: str | Path | Dump | None = None,
    *,
    noise: str | Path | Dump | None = None,
    mapping: Mapping | None = None,
    tolerance: Tolerance | None = None,
    step: int | None = None,
    rank: int | None = None,
    load: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Return a page that shows a dump, or two and how they differ.

    b: the second dump.
    noise, mapping, tolerance, load: as in `diff`.
    step, rank: only these; None for all.
    progress: called with (what is read, calls read, calls in all).
    Raises FormatError when a dump cannot be read at all, or the two cannot be compared.
    """
    dumps = [each if isinstance(each, Dump) else open_dump(each) for each in (a, b) if each is not None]
    draft = _Draft()
    for number, dump in enumerate(dumps):
        draft.read(number, dump, step, rank, progress)
    found = None
    if b is not None:
        with draft.checking("The comparison"):
            found = diff(
                *dumps, noise=noise, mapping=mapping, tolerance=tolerance, step=step, rank=rank, load=load,
                progress=progress,
            )  # fmt: skip
            draft.compare(found)
    non_finite = [draft.check(number, dump, step, rank, len(dumps)) for number, dump in enumerate(dumps)]
    return Report(html_of(draft.document(dumps)), found, non_finite[0], draft.unread)


@define(eq=False)
class _Draft:
    """Collect what is on a page.

    numbers: the id of a rank -> its number among the runs of the page.
    """

    writer: Writer = field(factory=Writer)
    runs: list[RunColumns] = field(factory=list)
    numbers: dict[int, int] = field(factory=dict)
    coverage: list[dict[str, Any]] = field(factory=list)
    comparisons: list[Compared] = field(factory=list)
    findings: list[dict[str, Any]] = field(factory=list)
    unread: dict[str, str] = field(factory=dict)

    def read(
        self, number: int, dump: Dump, step: int | None, rank: int | None, progress: Progress | None
    ) -> None:
        """Take the runs of a dump. One that is damaged is told apart, unless all are."""
        error = None
        before = len(self.runs)
        for run in runs_of(dump, step=step, rank=rank):
            try:
                columns = self.writer.run(run, number, progress)
                coverage = coverage_of(run)
            except FormatError as damaged:
                error = damaged
                self.unread[f"{run.label} of {dump.path}"] = str(damaged)
                continue
            self.numbers[id(run.rank)] = len(self.runs)
            self.runs.append(columns)
            self.coverage.append(coverage)
        if error is not None and len(self.runs) == before:
            raise error

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """Go on without what a damaged run does not let us find, and say so in its place."""
        try:
            yield
        except FormatError as error:
            if not self.unread and not isinstance(error, DamagedError):
                raise
            self.findings.append(unchecked(what, f"This could not be found out: {error}"))

    def compare(self, found: Diff) -> None:
        """Take how the runs differ."""
        for run in found.runs:
            one, two = self.numbers[id(run.a.rank)], self.numbers[id(run.b.rank)]
            self.comparisons.append(
                compared(run, self.runs[one], self.runs[two], self.writer.texts, (one, two))
            )
        self.findings.append(verdict_finding(found, self.comparisons))

    def check(self, number: int, dump: Dump, step: int | None, rank: int | None, of: int) -> NonFinite | None:
        """Take where a dump stops being finite, and return it."""
        which = "" if of == 1 else ("The first dump", "The second dump")[number]
        with self.checking(which):
            found = first_non_finite(dump, step=step, rank=rank)
            places = {key: (place, self.runs[place]) for key, place in self.numbers.items()}
            self.findings.append(nonfinite_finding(found, places, number, which))
            return found
        return None

    def document(self, dumps: list[Dump]) -> dict[str, Any]:
        """Return all of it as the scripts of the page read it."""
        return {
            "dumps": [str(dump.path) for dump in dumps],
            "findings": self.findings,
            "runs": [
                {**run.document, "coverage": coverage}
                for run, coverage in zip(self.runs, self.coverage, strict=True)
            ],
            "comparisons": [each.document for each in self.comparisons],
            "facts": self.writer.facts.columns(),
            "stacks": self.writer.stacks,
            "unread": [list(each) for each in self.unread.items()],
            "texts": self.writer.texts.all,  # last: all that is above puts texts there
        }
