"""Run the commands ``probe show``, ``verify``, ``recover`` and ``unpack``: print the result, return the exit code."""

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from attrs import fields

from probe_format.errors import FormatError
from probe_format.excerpts import text
from probe_format.read.dump import Rank, open
from probe_format.read.verify import STATES, verify_rank
from probe_format.terminal import say, tell
from probe_format.watch import KINDS, Row, WatchFile, watch_files
from probe_format.write.recovery import recover_rank

from .bad import story
from .command import shown
from .show import Shown, heading, summary, tree

_T = TypeVar("_T")
#: Lines that the tree of non-finite records has at most, unless all are asked for.
_MOST = 20
#: Lines of one kind on a watch file.
_LISTED = 10


def _watched(arguments: argparse.Namespace) -> list[WatchFile]:
    files = watch_files(arguments.dir) if arguments.step is None and arguments.mode is None else []
    return [file for file in files if arguments.rank in (None, file.rank)]


def _chosen(arguments: argparse.Namespace, watched: Sequence[WatchFile] = ()) -> list[Rank]:
    """Return the ranks that are asked for: none where there is no dump, and only watch files."""
    try:
        ranks: tuple[Rank, ...] = open(arguments.dir).ranks
    except FormatError:
        if watched:
            return []
        raise
    asked = arguments.step, arguments.rank, arguments.mode
    there_is = ((rank, (rank.step, rank.number, rank.mode)) for rank in ranks)
    chosen = [rank for rank, its in there_is if all(x in (None, y) for x, y in zip(asked, its, strict=True))]
    if not chosen:
        there = ", ".join(sorted({rank.label for rank in ranks}))
        raise FormatError(f"{arguments.dir} has no such step, rank or mode; it has {there}.")
    return chosen


def _show(arguments: argparse.Namespace) -> int:
    view = Shown(**{each.name: getattr(arguments, each.name) for each in fields(Shown)})
    worst = 0
    watched = _watched(arguments)
    for file in watched:
        say(*_overview(file), "")
    for rank in _chosen(arguments, watched):
        try:
            say(heading(rank), *(f"  {line}" for line in summary(rank)), "")
            if arguments.bad:
                say(*story(rank))
            shown = False
            for line in _few(tree(rank, view), _MOST if arguments.bad and not arguments.all else None):
                say(line)
                shown = True
            if not shown and not arguments.bad:
                say("(no record matches; 'probe show DIR --brief' lists their names)")
            say("")
        except FormatError as error:
            tell(*f"probe show: {error}".split("\n"))
            worst = 1
    return worst


def _overview(file: WatchFile) -> Iterator[str]:
    """Yield what is in a watch file: its steps, the first and last norms of each kind, and what is not finite."""
    kinds = Counter(column.kind for column in file.columns)
    steps = f"steps {file.rows[0].step} to {file.rows[-1].step}, " if file.rows else ""
    facts = [text(file.header[key]) for key in ("framework", "task") if key in file.header]
    yield f"{file.label}: {', '.join(facts)}, {steps}{len(file.rows)} rows, {file.state}"
    for kind in KINDS:
        norms = [(row.step, norm) for row in file.rows if (norm := file.total(row, kind)) is not None]
        if norms:
            (first, start), (last, end) = norms[0], norms[-1]
            of = f"{kinds[kind]} tensors"
            yield f"  {kind}: norm {start:.6g} in step {first}, {end:.6g} in step {last}, of {of}"
    bad = [row for row in file.rows if file.bad(row)]
    if bad:
        yield f"  not finite in {len(bad)} steps, first in step {bad[0].step}: {', '.join(_names(file, bad[0]))}"
    for what, why in file.unseen[:_LISTED]:
        yield f"  not seen: {what} ({why})"
    for where, message in file.faults[:_LISTED]:
        yield f"  fault: {where}: {message}"
    if file.rows:
        yield f"  last row: {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(file.rows[-1].time))}"


def _names(file: WatchFile, row: Row) -> list[str]:
    found = []
    for i, column in enumerate(file.columns):
        norm = row.norm(i)
        if norm is not None and (norm != norm or i in row.bad):
            nan, infinite = row.bad.get(i, (0, 0))
            found.append(f"{column.kind} of {column.name} ({nan} NaN, {infinite} infinite)")
    return [*found[:_LISTED], *([f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else [])]


def _few(lines: Iterator[str], most: int | None) -> Iterator[str]:
    yield from itertools.islice(lines, most)
    more = sum(1 for _ in lines)
    if more:
        yield f"... and {more} more lines: --all shows them, --filter and --depth choose"


def _verify(arguments: argparse.Namespace) -> int:
    worst = 0
    watched = _watched(arguments)
    for file in watched:
        worst = max(worst, STATES.index(file.state))
        say(f"{file.state:<9} {file.path}", *(f"    {each}" for each in file.damage[:50]))
        if file.state == "torn":
            say(f"    (The run did not end, or goes on: {len(file.rows)} rows are whole.)")
    with shown("verify", "tensor files") as progress:
        for rank in _chosen(arguments, watched):
            verdict = verify_rank(rank, lambda rank, done, total: progress(rank.label, done, total))
            worst = max(worst, STATES.index(verdict.state))
            say(f"{verdict.state:<9} {verdict.path}")
            say(*(f"    {each}" for each in verdict.problems), *(f"    ({note})" for note in verdict.notes))
    return {"torn": 3, "damaged": 4}.get(STATES[worst], 0)


def _each(arguments: argparse.Namespace, work: Callable[[Rank], _T]) -> Iterator[tuple[Rank, _T | None]]:
    """Yield each rank with what is made of it; None where that fails, which is told: the others go on."""
    for rank in _chosen(arguments):
        try:
            yield rank, work(rank)
        except (FormatError, OSError) as error:
            of = f"{rank.label}: " if isinstance(error, OSError) else ""  # it may name no file
            tell(f"probe {arguments.command}: {of}{error}")
            yield rank, None


def _recover(arguments: argparse.Namespace) -> int:
    outcomes = set()
    for _, recovery in _each(arguments, recover_rank):
        if recovery is None:
            outcomes.add("failed")
            continue
        outcomes.add(recovery.outcome)
        nothing = recovery.outcome == "nothing"
        amount = "" if nothing else f": {recovery.records} records, {recovery.tensors} tensors."
        say(f"{recovery.outcome:<8} {recovery.path}{amount}", f"    {recovery.detail}")
    if outcomes >= {"failed", "whole"} or "partial" in outcomes:
        return 3
    return 0 if "whole" in outcomes else 1


def _unpack(arguments: argparse.Namespace) -> int:
    from probe_format.write.unpacking import unpack_rank  # only here: no other command needs it

    worst = 0
    for rank, unpacked in _each(arguments, unpack_rank):
        if unpacked is None:
            worst = max(worst, 1)
            continue
        files, damaged = unpacked
        worst = max(worst, 4 * bool(damaged))
        say(f"{files} tensor files of {rank.path}", *(f"    {each}" for each in damaged))
    return worst


#: The function of each command: it takes the parsed words and returns the exit code.
RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "show": _show, "verify": _verify, "recover": _recover, "unpack": _unpack,
}  # fmt: skip
