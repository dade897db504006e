"""Unpickle a ``.pt`` file's pickle with nothing imported and nothing called: a stand-in takes the place of each name.

`pickle.Unpickler` alone would not be safe: one opcode can make it reserve gigabytes (a memo's number, a bytearray's
size), and others build or call what a tensor never needs. So the opcodes are screened first, in a pickle of 64 KiB at
most, and those that pass take no more memory than the pickle has bytes, but for a small factor.
"""

import io
import pickle
import pickletools
from collections.abc import Container
from typing import Any

from attrs import frozen

from probe_format.errors import DamagedError, FormatError

_MOST_BYTES = 1 << 16
_OPCODES = {
    "PROTO", "GLOBAL", "REDUCE", "BINPERSID", "MARK", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "STOP",
}  # fmt: skip


@frozen
class Name:
    """Stand for what the pickle imports."""

    name: str

    def __call__(self, *arguments: Any) -> "Reduction":
        return Reduction(self, arguments)


@frozen
class Reduction:
    """Stand for what a call returns."""

    function: Name
    arguments: tuple[Any, ...]


@frozen
class Stored:
    """Stand for a storage. what: what torch.save says of it: kind, member, device and number of elements."""

    what: Any


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes, names: Container[str]) -> None:
        super().__init__(io.BytesIO(content))
        self._names = names

    def find_class(self, module: str, name: str) -> Name:
        if (full := f"{module}.{name}") not in self._names:
            raise FormatError(f"its pickle names {full[:80]!a}, which no tensor needs")
        return Name(full)

    def persistent_load(self, what: Any) -> Stored:
        return Stored(what)


def unpickled(content: bytes, names: Container[str]) -> Any:
    """Return what the pickle makes, with a `Name`, `Reduction` or `Stored` for what unpickling would import or call.

    names: what it may import.
    Raises DamagedError when it is not a pickle by torch.save, FormatError when it needs more than a tensor does; the
    messages have no file name.
    """
    if len(content) > _MOST_BYTES:
        raise FormatError(f"its pickle has {len(content)} bytes, more than that of a tensor")
    try:
        end = _screened(content)
        if end != len(content):
            raise ValueError("it does not end where it stops")
        return _PlainUnpickler(content, names).load()
    except FormatError:
        raise
    except Exception as error:
        raise DamagedError(f"its pickle is damaged ({str(error)[:100]})") from None


def _screened(content: bytes) -> int:
    """Return where the pickle ends. Raises FormatError for an opcode that no tensor needs, ValueError for damage."""
    end = 0
    for op, arg, at in pickletools.genops(content):
        if op.name not in _OPCODES:
            raise FormatError(f"its pickle has the opcode {op.name}, which no tensor needs")
        if op.name == "PROTO" and arg != 2:
            raise ValueError(f"it is of protocol {arg}")
        if op.name == "LONG_BINPUT" and int(arg or 0) >= len(content):
            raise ValueError("it remembers more than it has")
        end = (at or 0) + 1
    return end
