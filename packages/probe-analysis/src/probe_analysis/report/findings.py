"""Put findings into data for the report's page: how two runs differ, the verdict, where NaN or infinity begins."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from probe_analysis.calls.run import AtCall
from probe_analysis.compare.estimates import SIDES
from probe_analysis.diff.call_diff import CAUSES, CallDiff
from probe_analysis.diff.diff import Diff
from probe_analysis.diff.run_diff import RunDiff
from probe_analysis.diff.verdict import Verdict
from probe_analysis.nonfinite.first import Finding, NonFinite
from probe_analysis.nonfinite.lookout import Risk

from .page import Numbering, numbers, whole
from .run_columns import RunColumns

_CAUSES = (None, *CAUSES)


@frozen(eq=False)
class Compared:
    """Hold two runs that were compared, as the page has it.

    alone: name of a call that the second run alone has -> its place, after the nodes of the first run.
    """

    a: RunColumns
    b: RunColumns
    alone: dict[str, int]
    document: dict[str, Any]

    def place(self, verdict: Verdict) -> int:
        """Return the place of the call of a verdict; -1 without one."""
        if verdict.call is None:
            return -1
        if verdict.call.rank is self.b.run.rank and self.a.run.rank is not self.b.run.rank:
            return self.alone.get(verdict.call.name, -1)
        return self.a.places.get(verdict.call.name, -1)


def compared(found: RunDiff, a: RunColumns, b: RunColumns, texts: Numbering) -> Compared:
    pair = [-1] * len(a.nodes)
    back = [-1] * len(b.nodes)
    for each in found.alignment.pairs:
        one, two = a.places[each.a.name], b.places[each.b.name]
        pair[one], back[two] = two, one
    # In the order of the tree, so that what is around a call comes before it.
    extra = sorted(found.alignment.only_b, key=lambda call: b.places[call.name])
    alone = {call.name: len(a.nodes) + i for i, call in enumerate(extra)}
    changed = [call for call in found.calls if not call.exact]
    places = [a.places[call.pair.a.name] for call in changed]
    both = list(zip(changed, places, strict=True))
    verdict = found.verdict
    document = {
        "a": a.number,
        "b": b.number,
        "across": found.a.is_across(found.b),
        "state": verdict.state,
        "sentence": verdict.sentence,
        "amounts": f"{found.amounts}.",
        "pair": whole(pair),
        "alone": whole([b.places[name] for name in alone]),
        "aloneParent": whole([_around(b, name, back, alone) for name in alone]),
        "onlyFirst": whole([a.places[call.name] for call in found.alignment.only_a]),
        "node": whole(places),
        "cause": whole([_CAUSES.index(call.cause) for call in changed]),
        "made": numbers([call.returned for call in changed]),
        "brought": numbers([call.brought for call in changed]),
        "allowed": numbers([call.allowed for call in changed]),
        "values": _values(both, texts),
        "arguments": [[place, str(argument)] for call, place in both for argument in call.arguments],
    }
    return Compared(a, b, alone, document)


def _around(b: RunColumns, name: str, back: list[int], alone: dict[str, int]) -> int:
    """Return the place under which a call of the second run stands in the tree of the first."""
    node = b.nodes[b.places[name]].parent
    while node >= 0:
        if back[node] >= 0:
            return back[node]
        around = alone.get(b.nodes[node].name)
        if around is not None and around < alone[name]:
            return around
        node = b.nodes[node].parent
    return -1


#: A column of the page -> the attribute of `Elements` (from the saved values) that it shows.
_MEASURED = {"maxAbs": "max_abs", "maxRel": "max_rel", "maxUlp": "max_ulp"}
_MEASURED |= {"cosine": "cosine", "norm": "apart"}


def _values(changed: Sequence[tuple[CallDiff, int]], texts: Numbering) -> dict[str, Any]:
    rows = [(place, value) for call, place in changed for value in call.values]
    document = {
        "node": whole([place for place, _ in rows]),
        "slot": whole([texts[value.slot] for _, value in rows]),
        "side": whole([SIDES.index(value.side) for _, value in rows]),
        "relative": numbers([value.distance.relative for _, value in rows]),
        "what": whole([texts[value.distance.what] for _, value in rows]),
    }
    for key, name in _MEASURED.items():
        document[key] = numbers([getattr(value.elements, name, math.nan) for _, value in rows])
    return document


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
            first = run.first(backward=backward)
            if first is not None and first.call is not None:
                way = "backward" if backward else "forward"
                text = f"{run.a.label}, {way}: {first.call.name} ({first.cause})"
                firsts.append([text, each.a.number, each.a.places[first.call.name]])
    each_alone = ("first", found.only_a), ("second", found.only_b)
    alone = [f"In the {which} dump alone: {', '.join(labels)}." for which, labels in each_alone if labels]
    title = f"{of.a.run.label} with {of.b.run.label}"
    lists = [["The first call that differs by itself, in each run and pass", firsts]] if firsts else []
    skipped = (f"{label} is skipped: {why}" for label, why in found.skipped.items())
    place, notes = (of.a.number, of.place(verdict)), [of.document["amounts"], *alone, *skipped]
    return finding({"kind": "verdict"}, verdict.state, title, verdict.sentence, verdict, place, notes, lists)


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
    state = "different" if first is not None else "same" if found.known else "unknown"
    title = " ".join(part for part in (which, "" if first is None else first.run.label) if part)
    place = (-1, -1) if first is None else _place(runs, first, first.call.name)
    shown = [each for each in lists if each[1]]
    kind = {"kind": "finite", "dump": dump}
    return finding(kind, state, title, found.sentence, first, place, found.notes, shown)


def finding(
    kind: dict[str, Any],
    state: str,
    title: str,
    sentence: str,
    at: AtCall | None = None,
    place: tuple[int, int] = (-1, -1),
    notes: Sequence[str] = (),
    lists: Sequence[Any] = (),
) -> dict[str, Any]:
    """Return a finding as the page has it. place: the number of its run, and of its line in the tree."""
    where = {"line": at.line if at else "", "modules": list(at.modules if at else ())}
    told = {"state": state, "title": title, "sentence": sentence, **where}
    return {**kind, **told, "run": place[0], "node": place[1], "notes": list(notes), "lists": list(lists)}


def _place(runs: Runs, found: Finding | Risk, name: str) -> tuple[int, int]:
    columns = runs[id(found.run.rank)]
    return columns.number, columns.places.get(name, -1)
