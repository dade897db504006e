"""Run ``probe diff A B``: say in a sentence which call first makes two runs differ, then show the rest."""

import argparse
from collections.abc import Iterator
from typing import Any

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.terminal import say, tell

from probe_analysis.align.mapping import suggest_mapping
from probe_analysis.diff.call_diff import CallDiff
from probe_analysis.diff.diff import Diff, diff
from probe_analysis.whole_file import write_whole

from .options import add_comparison, add_table, comparison, part, print_rows, table, write_table


def _run(arguments: argparse.Namespace) -> int:
    with shown("diff", "calls") as progress:
        found = diff(arguments.a, arguments.b, progress=progress, **part(arguments), **comparison(arguments))
    if arguments.suggest_map:
        write_whole(arguments.suggest_map, _mapping_text(found))
        say(f"wrote {arguments.suggest_map}: check it, then give it with --map")
    return _show(found, arguments)


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser, "a")
    parser.add_argument("b", help="the other one")
    add_part(parser)
    add_comparison(parser)
    parser.add_argument("--suggest-map", metavar="FILE", help="write a draft of such a file")
    add_table(parser, "of the table of calls", "write the table of all calls into this file")


def _mapping_text(found: Diff) -> str:
    layers: dict[str, str] = {}
    apis: dict[str, str] = {}
    for run in found.runs:
        for whole, own in zip((layers, apis), run.alignment.renamed(), strict=True):
            whole.update({name: other for name, other in own.items() if name not in whole})
    return suggest_mapping(layers, apis)


def _show(found: Diff, arguments: argparse.Namespace) -> int:
    verdict = found.verdict
    rows = [{"run": run.a.label, **_row(call)} for run in found.runs for call in run.calls]
    if arguments.output:
        write_table(rows, arguments.format, arguments.output)
    if arguments.format != "table" and not arguments.output:
        say(*table(rows, arguments.format).split("\n"))  # for a program: nothing else on standard output
        tell(verdict.sentence)
    else:
        say(*_story(found))
        differing = [row for row in rows if row["difference"]]
        if not arguments.output:
            print_rows(differing, "table", arguments.rows, "more records")
    return 1 if verdict.state == "different" else 0


def _story(found: Diff) -> Iterator[str]:
    verdict = found.verdict
    yield found.sentence
    yield from verdict.where
    if len(found.runs) > 1 and verdict.call is not None:
        yield f"  in {next(run.a.label for run in found.runs if run.verdict is verdict)}"
    for run in found.runs:
        yield ""
        yield f"{run.a.label} with {run.b.label}: {run.amounts}"
        for what, backward in (("forward", False), ("backward", True)):
            first = run.first(backward=backward)
            if first is not None:
                yield f"  {what}: {first.pair.a.name} ({first.cause})"
        for which, calls in (("first", run.alignment.only_a), ("second", run.alignment.only_b)):
            if calls:
                names = ", ".join(call.name for call in calls[:3]) + (", ..." if len(calls) > 3 else "")
                yield f"  in the {which} run alone: {len(calls)} records ({names})"
        for note in run.notes:
            yield f"  {note}"
    for label in found.only_a:
        yield f"{label}: in the first dump alone"
    for label in found.only_b:
        yield f"{label}: in the second dump alone"


def _row(call: CallDiff) -> dict[str, Any]:
    worst = call.worst("in", "parameter", "out")
    found = worst.elements if worst is not None else None
    apart = [str(argument) for argument in call.arguments]
    if worst is not None:
        apart.append(f"{worst.slot} {worst.distance.what}")
    return {
        "call": call.pair.a.name,
        "other": "" if call.pair.b.name == call.pair.a.name else call.pair.b.name,
        "cause": call.cause or "",
        "inputs": call.brought,
        "results": call.made,
        "allowed": call.allowed,
        "difference": "; ".join(apart),
        "cosine": None if found is None else found.cosine,
        "max_ulp": None if found is None else found.max_ulp,
    }


main = Command(
    "diff",
    "Compare two dumps, by Probe or msprobe, and name the first call that makes a difference.",
    _options,
    _run,
    "0 the same, at least within what rounding explains; 1 different; 2 cannot be compared",
    finds=True,
)
