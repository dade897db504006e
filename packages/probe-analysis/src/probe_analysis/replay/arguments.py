"""Make the arguments of a recorded call again: numbers and texts from its record, tensors from their files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from probe_format.errors import DamagedError, FormatError, ProbeError
from probe_format.jsonio import meant, number
from probe_format.read import Record, Tensor
from probe_format.schema import is_tensor, path_text
from probe_format.values import ValuePath

from probe_analysis.compare.dtypes import dtype_name, eps_of

from .replayer import Array, Replayer

#: Keys of a tensor object -> why its file is not all that the function got.
_ODD = {
    "placements": "a DTensor", "functorch": "a tensor of torch.func", "nested": "nested", "layout": "sparse",
    "stored": "sparse",
}  # fmt: skip
_QUANTISED = ("torch.q",)
NOT_RECORDED = "the values of its tensors are not recorded (task tensor)"
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}


@frozen
class Placeholder:
    """Stand for the tensor in one slot of a record. index: its number among the record's tensors."""

    index: int


@frozen(eq=False)
class Arguments:
    """Hold what a function is called with, with a `Placeholder` for each tensor.

    paths, arrays: the places of the tensors in the record, and their values, in the order of `Placeholder.index`.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    paths: Sequence[ValuePath]
    arrays: Sequence[Array] = field(repr=False)

    def filled(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return ``args`` and ``kwargs`` with these tensors in place of the placeholders."""
        return _filled(self.args, tensors), {key: _filled(x, tensors) for key, x in self.kwargs.items()}


def _filled(value: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(value, Placeholder):
        return tensors[value.index]
    return tuple(_filled(x, tensors) for x in value) if isinstance(value, tuple) else value


def arguments_of(record: Record, replayer: Replayer) -> Arguments:
    """Return the arguments of a forward record. Raises ProbeError with the reason where they are not all recorded."""
    json = record.json
    positional, named = json.get("input_args"), json.get("input_kwargs", {})
    if not isinstance(positional, list) or not isinstance(named, dict):
        raise ProbeError("its inputs are not recorded (data_mode)")
    tensors = {tensor.keys: tensor for tensor in record.tensors}
    paths: list[ValuePath] = []

    def made(value: Any, path: ValuePath) -> Any:
        if is_tensor(value):
            paths.append(path)
            return Placeholder(len(paths) - 1)
        if isinstance(value, list):
            return tuple(made(x, (*path, n)) for n, x in enumerate(value))
        return _plain(value, path, replayer)

    args = tuple(made(x, ("input_args", n)) for n, x in enumerate(positional))
    kwargs = {key: made(x, ("input_kwargs", key)) for key, x in named.items()}
    return Arguments(args, kwargs, paths, [wide(values_of(tensors[path])) for path in paths])


def _plain(value: Any, path: ValuePath, replayer: Replayer) -> Any:
    """Return a value that is neither a tensor nor a list: one of Python's, or one of the framework's."""
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise ProbeError(f"it is given a mapping: {path_text(path)}")
    content = value.get("value")
    if kind in _PLAIN and "unsupported" not in value:
        found = meant(content) if kind == "str" and isinstance(content, str) else number(content)
        if isinstance(found, _PLAIN[kind]):
            return found
    if kind == "ellipsis":
        return ...
    if kind == "slice" and isinstance(content, list) and len(content) == 3:
        return slice(*(x if type(x) is int else None for x in content))
    return replayer.argument(value)


def values_of(tensor: Tensor) -> Array:
    """Return the values of a recorded tensor as they are in its file. Raises ProbeError with the reason without them.

    Raises FormatError when its file would be outside the dump.
    """
    odd = next((what for key, what in _ODD.items() if key in tensor.json), None)
    if odd is not None or tensor.dtype.startswith(_QUANTISED):
        raise ProbeError(f"a tensor is {odd or 'quantised'}: {tensor.slot}")
    if 0 in tensor.shape:  # it has no file
        return np.zeros(tensor.shape, np.float64 if eps_of(tensor.dtype) else dtype_name(tensor.dtype))
    if tensor.file is None:
        raise ProbeError(f"{NOT_RECORDED}: {tensor.slot}")
    try:
        found = tensor.load()
    except DamagedError as error:
        raise ProbeError(f"a file is damaged: {error}") from error
    except FormatError as error:
        raise ProbeError(f"a file cannot be read: {error}") from error
    if found.shape != tensor.shape:
        shapes = f"{tensor.slot} has the shape {tensor.shape}, its file {found.shape}"
        raise ProbeError(f"a file is not of its record: {shapes}")
    return found


def wide(values: Array) -> Array:
    """Return floating-point values as float64 or complex128, and others as they are, in memory of their own."""
    kind = {"f": np.float64, "c": np.complex128}.get(values.dtype.kind, values.dtype)
    return np.array(values, dtype=kind, order="C")
