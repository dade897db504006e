"""Run ``probe watch DIR``: show a run of task `watch` live: norms, what is not finite, ranks that stopped writing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from probe_format.cli import Command
from probe_format.terminal import say

from probe_analysis.live.job import Job, State
from probe_analysis.live.screen import show
from probe_analysis.trend.picture import sparkline

from .options import add_number
from .output import table

_MOST = 10


def _run(arguments: argparse.Namespace) -> int:
    job = Job(Path(arguments.dir))
    if arguments.once:
        state = job.look()
        say(*_lines(state))
    else:
        state = show(job, lambda found: list(_lines(found)), max(arguments.every, 0.1))
    return 0 if state.is_well else 1


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", help="the dump_path of a run with task watch")
    parser.add_argument("--once", action="store_true", help="print it once, for a script")
    add_number(parser, "--every", 1.0, "seconds from one look to the next (1)")


def _lines(state: State) -> Iterator[str]:
    yield state.sentence
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    rows = [
        {"all": curve.kind, "norm": next((v for v in reversed(curve.values) if v is not None), None),
         "steps": sparkline(curve.values, plain=plain, width=60)}
        for curve in state.curves
    ]  # fmt: skip
    if rows:
        yield from ("", *table(rows, "table").split("\n"), "")
    for what in state.bad[:_MOST]:
        yield f"not finite: {what}"
    late = [rank for rank in state.ranks if rank.state not in ("writes", "ended")]
    for rank in late[:_MOST]:
        step = "no step" if rank.step is None else f"step {rank.step}"
        what = "is damaged" if rank.state == "damaged" else "has stopped writing"
        yield f"{rank.label} {what}: {step} is its last, {rank.ago:.0f} s ago"
    if len(late) > _MOST:
        yield f"... and {len(late) - _MOST} more ranks"
    if all(rank.state == "ended" for rank in state.ranks):
        yield "the run has ended"
    if state.trigger is not None:
        yield f"last trigger: {state.trigger}"


main = Command(
    "watch",
    "Show a run with task watch: the last norms of gradients, weights and the rest, and ranks that stopped writing.",
    _options,
    _run,
    "0 all is finite, and every rank writes or has ended; 1 something is not; 2 cannot be read",
    finds=True,
)
