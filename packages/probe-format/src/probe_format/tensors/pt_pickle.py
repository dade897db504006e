"""Walk the opcodes of a ``.pt`` file's pickle without unpickling: nothing is imported and nothing is called.

The walk knows the few opcodes that a tensor needs, and ends at any other.
"""

from __future__ import annotations

import pickletools
from collections.abc import Container
from typing import Any

from attrs import frozen

from probe_format.errors import DamagedError, FormatError

_MOST_BYTES = 1 << 16


@frozen
class Name:
    """Stand for what the pickle imports."""

    name: str


@frozen
class Call:
    """Stand for what a call returns."""

    function: Any
    arguments: Any


@frozen
class Stored:
    """Stand for a storage.

    what: what torch.save says of it: kind, member, device and number of elements.
    """

    what: Any


_MARK = object()


def walk(pickle: bytes, names: Container[str]) -> Any:
    """Return what the pickle makes, with a `Name`, `Call` or `Stored` for what unpickling would import or call.

    names: what it may import.
    Raises DamagedError when it is not a pickle by torch.save, FormatError when it needs more than a tensor does; the
    messages have no file name.
    """
    if len(pickle) > _MOST_BYTES:
        raise FormatError(f"its pickle has {len(pickle)} bytes, more than that of a tensor")
    try:
        return _walk(pickle, names)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise DamagedError(f"its pickle is damaged ({str(error)[:100]})") from None


def _walk(pickle: bytes, names: Container[str]) -> Any:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for op, arg, at in pickletools.genops(pickle):
        match op.name:
            case "PROTO":
                if arg != 2:
                    raise ValueError(f"it is of protocol {arg}")
            case "GLOBAL":
                if (name := str(arg).replace(" ", ".", 1)) not in names:
                    raise FormatError(f"its pickle names {name[:80]!a}, which no tensor needs")
                stack.append(Name(name))
            case "BINPUT" | "LONG_BINPUT":
                if stack[-1] is _MARK:
                    raise ValueError("a mark is remembered")
                memo[arg] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[arg])
            case "MARK":
                stack.append(_MARK)
            case "TUPLE":
                begin = len(stack) - 1 - stack[::-1].index(_MARK)
                stack[begin:] = [tuple(stack[begin + 1 :])]
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                begin = len(stack) - (0 if op.name == "EMPTY_TUPLE" else int(op.name[-1]))
                if begin < 0 or _MARK in stack[begin:]:
                    raise ValueError("a tuple without its items")
                stack[begin:] = [tuple(stack[begin:])]
            case "BINPERSID":
                stack.append(Stored(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(Call(stack.pop(), arguments))
            case "NEWTRUE" | "NEWFALSE":
                stack.append(op.name == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(arg)
            case "STOP":
                if len(stack) != 1 or at != len(pickle) - 1 or stack[0] is _MARK:
                    raise ValueError("it does not end where it stops")
                return stack[0]
            case _:
                raise FormatError(f"its pickle has the opcode {op.name}, which no tensor needs")
    raise ValueError("it does not stop")
