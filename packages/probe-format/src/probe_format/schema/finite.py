"""Tell from JSON which values of a tensor, an argument or a record are not finite, and whether a call made them.

The rule is in spec/statistics.md (What is not finite).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from probe_format.excerpts import text
from probe_format.jsonio import number
from probe_format.names import ApiName, parsed
from probe_format.statistics import NOT_FINITE

from .parts import Parts

_NONE: frozenset[str] = frozenset()


def kinds_of(tensor: Mapping[str, Any]) -> frozenset[str]:
    """Return which of ``NaN``, ``+Inf`` and ``-Inf`` are among a tensor's elements, as far as its statistics tell.

    The counts say it and, without any, Max and Min. msprobe's Norm and Mean do not: they overflow in the dtype.
    """
    get = tensor.get
    if get("nan_count") or get("posinf_count") or get("neginf_count"):
        return frozenset(word for key, word in NOT_FINITE.items() if get(key))
    high, low = get("Max"), get("Min")
    if type(high) is float and type(low) is float and high - high + low - low == 0.0:
        return _NONE
    return frozenset(word for x in (high, low) if (word := _word(x)))


def non_finite(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf``); empty when all elements are finite, or it is unknown."""
    kinds = kinds_of(tensor)
    if not kinds:
        return ""
    counted = ((f"{text(tensor[key])} " if tensor.get(key) else "", word) for key, word in NOT_FINITE.items())
    return ", ".join(count + word for count, word in counted if word in kinds)


def broken(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf of 64``); empty when all elements are, or it is not known."""
    words = non_finite(tensor)
    return f"{words} of {math.prod(tensor['shape'])}" if words[:1].isdigit() else words


def kinds_asked_for(value: Any) -> frozenset[str]:
    """Return what an argument that is not a tensor asks for: the ``-Inf`` of ``masked_fill(mask, float('-inf'))``."""
    if isinstance(value, dict):
        value = None if value.get("type") == "str" else value.get("value")
    elif isinstance(value, str):  # every text that is not encoded is one that a user wrote
        return _NONE
    word = _word(value)
    return frozenset((word,)) if word else _NONE


def _word(x: Any) -> str:
    found = number(x)
    if not isinstance(found, float) or math.isfinite(found):
        return ""
    return "NaN" if found != found else "+Inf" if found > 0 else "-Inf"


def writes_into(name: str, slot: str) -> bool:
    """Return whether the function of a record writes into the tensor that it got: ``copy_``, ``x[0] = y``, ``out=``.

    slot: the place of the tensor in the record, as ``input_args.0``.
    """
    place = f"{slot}."
    if place.startswith("input_kwargs.out."):
        return True
    if not place.startswith("input_args.0."):
        return False
    api = _api(name)
    if api.endswith("__"):
        return api == "__setitem__" or api.removeprefix("__") in _IN_PLACE
    return api.endswith("_")


def only_views(name: str) -> bool:
    """Return whether the function of a record computes nothing: it returns a part or another view of what it got."""
    return _api(name) in _VIEWING


def _api(name: str) -> str:
    """Return the name of the function of a forward record; empty for other records."""
    of = parsed(name)
    return of.api if isinstance(of, ApiName) and of.direction == "forward" else ""


_VIEWS = (
    "alias as_strided chunk detach diagonal expand expand_as flatten movedim narrow permute ravel reshape reshape_as "
    "select split split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind unflatten unfold "
    "unsqueeze view view_as"
)
_OPERATORS = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift"
_IN_PLACE = frozenset(f"i{operator}__" for operator in _OPERATORS.split())
_VIEWING = frozenset(_VIEWS.split())


#: What a mask is made of. Among the inputs of a call it is meant, as long as the call makes no other kind of it.
MASK = frozenset(("-Inf",))


@frozen(eq=False)
class Suspect:
    """Hold a record that has a value which is not finite, whoever made it.

    order: its place among the records of the rank, which are in the order of completion.
    given, made: the kinds of such values among what the call got, and what it returned.
    asked: the kinds that its other arguments ask for.
    """

    name: str
    order: int
    given: frozenset[str]
    made: frozenset[str]
    asked: frozenset[str] = _NONE

    def blamed(self, allowed: frozenset[str] = _NONE) -> tuple[frozenset[str], frozenset[str]]:
        """Return the kinds that the call makes, and those that it brings in with its inputs; none that is asked for.

        allowed: kinds that are meant here, besides those that it is asked for.
        """
        allowed = self.asked | allowed
        brought = _NONE if only_views(self.name) else self.given - allowed - MASK
        return self.made - self.given - allowed, brought


def suspect_of(name: str, order: int, parts: Parts) -> Suspect | None:
    """Return a record as a suspect; None where all of it is finite."""
    given = made = held = _NONE
    for value in parts.values:
        kinds = kinds_of(value.tensor)
        if not kinds:
            continue
        if value.side == "out":
            made |= kinds
        elif writes_into(name, value.slot):
            held |= kinds
        else:
            given |= kinds
    if not given and not made and not held:
        return None
    given |= held & made  # else it is overwritten: it may have been in memory that nobody had written
    asked = _NONE.union(*(kinds_asked_for(value) for _, value in parts.others))
    return Suspect(name, order, given, made, asked)


def may_begin(found: Iterable[Suspect]) -> bool:
    """Return whether values that were not asked for may begin at one of these.

    To be sure, the modules around it must be known too (`probe_format.read.nonfinite.origins`).
    """
    return any(made or brought for made, brought in (suspect.blamed() for suspect in found))
