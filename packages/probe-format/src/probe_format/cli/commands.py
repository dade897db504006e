"""Show, verify and recover dumps: what the commands of this package do, and what they print."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator

from probe_format.errors import FormatError
from probe_format.read.dump import Rank, Step, open
from probe_format.read.verify import STATES, Verdict, verify_rank
from probe_format.terminal import ProgressLine, say, tell
from probe_format.write.recovery import Recovery, recover_rank

from .bad import story
from .show import heading, summary, tree
from .view import View

__all__ = ["RUN"]

#: Lines that the tree of non-finite records has at most, unless all are asked for.
_MOST = 20


def _chosen(arguments: argparse.Namespace) -> list[Rank]:
    steps: tuple[Step, ...] = open(arguments.dir).steps
    chosen = [
        rank
        for step in steps
        for rank in step.ranks
        if arguments.step in (None, step.number)
        and arguments.rank in (None, rank.number)
        and arguments.mode in (None, step.mode)
    ]
    if not chosen:
        there = ", ".join(sorted({r.label for s in steps for r in s.ranks}))
        raise FormatError(f"{arguments.dir} has no such step, rank or mode; it has {there}.")
    return chosen


def _show(arguments: argparse.Namespace) -> int:
    view = View(
        arguments.filter,
        arguments.level,
        arguments.depth,
        arguments.bad,
        arguments.brief,
        arguments.stack,
        arguments.full,
    )
    worst = 0
    for rank in _chosen(arguments):
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


def _few(lines: Iterator[str], most: int | None) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from itertools.islice(lines, most)
    more = sum(1 for _ in lines)
    if more:
        yield f"... and {more} more lines: --all shows them, --filter and --depth choose"


def _verify(arguments: argparse.Namespace) -> int:
    progress = _progress("verify")
    verdicts: list[Verdict] = []
    for rank in _chosen(arguments):
        verdict = verify_rank(rank, progress)
        verdicts.append(verdict)
        say(f"{verdict.state:<9} {verdict.path}")
        say(*(f"    {problem}" for problem in verdict.problems), *(f"    ({note})" for note in verdict.notes))
    worst = max((verdict.state for verdict in verdicts), key=STATES.index)
    return {"complete": 0, "recovered": 0, "torn": 3, "damaged": 4}[worst]


def _recover(arguments: argparse.Namespace) -> int:
    found: list[Recovery] = []
    for rank in _chosen(arguments):
        recovery = recover_rank(rank)
        found.append(recovery)
        amount = (
            f" {recovery.records} records, {recovery.tensors} tensors."
            if recovery.outcome != "nothing"
            else ""
        )
        say(f"{recovery.outcome:<8} {recovery.path}{':' if amount else ''}{amount}", f"    {recovery.detail}")
    outcomes = {recovery.outcome for recovery in found}
    return 3 if "partial" in outcomes else 0 if "whole" in outcomes else 1


def _progress(command: str) -> Callable[[Rank, int, int], None]:
    """Return a function that shows on stderr how many tensor files of a rank are done."""
    line = ProgressLine(terminal=0.2, elsewhere=10.0)

    def show(rank: Rank, done: int, total: int) -> None:
        text = f"probe {command}: {rank.label}: {done} of {total} tensor files"
        line.show(text, now=line.live and done == total > 1000)
        if done == total:
            line.end()

    return show


#: The function of each command: it takes the parsed words and returns the exit code.
RUN: dict[str, Callable[[argparse.Namespace], int]] = {"show": _show, "verify": _verify, "recover": _recover}
