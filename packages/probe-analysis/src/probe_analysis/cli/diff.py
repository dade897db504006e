"""Run ``probe diff A B``: say in a sentence which call first makes two runs differ, then show the rest."""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.terminal import say, tell

from probe_analysis.align.mapping import suggest_mapping
from probe_analysis.diff.diff import Diff, diff
from probe_analysis.replay.decide import decide
from probe_analysis.whole_file import write_whole

from .options import add_comparison, add_engine, add_table, comparison, engine, part
from .output import show

#: How many runs (a rank of a step each) are told one by one.
_MOST = 32


def _run(arguments: argparse.Namespace) -> int:
    rows = bool(arguments.format != "table" or arguments.output)
    how = {"engine": engine(arguments), "rows": rows, **part(arguments), **comparison(arguments)}
    with shown("diff") as progress:
        found = diff(arguments.a, arguments.b, progress=progress, **how)
    beside = tell if arguments.format != "table" and not arguments.output else say
    if arguments.suggest_map:
        write_whole(arguments.suggest_map, _mapping_text(found))
        beside(f"wrote {arguments.suggest_map}: check it, then give it with --map")
    changed = sum(run.changed for run in found.runs)
    first = [] if rows else [*islice(_rows(found), arguments.rows)]
    show("diff", found, arguments, _story(found), first, "more records", total=changed)
    if arguments.replay:
        beside(*_decided(found, (arguments.a, arguments.b)))
    return 1 if found.verdict.state == "different" else 0


def _decided(found: Diff, paths: tuple[str, str]) -> Iterator[str]:
    """Yield in lines which of the two is wrong at the call that is named."""
    verdict = found.verdict
    run = next(run for run in found.runs if run.verdict is verdict)
    if verdict.call is None:
        return
    one, two = (Path(path).name for path in paths)
    pairs = [(pair.a, pair.b) for pair in run.alignment.pairs]
    yield ""
    yield from decide(verdict.call, run.a, run.b, pairs, paths if one == two else (one, two))


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser, "a")
    parser.add_argument("b", help="the other one")
    add_part(parser)
    add_comparison(parser)
    add_engine(parser)
    parser.add_argument("--suggest-map", metavar="FILE", help="write a draft of such a file")
    what = "run the named call again, exactly, and say which side is wrong (task tensor)"
    parser.add_argument("--replay", action="store_true", help=what)
    add_table(parser)


def _mapping_text(found: Diff) -> str:
    layers: dict[str, str] = {}
    apis: dict[str, str] = {}
    for run in found.runs:
        for whole, own in zip((layers, apis), run.alignment.renamed(), strict=True):
            whole.update({name: other for name, other in own.items() if name not in whole})
        if len(found.runs) > 1:
            run.forget()
    return suggest_mapping(layers, apis)


def _story(found: Diff) -> Iterator[str]:
    verdict = found.verdict
    yield found.sentence
    yield from verdict.where
    if len(found.runs) > 1 and verdict.call is not None:
        yield f"  in {next(run.a.label for run in found.runs if run.verdict is verdict)}"
    told = [*found.runs]
    if len(told) > _MOST:  # the first of those that differ: who has a thousand ranks looks for the odd ones
        told = [run for run in found.runs if run.verdict.state != "same"][:_MOST]
    for run in told:
        yield ""
        yield f"{run.a.label} with {run.b.label}: {run.amounts}"
        for what, backward in (("forward", False), ("backward", True)):
            first = run.first(backward=backward)
            if first is not None and first.call is not None:
                yield f"  {what}: {first.call.name} ({first.cause})"
        for which, calls in zip(("first", "second"), run.lone, strict=True):
            if calls:
                names = ", ".join(calls[:3]) + (", ..." if len(calls) > 3 else "")
                yield f"  in the {which} run alone: {len(calls)} records ({names})"
    if len(told) < len(found.runs):
        same = sum(run.verdict.state == "same" for run in found.runs)
        more = len(found.runs) - same - len(told)
        yield ""
        apart = f", and {more} more are apart" if more else ""
        yield f"{same} of {len(found.runs)} runs (a rank of a step each) are the same{apart}: -o FILE has all rows"


def _rows(found: Diff) -> Iterator[dict[str, Any]]:
    """Yield the rows of what is not exactly the same."""
    for run in found.runs:
        for call in run.each() if run.changed else ():
            if not call.exact:
                row = Diff.row((run.a.label, *call.cells))
                yield row | {"other": "" if row["other"] == row["call"] else row["other"]}


main = Command(
    "diff",
    "Compare two dumps, by Probe or msprobe, and name the first call that makes a difference.",
    _options,
    _run,
    "0 the same, at least within what rounding explains; 1 different; 2 cannot be compared",
    finds=True,
)
