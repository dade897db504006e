"""Write how two runs differ as columns: which call belongs to which, and the numbers of those that differ."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from probe_analysis.diff.call_diff import CallDiff
from probe_analysis.diff.diff import RunDiff
from probe_analysis.diff.verdict import Verdict

from .page import Numbering, numbers, whole
from .record_columns import SIDES
from .run_columns import RunColumns

_CAUSES = (None, "arguments", "parameters", "input", "output")


@frozen(eq=False)
class Compared:
    """Hold two runs that were compared, as the page has it.

    a, b: the runs.
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
        "made": numbers([call.made for call in changed]),
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


def _values(changed: Sequence[tuple[CallDiff, int]], texts: Numbering) -> dict[str, Any]:
    """Return the tensors that differ: where, how far, and what their saved values say."""
    rows = [(place, value) for call, place in changed for value in call.values]

    def of(number: Callable[[Any], float]) -> Any:
        return numbers([math.nan if value.elements is None else number(value.elements) for _, value in rows])

    return {
        "node": whole([place for place, _ in rows]),
        "slot": whole([texts[value.slot] for _, value in rows]),
        "side": whole([SIDES.index(value.side) for _, value in rows]),
        "relative": numbers([value.distance.relative for _, value in rows]),
        "what": whole([texts[value.distance.what] for _, value in rows]),
        "maxAbs": of(lambda e: e.max_abs),
        "maxRel": of(lambda e: e.max_rel),
        "cosine": of(lambda e: e.cosine),
        "maxUlp": of(lambda e: math.nan if e.max_ulp is None else e.max_ulp),
        "beyond": of(lambda e: e.beyond),
    }
