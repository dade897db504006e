"""Find the call that made a dump's first NaN or infinity, and how many records hold one."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from probe_format.names import ApiName, ModuleName, is_name, parse_name

from .dump import Rank, Record, Tensor

__all__ = ["Trouble", "story", "troubles"]

_GIVEN = ("input_args", "input_kwargs", "parameters", "input")
_LISTED = 5


@frozen
class Trouble:
    """Point to a record with values that are not finite.

    given: the tensors with such values that the call received.
    made: the tensors with such values that it produced.
    """

    record: Record
    given: tuple[Tensor, ...]
    made: tuple[Tensor, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors given and made."""
        return (*self.given, *self.made)


def troubles(rank: Rank) -> Iterator[Trouble]:
    """Yield every record with a value that is not finite, in the order of the file, which is that of completion."""
    for record in rank.records:
        bad = [tensor for tensor in record.tensors if tensor.non_finite]
        given = tuple(t for t in bad if t.keys and t.keys[0] in _GIVEN)
        # A recompute is never the origin: it repeats a call whose own record is looked at as well.
        made = tuple(t for t in bad if t not in given and t.keys[:1] != ("recompute",))
        if given or made:
            yield Trouble(record, given, made)


def story(rank: Rank, found: list[Trouble]) -> Iterator[str]:
    """Yield sentences on the origin of the first value that is not finite, and on how many records follow."""
    if not found:
        yield "everything recorded is finite"
        return
    yield from _beginning(rank, found, "", "not finite")
    if not _has(next(iter(found[0].tensors)), "NaN"):
        yield from _beginning(rank, found, "NaN", "NaN")
    with_nan = sum(any(_has(t, "NaN") for t in trouble.tensors) for trouble in found)
    names = {trouble.record.name for trouble in found}
    makers = [trouble for trouble in found if not trouble.given and not _follows(trouble.record.name, names)]
    made = f"; {len(makers)} made it from finite inputs" if makers else ""
    yield f"not finite: {len(found)} of {len(rank.records)} records ({with_nan} with NaN){made}"
    for trouble in makers[:_LISTED]:
        yield f"  made by {_said(trouble.record, trouble.made)}"
    if len(makers) > _LISTED:
        yield f"  ... and {len(makers) - _LISTED} more"


def _call(name: str) -> ApiName | ModuleName | None:
    """Return the parts of a call's name; None for saved values and gradients of parameters."""
    parsed = parse_name(name) if is_name(name) else None
    return parsed if isinstance(parsed, ApiName | ModuleName) else None


def _forward(name: str) -> str | None:
    """Return the name of the forward record of a backward one."""
    parsed = _call(name)
    return str(evolve(parsed, direction="forward")) if parsed and parsed.direction == "backward" else None


def _follows(name: str, bad: set[str]) -> bool:
    """Return whether a record has its non-finite values from its forward call, or is not a call."""
    return _call(name) is None or _forward(name) in bad


def _beginning(rank: Rank, found: list[Trouble], word: str, what: str) -> Iterator[str]:
    """Yield a sentence on the first record that has ``word``, and on whether that call made it or was given it."""
    first = next((t for t in found if any(_has(tensor, word) for tensor in t.tensors)), None)
    if first is None:
        return
    by_name = {trouble.record.name: trouble for trouble in found}
    if any(_has(t, word) for t in first.given):
        outer = _outermost(rank, by_name, first, word)
        given = [t for t in outer.given if _has(t, word)]
        yield f"first {what}: {_said(outer.record, given)}: given to this call, made by nothing recorded before"
        return
    said = f"first {what}: {_said(first.record, [t for t in first.made if _has(t, word)])}"
    forward = by_name.get(_forward(first.record.name) or "")
    if _call(first.record.name) is None:
        yield said
    elif first.given:
        yield f"{said}: made there; its inputs have none, but {_slots(first.given)}"
    elif forward is not None:
        yield f"{said}: made there; its inputs are finite, but {_said(forward.record, forward.tensors)}"
    else:
        yield f"{said}: made there; its inputs are finite"


def _outermost(rank: Rank, by_name: dict[str, Trouble], first: Trouble, word: str) -> Trouble:
    """Return the outermost call around ``first`` that was given the value: outer calls complete later."""
    found = first
    for name in rank.construct.ancestors(first.record.name):
        around = by_name.get(name)
        if around is not None and any(_has(t, word) for t in around.given):
            found = around
    return found


def _said(record: Record, tensors: list[Tensor] | tuple[Tensor, ...]) -> str:
    return f"{record.name}, {_slots(tensors)}"


def _slots(tensors: list[Tensor] | tuple[Tensor, ...]) -> str:
    texts = [f"{tensor.slot or 'value'} ({tensor.non_finite})" for tensor in tensors]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _has(tensor: Tensor, word: str) -> bool:
    return word in tensor.non_finite if tensor.non_finite else False
