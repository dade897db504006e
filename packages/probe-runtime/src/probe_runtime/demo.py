"""Give the demos of both frameworks their arguments, their steps with a progress bar, and the table at their end.

The table says what each dumped step holds, from its report, and what dumping cost.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_format.read import open as open_dump
from probe_format.schema import Report
from probe_format.terminal import say

#: How many steps at the beginning are left out of the times.
WARM_UP = 2


def bar(done: int, of: int) -> str:
    """Return a progress bar of 24 characters, ``[######    ]``, for ``done`` of ``of`` pieces."""
    return f"[{'#' * (24 * done // of):24}]"


def demo_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *, steps: int, layers: int, width: int
) -> argparse.Namespace:
    """Return the arguments of a demo: those of ``parser``, and the sizes of the run.

    arguments: the command line; None for that of the process.
    steps, layers, width: the defaults of the sizes.
    """
    parser.add_argument("--steps", type=int, default=steps, help=f"training steps (default: {steps})")
    parser.add_argument("--layers", type=int, default=layers)
    parser.add_argument("--width", type=int, default=width, help="a multiple of 4")
    given = parser.parse_args(arguments)
    if given.steps < WARM_UP + 3:
        parser.error(f"--steps must be at least {WARM_UP + 3}: two are dumped, {WARM_UP} warm up.")
    return given


def timed_steps(
    debugger: Any,
    model: Any,
    data: Iterable[Any],
    one_step: Callable[[Any], Any],
    steps: int,
    dumped: Sequence[int],
) -> dict[int, float]:
    """Train for some steps with a debugger around each, and say how each went. Return the seconds that each took.

    data: the batches.
    one_step: trains on a batch, and returns the loss.
    dumped: the numbers of the steps that the debugger dumps.
    """
    seconds: dict[int, float] = {}
    for step, batch in zip(range(steps), data, strict=False):
        begin = time.perf_counter()
        debugger.start(model)
        loss = one_step(batch)
        debugger.stop()
        debugger.step()
        seconds[step] = time.perf_counter() - begin
        note = "  dumped" if step in dumped else ""
        done = f"{bar(step + 1, steps)} step {step:2}   loss {float(loss):.4f}"
        say(f"{done}   {seconds[step]:6.3f} s{note}", now=True)
    return seconds


def summary(dump_path: Path, seconds: Mapping[int, float]) -> list[str]:
    """Return the lines of the table.

    dump_path: the folder of the dumped steps.
    seconds: number of a step -> its time in seconds, for every step of the run, dumped or not.
    """
    dump = open_dump(dump_path)
    reports = {rank.step or 0: rank.report for rank in dump.ranks if rank.report is not None}
    size = sum(file.stat().st_size for file in dump_path.rglob("*") if file.is_file())
    states = ", ".join(f"step {n} {report.state}" for n, report in reports.items())
    rows = [("The dump", f"{dump_path}   {size / 1e6:.1f} MB; {states}")]
    heads = "".join(f"{f'step {n}: seen':>16}{'recorded':>10}{'skipped':>9}" for n in reports)
    rows += [("", ""), ("", heads), *_counts(list(reports.values()))]
    for n, report in reports.items():
        rows += [("", ""), (f"Step {n}", ""), *_about(report)]
    rows += [("", ""), ("Cost", ""), *_cost(seconds, list(reports)), ("", "")]
    rows += [
        ("Look inside", f"probe show {dump.ranks[0].path}"),
        ("Check", f"probe verify {dump_path}"),
    ]
    return [f"{title:18}{text}".rstrip() for title, text in rows]


def _counts(reports: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """Yield a row for each kind of record, with three columns for each step."""
    for kind in dict.fromkeys(kind for report in reports for kind in report.counts.get("seen", {})):
        cells = ""
        for report in reports:
            seen = report.counts["seen"].get(kind, 0)
            recorded = report.counts.get("recorded", {}).get(kind, 0)
            cells += f"{seen:16,}{recorded:10,}{seen - recorded:9,}"
        yield f"  {kind}", cells


def _about(report: Report) -> Iterator[tuple[str, str]]:
    skipped = [
        f"{n:7,} {how.replace('_', ' ')}: {why}"
        for how in ("filtered", "unsupported", "failed", "left_out")
        for why, n in report.counts.get(how, {}).items()
    ]
    yield from _listed("skipped", skipped or ["nothing"])
    why: dict[str, list[str]] = {}
    for item in report.not_seen:
        why.setdefault(item["why"], []).append(item["what"])
    unseen = [
        f"{what[0]}{f' and {len(what) - 1} more' if what[1:] else ''}: {reason}"
        for reason, what in why.items()
    ]
    yield from _listed("not looked at", unseen or ["nothing"])
    largest = {norm: where for where, norm in reversed(report.norms)}  # equal norms are shown once
    yield from _listed(
        "largest norms", [f"{norm:<10.6g} {where}" for norm, where in reversed(largest.items())]
    )
    first = report.first_non_finite
    yield (
        "  non-finite",
        "nothing" if first is None else f"{first['record']}, {first['slot']}: {first['why']}",
    )
    yield from _listed("faults", [f"{f['count']} x {f['where']}" for f in report.faults] or ["none"])


def _cost(seconds: Mapping[int, float], dumped: Sequence[int]) -> Iterator[tuple[str, str]]:
    plain = [s for n, s in seconds.items() if n not in dumped and n >= WARM_UP]
    watched = [seconds[n] for n in dumped if n in seconds]
    if plain and watched:
        usual, slow = statistics.median(plain), statistics.median(watched)
        yield "  undumped step", f"{usual:.3f} s   median of {len(plain)}"
        yield "  dumped step", f"{slow:.3f} s   median of {len(watched)}, writing the files included"
        yield "  ratio", f"{slow / usual:.2f}"


def _listed(title: str, items: Iterable[str]) -> Iterator[tuple[str, str]]:
    for i, item in enumerate(items):
        yield "" if i else f"  {title}", item
