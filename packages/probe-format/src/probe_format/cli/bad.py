"""Say in sentences where a step stops being finite (the command ``probe show --bad``)."""

from collections.abc import Iterator, Mapping, Sequence

from probe_format.errors import FormatError
from probe_format.names import ApiName, ModuleName, parsed, with_direction
from probe_format.read.dump import Rank
from probe_format.read.nonfinite import Origin, origins, suspects
from probe_format.schema.finite import Suspect, kinds_of, non_finite
from probe_format.schema.parts import Value, parts_of

_NAN = frozenset(("NaN",))
_LISTED = 5


def story(rank: Rank) -> Iterator[str]:
    """Yield sentences on the origin of the first value that is not finite, and on how many records follow."""
    found = list(suspects(rank))
    parts = (parts_of(record.json) for record in rank.records)
    if not found and not any("Max" in value.tensor for part in parts for value in part.values):
        yield "nothing recorded has statistics, so what is finite is not known"
        return
    unknown = ", but for what is lost" if rank.lost else ""
    if not found:
        yield f"everything recorded is finite{unknown}"
        return
    begun = list(origins(rank, found))
    by_name = {suspect.name: suspect for suspect in found}
    if not begun:
        yield "everything recorded is finite, but for infinities that were asked for (a mask), or what no call used"
    else:
        yield _beginning(begun[0], by_name, None, "not finite")
        if "NaN" not in begun[0].at.given | begun[0].at.made:
            first = next(origins(rank, found, _NAN), None)
            if first is not None:
                yield _beginning(first, by_name, _NAN, "NaN")
    yield from _makers(rank, found, begun, by_name)


def _makers(
    rank: Rank, found: Sequence[Suspect], begun: Sequence[Origin], by_name: Mapping[str, Suspect]
) -> Iterator[str]:
    """Yield how many records have such values, and which calls made one from finite inputs."""
    with_nan = sum("NaN" in suspect.given | suspect.made for suspect in found)
    makers = [o for o in begun if not (o.outside or o.received or o.at.given or rank.lost.given(o.name))]
    makers = [o for o in makers if _is_call(o.name) and _forward(o.name, by_name) is None]
    made = f"; {len(makers)} made it from finite inputs" if makers else ""
    yield f"not finite: {len(found)} of {len(rank.records)} records ({with_nan} with NaN){made}"
    for origin in makers[:_LISTED]:
        yield f"  made by {_said(origin.name, origin.made)}"
    if len(makers) > _LISTED:
        yield f"  ... and {len(makers) - _LISTED} more"


def _is_call(name: str) -> bool:
    """Return whether a record is that of a call: not a saved value, and not the gradients of parameters."""
    return isinstance(parsed(name), ApiName | ModuleName)


def _forward(name: str, bad: Mapping[str, Suspect]) -> str | None:
    """Return the name of the forward record of a backward one, where it has such values as well."""
    forward = with_direction(name, "forward")
    return forward if forward != name and forward in bad else None


def _beginning(origin: Origin, bad: Mapping[str, Suspect], kinds: frozenset[str] | None, what: str) -> str:
    """Return a sentence on an origin, and on whether that call made the value or was given it."""

    def of(values: Sequence[Value]) -> list[Value]:
        return [value for value in values if kinds is None or kinds_of(value.tensor) & kinds]

    if origin.outside:
        given = _said(origin.name, of(origin.given))
        return f"first {what}: {given}: given to this call, made by nothing recorded before"
    said = f"first {what}: {_said(origin.name, of(origin.made))}"
    if not _is_call(origin.name):
        return said
    said += ": received from other ranks" if origin.received else ": made there"
    if origin.given:
        return f"{said}; its inputs have none, but {_slots(origin.given)}"
    forward = _forward(origin.name, bad)
    finite = f"its inputs are finite{origin.rank.lost.given(origin.name)}"
    if forward is None:
        return f"{said}; {finite}"
    try:
        parts = parts_of(origin.rank.records[forward].json)
    except FormatError:
        return f"{said}; {finite}, but not its forward call"
    values = [value for value in parts.values if kinds_of(value.tensor)]
    return f"{said}; {finite}, but {_said(forward, values)}"


def _said(name: str, values: Sequence[Value]) -> str:
    return f"{name}, {_slots(values)}"


def _slots(values: Sequence[Value]) -> str:
    texts = [f"{value.slot or 'value'} ({non_finite(value.tensor)})" for value in values]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
