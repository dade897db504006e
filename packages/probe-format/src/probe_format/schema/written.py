"""Say which of its arguments a call writes into: what such a tensor held before may be nothing (`torch.empty`)."""

from __future__ import annotations

from probe_format.errors import FormatError
from probe_format.names import ApiName, parse_name

__all__ = ["writes_into"]


def writes_into(name: str, slot: str) -> bool:
    """Return whether the function of a record writes into the tensor that it got: ``copy_``, ``x[0] = y``, ``out=``.

    name: the name of the record.
    slot: the place of the tensor in the record, as ``input_args.0``.
    """
    place = f"{slot}."
    if place.startswith("input_kwargs.out."):
        return True
    if not place.startswith("input_args.0."):
        return False
    try:
        parsed = parse_name(name)
    except FormatError:
        return False
    if not isinstance(parsed, ApiName):
        return False
    api = parsed.api
    if api.endswith("__"):
        return api == "__setitem__" or api.removeprefix("__") in _IN_PLACE
    return api.endswith("_")


_OPERATORS = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift"
_IN_PLACE = frozenset(f"i{operator}__" for operator in _OPERATORS.split())
