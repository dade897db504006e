"""Copy a value, and move each number in its floating tensors to the next of their dtype, the smallest change.

A seed draws which go up and which go down. Zeros, infinities and NaN stay.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.errors import UsageError

from .seed import seed_number

Bits = npt.NDArray[Any]
Move = Callable[[Bits, str], Bits]
"""Returns the bits of moved numbers, given those of an array (as unsigned integers) and a name in `FORMATS`."""

FORMATS: Mapping[str, tuple[str, int]] = {
    "float64": ("uint64", 0x7FF0_0000_0000_0000),
    "float32": ("uint32", 0x7F80_0000),
    "float16": ("uint16", 0x7C00),
    "bfloat16": ("uint16", 0x7F80),
    "float8_e5m2": ("uint8", 0x7C),
    "float8_e4m3fn": ("uint8", 0x7F),
    "float8_e5m2fnuz": ("uint8", 0x80),
    "float8_e4m3fnuz": ("uint8", 0x80),
}
"""Dtype -> the integers of its size, and the bits of the first magnitude that is infinite or NaN.

All of them have a sign bit in front of a magnitude that grows with its bits.
"""


def perturbed(value: Any, seed: object, tensor: Callable[[Any, Move], Any]) -> Any:
    """Return a copy of a value in which each floating tensor is moved; what holds no such tensor is the same object.

    value: a tensor, or a nested structure of lists, tuples, mappings and dataclasses.
    tensor: returns the moved form of a tensor of its framework, and NotImplemented for anything else and for tensors
        of integers.
    Raises UsageError when the seed is wrong, and when there is no floating tensor at all.
    """
    walk = _Perturbation(np.random.default_rng(seed_number(seed, "perturb")), tensor)
    found = walk.moved(value)
    if not walk.count:
        raise UsageError(
            f"perturb found no tensor of floats in this {type(value).__name__}, so it would change nothing. Where the "
            "model takes integers (tokens), perturb its weights: model.load_state_dict(perturb(model.state_dict())), "
            "or load_param_into_net(net, perturb(net.parameters_dict())) in MindSpore."
        )
    return found


class _Perturbation:
    """Walk over a value. A tensor that stands in several places is moved once, and stays one tensor."""

    def __init__(self, draws: np.random.Generator, tensor: Callable[[Any, Move], Any]) -> None:
        self._draws, self._tensor = draws, tensor
        self._known: dict[int, tuple[Any, Any]] = {}  # an id stands for its object only as long as that lives
        self.count = 0

    def moved(self, value: Any) -> Any:
        if id(value) in self._known:
            return self._known[id(value)][1]
        self._known[id(value)] = value, value  # where a value contains itself
        found = self._of(value)
        self._known[id(value)] = value, found
        return found

    def _of(self, value: Any) -> Any:
        found = self._tensor(value, self._move)
        if found is NotImplemented and isinstance(value, np.ndarray):
            found = _array(value, self._move)
        if found is not NotImplemented:
            self.count += 1
            return found
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            items = [self.moved(item) for item in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value
            return value._make(items) if hasattr(value, "_make") else _sequence(value, items)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value)
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        items = {key: self.moved(item) for key, item in value.items()}
        changed = {key: item for key, item in items.items() if item is not value[key]}
        if not changed:
            return value
        why = f"perturb cannot change a copy of a {type(value).__name__}: give dict(...) of it."
        if not isinstance(value, MutableMapping):
            raise UsageError(why)
        found = _copied(value)
        for key, item in changed.items():
            own = value[key]
            found[key] = item
            if value[key] is item:  # copies of this class share what they hold
                value[key] = own
                raise UsageError(why)
        return found

    def _dataclass(self, value: Any) -> Any:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        items = {name: self.moved(item) for name, item in fields.items()}
        changed = {name: item for name, item in items.items() if item is not fields[name]}
        found = _copied(value) if changed else value
        for name, item in changed.items():
            object.__setattr__(found, name, item)  # a frozen one too: nobody else has the copy yet
        return found

    def _move(self, bits: Bits, dtype: str) -> Bits:
        """Return the bits of the next numbers, up or down as drawn.

        Zeros stay, as what is masked or padded must, and so do infinities and NaN. Where the draw would make a zero
        or an infinity of a number, it goes the other way.
        """
        kind, limit = FORMATS[dtype]
        word = np.dtype(kind).type
        sign = word(1 << (bits.dtype.itemsize * 8 - 1))
        magnitude = bits & ~sign
        up = self._drawn(bits.size).reshape(bits.shape)
        up = (up | (magnitude == 1)) & (magnitude != limit - 1)
        with np.errstate(over="ignore"):  # a zero has nothing below it, and stays
            step = np.where(up, magnitude + word(1), magnitude - word(1))
        moves = (magnitude != 0) & (magnitude < limit)
        found: Bits = np.where(moves, step | (bits & sign), bits).astype(kind, copy=False)
        return found

    def _drawn(self, count: int) -> npt.NDArray[np.bool_]:
        drawn = np.frombuffer(self._draws.bytes((count + 7) // 8), np.uint8)
        return np.unpackbits(drawn, count=count).astype(bool)


def _copied(value: Any) -> Any:
    """Return a copy of an object of the user's class. Raises UsageError when that is the object itself."""
    found = copy.copy(value)
    if found is value:
        raise UsageError(f"perturb cannot change a {type(value).__name__}, whose copy is the same object.")
    return found


def _sequence(value: Any, items: list[Any]) -> Any:
    """Return a list or tuple of the class of ``value``, with its attributes and with ``items`` instead of its own."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(items)
    if isinstance(value, list):
        found = _copied(value)
        list.__setitem__(found, slice(None), items)
        return found
    try:
        made = tuple.__new__(kind, items)
    except TypeError:  # one of C's own, as torch.return_types.max
        return kind(items)
    getattr(made, "__dict__", {}).update(getattr(value, "__dict__", {}))
    return made


def _array(value: npt.NDArray[Any], move: Move) -> Any:
    """Return the moved form of a numpy array of floats or complex numbers; NotImplemented for another."""
    name = value.dtype.name
    if value.dtype.kind == "c" and name in ("complex64", "complex128"):
        part = np.dtype("float32" if name == "complex64" else "float64")
        return _array(np.ascontiguousarray(value)[..., None].view(part), move).view(value.dtype)[..., 0]
    if name not in FORMATS:
        if value.dtype.kind == "f":
            raise UsageError(f"perturb cannot move {name}: it knows {', '.join(FORMATS)}. Convert it first.")
        return NotImplemented
    plain = np.ascontiguousarray(value).reshape(value.shape)
    if not plain.dtype.isnative:
        plain = plain.astype(plain.dtype.newbyteorder("="))
    found = move(plain.view(FORMATS[name][0]), name).view(plain.dtype)
    return found.astype(value.dtype, copy=False)
