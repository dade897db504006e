"""Say which calls do not read the numbers that they get: memory that nothing was written to yet may hold anything."""

from probe_format.names import ApiName, parsed


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
