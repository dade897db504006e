"""Write the findings, which come first on the page: the verdict on two dumps, the first value that is not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe_analysis.diff import Diff
from probe_analysis.nonfinite import Finding, NonFinite, Risk

from .compared import Compared
from .run_columns import RunColumns

__all__ = ["nonfinite_finding", "unchecked", "verdict_finding"]

#: How many values that are close to the limits of their dtype are on the page.
_RISKS = 200

Runs = Mapping[int, RunColumns]


def verdict_finding(found: Diff, comparisons: list[Compared]) -> dict[str, Any]:
    """Return the verdict on two dumps: which state it is, its sentence, where it points to.

    comparisons: of the runs of ``found``, in its order.
    """
    verdict = found.verdict
    of = next(each for run, each in zip(found.runs, comparisons, strict=True) if run.verdict is verdict)
    firsts = []
    for run, each in zip(found.runs, comparisons, strict=True):
        for backward in (False, True):
            call = run.first(backward=backward)
            if call is not None:
                way = "backward" if backward else "forward"
                text = f"{run.a.label}, {way}: {call.pair.a.name} ({call.cause})"
                firsts.append([text, each.a.number, each.a.places[call.pair.a.name]])
    each_alone = ("first", found.only_a), ("second", found.only_b)
    alone = [f"In the {which} dump alone: {', '.join(labels)}." for which, labels in each_alone if labels]
    return {
        "kind": "verdict",
        "state": verdict.state,
        "title": f"{of.a.run.label} with {of.b.run.label}",
        "sentence": verdict.sentence,
        "line": verdict.line,
        "modules": list(verdict.modules),
        "run": of.a.number,
        "node": of.place(verdict),
        "notes": [of.document["amounts"], *alone],
        "lists": [["The first call that differs by itself, in each run and pass", firsts]] if firsts else [],
    }


def nonfinite_finding(found: NonFinite, runs: Runs, dump: int, which: str) -> dict[str, Any]:
    """Return where a dump stops being finite.

    runs: the id of a rank -> its run on the page.
    dump: 0 for the first dump, 1 for the second.
    which: ``The first dump`` or the like, where there are two.
    """
    first = found.first
    lists: list[list[Any]] = []
    if first is not None:
        before = [[f"{call.name}   {ends}", *_place(runs, first, call.name)] for call, ends in first.led]
        lists.append(["The calls before it, and the range of what they returned", before])
        other = found.backward if not first.call.backward else found.forward
        if other is not None:
            text = f"{other.run.label}: {other.sentence}"
            way = "backward" if other.call.backward else "forward"
            lists.append([f"The first in the {way} pass", [[text, *_place(runs, other, other.call.name)]]])
        counts = [f"{label}: {count} records" for label, count in found.counts.items()]
        title = "How many records hold values that are not finite, meant or not"
        lists.append([title, [[n, -1, -1] for n in counts]])
    if found.risks:
        rows = []
        for risk in found.risks[:_RISKS]:
            rows.append([f"{risk.run.label} {risk.sentence}", *_place(runs, risk, risk.call.name)])
        title = f"Close to the limits of their dtype: {len(found.risks)} values"
        lists.append([title + (f", the first {_RISKS} here" if len(found.risks) > _RISKS else ""), rows])
    run, node = (-1, -1) if first is None else _place(runs, first, first.call.name)
    return {
        "kind": "finite",
        "dump": dump,
        "state": "different" if first is not None else "same" if found.known else "unknown",
        "title": " ".join(part for part in (which, "" if first is None else first.run.label) if part),
        "sentence": found.sentence,
        "line": "" if first is None else first.line,
        "modules": [] if first is None else list(first.modules),
        "run": run,
        "node": node,
        "notes": list(found.lost),
        "lists": [each for each in lists if each[1]],
    }


def unchecked(what: str, why: str) -> dict[str, Any]:
    """Return a finding that says why there is none."""
    blank: dict[str, Any] = {"line": "", "modules": [], "run": -1, "node": -1, "notes": [], "lists": []}
    return {"kind": "finite", "state": "unknown", "title": what, "sentence": why, **blank}


def _place(runs: Runs, found: Finding | Risk, name: str) -> tuple[int, int]:
    columns = runs[id(found.run.rank)]
    return columns.number, columns.places.get(name, -1)
